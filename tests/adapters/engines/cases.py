"""Calls that every dialect encodes, by name, and what an engine must be able to do to get each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ImagePart, Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineCapabilities

OpaqueBlocks: TypeAlias = Sequence[dict[str, Any]]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG of one pixel."""
DICE = ToolDefinition(
    "roll_dice",
    "Rolls one die.",
    {
        "type": "object",
        "properties": {"sides": {"type": "integer", "minimum": 2, "description": "Faces of the die."}},
        "required": ["sides"],
        "additionalProperties": False,
    },
)
NOW = ToolDefinition("now", "Says what time it is.", {"type": "object", "properties": {}})
SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "people": {"type": "integer", "minimum": 0},
            "rivers": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city", "people", "rivers"],
        "additionalProperties": False,
    }
)
OPEN_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {"type": "object", "properties": {"city": {"type": "string"}, "note": {"type": "string"}}, "required": ["city"]}
)
"""One that leaves members optional and others allowed."""
GRAMMAR = 'root ::= "yes" | "no"\n'
ROLL_SIX = ToolCall(id="call_1", name="roll_dice", arguments={"sides": 6})
ROLL_TWENTY = ToolCall(id="call_2", name="roll_dice", arguments={"sides": 20, "note": 'ü "quoted"\n'})
UNREADABLE = ToolCall(id="call_1", name="roll_dice", arguments={UNREADABLE_ARGUMENTS: '{"sides": si'})
ALL_HINTS = ExecutionHints(
    max_tokens=256, timeout=30.0, temperature=0.5, top_p=0.9, stop=["END", "STOP"], seed=7, options={}
)


@dataclass(frozen=True)
class EncodeCase:
    """One call. `call` makes it from an example of the opaque blocks that the provider gets back.

    `needs` names the capabilities without which no such call ever comes; `options` are those the engine lists.
    """

    call: Callable[[OpaqueBlocks], EngineCall]
    needs: frozenset[str] = frozenset()
    stream: bool = False
    options: frozenset[str] = frozenset()

    def applies_to(self, capabilities: EngineCapabilities) -> bool:
        """Tell whether an engine with just these capabilities gets such a call."""
        return all(getattr(capabilities, name) for name in self.needs)


def system(text: str) -> Message:
    return Message(role="system", content=text)


def user(content: Any) -> Message:
    return Message(role="user", content=content)


def assistant(text: str, *calls: ToolCall) -> Message:
    return Message(role="assistant", content=text, tool_calls=list(calls) or None)


def result(call: ToolCall, text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=call.id, name=call.name)


def thought(kept: OpaqueBlocks, text: str, *calls: ToolCall) -> Message:
    """Return an answer of this provider with its opaque blocks."""
    said = assistant(text, *calls)
    return ModelMessage(role="assistant", content=text, tool_calls=said.tool_calls, provider="primary", kept=list(kept))


def case(*messages: Message, needs: str = "", stream: bool = False, **asked: Any) -> EncodeCase:
    """A case that holds nothing of the provider's own. `needs` are names with blanks between them."""
    call = EngineCall(messages, asked.pop("tools", ()), asked.pop("hints", ExecutionHints()), **asked)
    return EncodeCase(lambda _kept: call, frozenset(needs.split()), stream)


def choosing(choice: Any, needs: str = "tools") -> EncodeCase:
    return case(ROLL, tools=(DICE, NOW), hints=ExecutionHints(tool_choice=choice), needs=needs)


HELLO = user("Hello")
ROLL = user("Roll a die.")
PARALLEL = (
    user("Roll two dice."),
    assistant("", ROLL_SIX, ROLL_TWENTY),
    result(ROLL_SIX, "4"),
    result(ROLL_TWENTY, "17"),
)
IMAGE = ImagePart(type="image", media_type="image/png", data=PIXEL)
CASES: Mapping[str, EncodeCase] = MappingProxyType(
    {
        "text": case(HELLO),
        "text_streamed": case(HELLO, stream=True),
        "several_turns": case(HELLO, assistant("Hi."), user("How are you?")),
        "two_user_messages_in_a_row": case(HELLO, user("Anybody there?")),
        "system_prompts": case(
            system("Be brief."),
            system("Be polite."),
            HELLO,
            assistant("Hi."),
            system("Now in German."),
            user("Again."),
            needs="system_role",
        ),
        "all_hints": case(HELLO, hints=ALL_HINTS),
        "all_hints_streamed": case(HELLO, hints=ALL_HINTS, stream=True),
        "zero_is_not_absent": case(HELLO, hints=ExecutionHints(max_tokens=1, temperature=0, seed=0, stop="END")),
        "options": replace(
            case(HELLO, hints=ExecutionHints(options={"top_k": 3, "unlisted": True})), options=frozenset({"top_k"})
        ),
        "images": case(
            user([TextPart(type="text", text="What is this?"), IMAGE, TextPart(type="text", text="And this?"), IMAGE]),
            needs="images",
        ),
        "tools": case(ROLL, tools=(DICE, NOW), needs="tools"),
        "tools_streamed": case(ROLL, tools=(DICE, NOW), needs="tools", stream=True),
        "tool_choice_auto": choosing("auto"),
        "tool_choice_none": choosing("none"),
        "tool_choice_required": choosing("required", "tools forced_calls"),
        "tool_choice_named": choosing(NamedTool(name="roll_dice"), "tools forced_calls"),
        "tool_choice_without_tools": case(HELLO, hints=ExecutionHints(tool_choice="auto")),
        "one_result": case(ROLL, assistant("", ROLL_SIX), result(ROLL_SIX, "4"), tools=(DICE,), needs="tools"),
        "parallel_results": case(*PARALLEL, tools=(DICE,), needs="tools parallel_tools"),
        "results_no_longer_offered_tools": case(*PARALLEL, user("Thanks."), needs="tools parallel_tools"),
        "text_and_calls": case(
            ROLL, assistant("Rolling.", ROLL_SIX), result(ROLL_SIX, "4"), user("Again."), tools=(DICE,), needs="tools"
        ),
        "result_of_an_unreadable_call": case(
            ROLL,
            assistant("", UNREADABLE),
            result(UNREADABLE, "The arguments are not JSON."),
            tools=(DICE,),
            needs="tools",
        ),
        "empty_result": case(ROLL, assistant("", ROLL_SIX), result(ROLL_SIX, ""), tools=(DICE,), needs="tools"),
        "thought_before_results": EncodeCase(
            lambda kept: EngineCall(
                (ROLL, thought(kept, "Rolling.", ROLL_SIX), result(ROLL_SIX, "4")), (DICE,), ExecutionHints()
            ),
            frozenset({"tools"}),
        ),
        "thought_of_an_earlier_turn": EncodeCase(
            lambda kept: EngineCall(
                (
                    ROLL,
                    thought(kept, "Rolling.", ROLL_SIX),
                    result(ROLL_SIX, "4"),
                    assistant("A four."),
                    user("Again."),
                ),
                (DICE,),
                ExecutionHints(),
            ),
            frozenset({"tools"}),
        ),
        "schema": case(user("Describe Basel."), schema=SCHEMA, needs="schema"),
        "schema_streamed": case(user("Describe Basel."), schema=SCHEMA, needs="schema", stream=True),
        "schema_that_leaves_open": case(user("Describe Basel."), schema=OPEN_SCHEMA, needs="schema"),
        "schema_with_tools": case(
            user("Describe Basel."), schema=SCHEMA, tools=(DICE,), needs="schema tools schema_with_tools"
        ),
        "grammar": case(user("Is Basel a city?"), grammar=GRAMMAR, needs="grammar"),
    }
)
"""By the name of their goldens. In the kept examples the answer's text is `Rolling.` and its one call `call_1`."""
