"""Anthropic's Messages API: what is asked, in Anthropic's own types."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from pydantic import TypeAdapter

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.domain.contract.messages import Message, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineProfile
from tests.adapters.engines.cases import DICE, HELLO, IMAGE, ROLL, ROLL_SIX, assistant, result, system, thought, user
from tests.adapters.engines.engine_calls import call, profile

THINK: Mapping[str, Any] = {"type": "enabled", "budget_tokens": 2048}
ADAPTIVE: Mapping[str, Any] = {"type": "adaptive"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
SEALED = {"type": "redacted_thinking", "data": "c2VhbA=="}
RESULT = result(ROLL_SIX, "4")
OLD, BOTH, NEW, BOUND = "claude-3-7-sonnet-latest", "claude-haiku-4-5", "claude-opus-4-8", "claude-opus-5-5"


def valid(kind: Any, body: dict[str, Any]) -> dict[str, Any]:
    """The body, once it was found to be JSON and of Anthropic's type all the way down."""
    orjson.dumps(body)
    exhaust(adapter_of(kind).validate_python(body))
    return body


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def exhaust(value: Any) -> None:
    """Looks at everything within: what is only iterable is validated when it is looked at."""
    if isinstance(value, Mapping):
        exhaust(value.values())
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for member in value:
            exhaust(member)


def encoded(
    asked: EngineCall, *, model: str = BOTH, stream: bool = False, options: frozenset[str] = frozenset()
) -> dict[str, Any]:
    sent = AnthropicDialect().encode(asked, profile(model, options), stream=stream)
    assert sent.path == "/v1/messages"
    return valid(MessageCreateParamsStreaming if stream else MessageCreateParamsNonStreaming, sent.body)


def turns(*messages: Message, model: str = BOTH) -> list[tuple[str, Any]]:
    """Return pairs of role and blocks; a turn of one text is that text."""
    return [
        (turn["role"], content[0]["text"] if [*content[0]] == ["type", "text"] and len(content) == 1 else content)
        for turn in encoded(call(messages), model=model)["messages"]
        for content in [turn["content"]]
    ]


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def asked_for(call_id: str, name: str = "f") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments={})


def hinted(**hints: Any) -> EngineCall:
    return call(hints=ExecutionHints(**hints))


def thinking(option: Any = THINK, messages: Sequence[Message] = (HELLO,), **asked: Any) -> EngineCall:
    tools, hints = asked.pop("tools", ()), ExecutionHints(options={"thinking": option}, **asked)
    return call(messages, tools, hints)


def thought_of(asked: EngineCall, model: str = BOTH) -> Any:
    """Return the thinking of a request."""
    return encoded(asked, model=model, options=frozenset({"thinking"})).get("thinking")


def test_a_plain_request_holds_what_is_obligatory_and_nothing_else():
    assert encoded(call()) == {
        "model": BOTH,
        "max_tokens": 4_096,
        "messages": [{"role": "user", "content": [text("Hello")]}],
        "stream": False,
    }
    assert encoded(call(), stream=True)["stream"] is True


@pytest.mark.parametrize(("reserve", "most"), [(8_000, 8_000), (0, 4_096)])
def test_an_unhinted_answer_may_be_as_long_as_what_is_kept_for_it(reserve: int, most: int):
    asked = EngineProfile("primary", BOTH, "anthropic", 200_000, reserve, frozenset({"thinking"}))
    assert AnthropicDialect().encode(call(), asked, stream=False).body["max_tokens"] == most
    assert AnthropicDialect().encode(thinking(), asked, stream=False).body["max_tokens"] == most + 2048
    assert AnthropicDialect().encode(hinted(max_tokens=9), asked, stream=False).body["max_tokens"] == 9


def test_a_prompt_that_is_read_again_is_marked_behind_the_system_prompt_and_at_its_end():
    mark = {"type": "ephemeral"}
    asked = replace(call([system("Be brief."), user("Hello")], tools=[DICE]), cache_key="0" * 32)
    body = encoded(asked)
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert body["cache_control"] == mark
    assert "cache_control" not in str(body["messages"]) + str(body["tools"])
    assert "system" not in encoded(replace(call([user("Hello")]), cache_key="0" * 32))


def test_opening_system_prompts_are_one_text():
    body = encoded(call((system("Be brief."), system(" "), system("Be polite."), HELLO)))
    assert body["system"] == "Be brief.\n\nBe polite."
    assert body["messages"] == [{"role": "user", "content": [text("Hello")]}]
    assert "system" not in encoded(call((system(" "), HELLO)))


CORRECTED = (system("Be brief."), HELLO, assistant("Hi."), system("In German."), user("Again."), assistant("Hallo."))


@pytest.mark.parametrize("model", [BOTH, OLD, "claude-opus-4-7", "claude-sonnet-5", "kimi-k2"])
def test_a_later_system_prompt_is_marked_text_of_the_user_where_the_model_has_no_ear_for_it(model: str):
    assert turns(*CORRECTED, model=model) == [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", [text("<system>\nIn German.\n</system>"), text("Again.")]),
        ("assistant", "Hallo."),
    ]


@pytest.mark.parametrize(
    "model", [NEW, "claude-opus-5", BOUND, "claude-fable-5-1", "claude-mythos-5", "claude-sonnet-5-5"]
)
def test_a_later_system_prompt_stands_at_the_end_of_the_users_turn_where_the_model_honours_it(model: str):
    assert turns(*CORRECTED, model=model)[2:] == [("user", "Again."), ("system", "In German."), ("assistant", "Hallo.")]
    assert turns(HELLO, system("In German."), model=model) == [("user", "Hello"), ("system", "In German.")]


def test_system_prompts_in_a_row_are_one_message_of_that_role():
    sent = turns(HELLO, system("In German."), user("Again."), system(" "), system("In verse."), model=NEW)
    assert sent == [("user", [text("Hello"), text("Again.")]), ("system", [text("In German."), text("In verse.")])]


def test_a_system_prompt_that_no_user_spoke_before_is_marked_text_of_the_user():
    sent = turns(HELLO, assistant("Hi."), system("In German."), assistant("Hallo."), system("In verse."), model=NEW)
    assert sent == [
        ("user", "Hello"),
        ("assistant", "Hi."),
        ("user", "<system>\nIn German.\n</system>"),
        ("assistant", "Hallo."),
        ("user", "<system>\nIn verse.\n</system>"),
    ]


def test_messages_of_one_side_in_a_row_are_one_turn():
    assert turns(HELLO, user("Again."), assistant("Hi."), assistant("There.")) == [
        ("user", [text("Hello"), text("Again.")]),
        ("assistant", [text("Hi."), text("There.")]),
    ]


def test_images_are_sources_in_base64():
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE.data}
    [(_, content)] = turns(user([TextPart(type="text", text="What?"), IMAGE, TextPart(type="text", text=" ")]))
    assert content == [text("What?"), {"type": "image", "source": source}]


def test_results_of_one_round_are_one_turn_and_what_the_user_adds_stands_behind():
    first, second = asked_for("a"), asked_for("b", "g")
    sent = turns(ROLL, assistant("Both.", first, second), result(first, "1"), result(second, "2"), user("Thanks."))
    assert sent[1:] == [
        (
            "assistant",
            [
                text("Both."),
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "tool_use", "id": "b", "name": "g", "input": {}},
            ],
        ),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                text("Thanks."),
            ],
        ),
    ]


def test_a_result_of_parts_keeps_them_and_an_empty_one_has_no_content():
    parts = Message(role="tool", content=[TextPart(type="text", text="Seen:"), IMAGE], tool_call_id="a")
    sent = turns(ROLL, assistant("", asked_for("a"), asked_for("b")), parts, result(asked_for("b"), " \n"))
    first, second = sent[-1][1]
    assert [block["type"] for block in first["content"]] == ["text", "image"]
    assert second == {"type": "tool_result", "tool_use_id": "b"}


@pytest.mark.parametrize("blank", ["", " \n\t", [], [TextPart(type="text", text=" ")]])
def test_blank_messages_are_not_sent(blank: Any):
    silent = (user(blank), Message(role="assistant", content=blank))
    assert turns(*silent, HELLO, *silent, user("Again.")) == [("user", [text("Hello"), text("Again.")])]


def ids(*messages: Message) -> list[str]:
    """Return the ids of calls and results as they are sent, in order."""
    blocks = [block for turn in encoded(call(messages))["messages"] for block in turn["content"]]
    return [block.get("id") or block["tool_use_id"] for block in blocks if block["type"] != "text"]


def test_ids_of_other_providers_are_sent_in_the_characters_the_api_takes():
    odd, other = asked_for("functions.roll:0"), asked_for("functions.roll|0")
    sent = ids(ROLL, assistant("", odd, other), result(odd, "1"), result(other, "2"))
    assert sent[:2] == sent[2:]
    assert len(set(sent)) == 2
    assert all(char.isascii() and (char.isalnum() or char in "_-") for call_id in sent for char in call_id)
    assert sent == ids(ROLL, assistant("", odd, other), result(odd, "1"), result(other, "2"))


def test_an_id_that_is_repeated_in_a_later_turn_is_sent_as_another_one():
    first = (ROLL, assistant("", asked_for("call_0")), result(asked_for("call_0"), "1"))
    second = (assistant("", asked_for("call_0"), asked_for("call_0_1")), result(asked_for("call_0_1"), "2"))
    sent = ids(*first, *second, result(asked_for("call_0"), "3"))
    assert sent[0] == sent[1] == "call_0"
    assert len({sent[0], sent[2], sent[3]}) == 3
    assert sent[2:] == [sent[2], sent[3], sent[3], sent[2]]


@pytest.mark.parametrize(("name", "sent"), [("roll_dice", "roll_dice"), ("a.b c/ü", "a_b_c__"), ("f" * 256, "f" * 128)])
def test_an_invented_name_is_sent_in_the_characters_the_api_takes(name: str, sent: str):
    built = turns(ROLL, assistant("", asked_for("a", name)), result(asked_for("a"), "no such tool"))
    assert built[1][1][0]["name"] == sent


def test_tools_are_offered_with_a_schema_of_an_object():
    body = encoded(call(tools=(DICE, ToolDefinition("free", "", {}))))
    assert body["tools"] == [
        {"name": DICE.name, "description": DICE.description, "input_schema": DICE.parameters},
        {"name": "free", "description": "", "input_schema": {"type": "object"}},
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        (NamedTool(name="roll_dice"), {"type": "tool", "name": "roll_dice"}),
    ],
)
def test_a_tool_choice_is_sent_with_tools_and_only_then(choice: str | NamedTool, sent: object):
    hints = ExecutionHints(tool_choice=choice)
    assert encoded(call(tools=(DICE,), hints=hints))["tool_choice"] == sent
    assert "tool_choice" not in encoded(call(hints=hints))


def test_hints_are_sent_as_given_zero_is_not_absent_and_a_seed_has_no_name():
    body = encoded(hinted(temperature=0, top_p=0.5, stop=["END"], seed=0, max_tokens=9), model=OLD)
    assert {key: value for key, value in body.items() if key not in {"model", "messages", "stream"}} == {
        "temperature": 0,
        "top_p": 0.5,
        "stop_sequences": ["END"],
        "max_tokens": 9,
    }


def test_what_is_out_of_range_is_passed_on_for_the_api_to_refuse():
    assert encoded(hinted(temperature=1.5))["temperature"] == 1.5


@pytest.mark.parametrize(
    ("stop", "sent"), [("END", ["END"]), (["\n", "END", " "], ["END"]), ("\n\n", None), (["\n"], None)]
)
def test_stop_texts_of_blanks_are_left_out(stop: Any, sent: Any):
    assert encoded(hinted(stop=stop)).get("stop_sequences") == sent


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        (OLD, {"temperature", "top_p"}),
        ("claude-sonnet-4-20250514", {"temperature", "top_p"}),
        ("minimax-m2", {"temperature", "top_p"}),
        ("claude-opus-4-1-20250805", {"temperature"}),
        (BOTH, {"temperature"}),
        ("anthropic/claude-sonnet-4-5", {"temperature"}),
        ("claude-opus-4-6", {"temperature"}),
        ("claude-opus-4-7", set()),
        (NEW, set()),
        ("claude-sonnet-5", set()),
        ("claude-haiku-5-5", set()),
    ],
)
def test_sampling_is_left_out_where_the_model_would_refuse_it(model: str, sent: set[str]):
    assert encoded(hinted(temperature=0.3, top_p=0.9), model=model).keys() & {"temperature", "top_p"} == sent


def test_top_p_alone_is_sent_where_both_would_be_refused():
    assert encoded(hinted(top_p=0.9))["top_p"] == 0.9


def test_options_pass_when_the_engine_lists_them_and_never_replace_what_is_ours():
    options = {"top_k": 3, "service_tier": "auto", "model": "other", "max_tokens": 1, "messages": [], "stream": True}
    body = encoded(hinted(options=options), options=frozenset(options) - {"service_tier"})
    assert body == encoded(call()) | {"top_k": 3}


@pytest.mark.parametrize("option", [THINK, ADAPTIVE, {"type": "disabled"}])
def test_thinking_passes_when_the_engine_lists_it(option: Any):
    assert thought_of(thinking(option)) == option
    assert "thinking" not in encoded(thinking(option))


def test_sampling_gives_way_to_thinking_and_stays_when_it_is_disabled():
    listed = frozenset({"thinking"})
    for option in (THINK, ADAPTIVE):
        assert "temperature" not in encoded(thinking(option, temperature=0.3), options=listed)
        assert encoded(thinking(option, temperature=0.3, top_p=0.95), options=listed)["top_p"] == 0.95
        assert "top_p" not in encoded(thinking(option, top_p=0.9), options=listed)
    assert encoded(thinking({"type": "disabled"}, temperature=0.3), options=listed)["temperature"] == 0.3


def test_thinking_gives_way_to_a_forced_call():
    for option in (THINK, ADAPTIVE):
        assert thought_of(thinking(option, tools=(DICE,), tool_choice="required")) is None
        assert thought_of(thinking(option, tools=(DICE,), tool_choice=NamedTool(name="roll_dice"))) is None
        assert thought_of(thinking(option, tools=(DICE,), tool_choice="auto")) == option
        assert thought_of(thinking(option, tool_choice="required")) == option
    body = encoded(
        thinking(tools=(DICE,), tool_choice="required", temperature=0.3), options=frozenset({"thinking", "temperature"})
    )
    assert (body["temperature"], body["max_tokens"]) == (0.3, 4_096)


SIX_AGAIN = ToolCall(id="call_2", name="roll_dice", arguments={"sides": 6})


@pytest.mark.parametrize(
    ("thinks", "messages"),
    [
        (True, (ROLL, thought([SIGNED], "", ROLL_SIX), RESULT)),
        (True, (ROLL, thought([SEALED], "", ROLL_SIX), RESULT)),
        (False, (ROLL, assistant("", ROLL_SIX), RESULT)),
        (False, (ROLL, assistant("Rolling.", ROLL_SIX), RESULT, user("Now?"))),
        (True, (ROLL, thought([SIGNED], "", ROLL_SIX), RESULT, assistant("", SIX_AGAIN), result(SIX_AGAIN, "5"))),
        (False, (ROLL, assistant("", ROLL_SIX), RESULT, thought([SIGNED], "", SIX_AGAIN), result(SIX_AGAIN, "5"))),
        (True, (ROLL, assistant("", ROLL_SIX), RESULT, assistant("A four."), user("Again."))),
        (False, (HELLO, assistant("Hi."))),
    ],
)
def test_a_budget_to_think_is_left_out_where_the_answer_that_goes_on_began_without_a_thought(
    thinks: bool, messages: Sequence[Message]
):
    assert thought_of(thinking(THINK, messages)) == (THINK if thinks else None)
    assert thought_of(thinking(ADAPTIVE, messages)) == ADAPTIVE


@pytest.mark.parametrize("strange", ["on", 3, None, [], {}, {"type": ["enabled"]}, {"budget_tokens": "many"}])
def test_an_option_of_a_strange_shape_is_passed_on_for_the_api_to_refuse(strange: Any):
    options = {"thinking": strange, "tool_choice": strange, "output_config": strange}
    sent = AnthropicDialect().encode(hinted(options=options), profile(BOTH, frozenset(options)), stream=False).body
    assert {name: sent[name] for name in options} == options
    schema = EngineCall((HELLO,), (), ExecutionHints(options=options), schema={"type": "string"})
    assert (
        "format"
        in AnthropicDialect().encode(schema, profile(BOTH, frozenset(options)), stream=False).body["output_config"]
    )


def said_again(*messages: Message, model: str = BOTH) -> list[str]:
    """Return the thoughts, texts and calls of all answers in short."""
    short = {"thinking": "thinking", "redacted_thinking": "data", "text": "text", "tool_use": "id"}
    answers = [turn for turn in encoded(call(messages), model=model)["messages"] if turn["role"] == "assistant"]
    blocks = [block for answer in answers for block in answer["content"]]
    assert not [block for block in blocks if "index" in block]
    return [block[short[block["type"]]] for block in blocks]


def at(index: int, thinking: str) -> dict[str, Any]:
    return {**SIGNED, "thinking": thinking, "index": index}


@pytest.mark.parametrize(
    ("kept", "said", "sent"),
    [
        ([SIGNED, SEALED], "Rolling.", ["hm", "c2VhbA==", "Rolling.", "call_1"]),
        ([SIGNED, {**SEALED, "index": 1}], "Rolling.", ["hm", "c2VhbA==", "Rolling.", "call_1"]),
        ([SIGNED, at(2, "so")], "Rolling.", ["hm", "Rolling.", "so", "call_1"]),
        ([SIGNED, at(2, "so")], "", ["hm", "call_1", "so"]),
        ([SIGNED, at(2, "so")], "\n\n", ["hm", "so", "call_1"]),
        ([at(1, "so")], "Rolling.", ["Rolling.", "so", "call_1"]),
        ([at(1, "so")], "\n\n", ["so", "call_1"]),
        ([{"reasoning_content": "hm"}, {"call": "call_1", "signature": "c2ln"}], "Rolling.", ["Rolling.", "call_1"]),
    ],
)
def test_stored_thoughts_are_sent_back_in_their_places(kept: list[dict[str, Any]], said: str, sent: list[str]):
    messages = (ROLL, thought(kept, said, ROLL_SIX), RESULT)
    if sent[-1] == "call_1":
        assert said_again(*messages) == sent
    else:
        second = (SIX_AGAIN, result(SIX_AGAIN, "5"))
        answer = (ROLL, thought(kept, said, ROLL_SIX, second[0]), RESULT, second[1])
        assert said_again(*answer) == [*sent, "call_2"]


def test_a_thought_is_sent_back_unchanged_and_never_as_the_end_of_an_answer():
    body = encoded(call((ROLL, thought([SIGNED, SEALED], "A four."), user("Again."))))
    assert body["messages"][1]["content"][:2] == [SIGNED, SEALED]
    assert turns(ROLL, thought([SIGNED], ""), user("Well?")) == [("user", [text("Roll a die."), text("Well?")])]


SPOKEN = (ROLL, thought([SIGNED], "", ROLL_SIX), RESULT, thought([SIGNED], "A four."), user("Again."))
GOES_ON = (*SPOKEN, thought([SEALED], "", SIX_AGAIN), result(SIX_AGAIN, "5"))


@pytest.mark.parametrize("model", [BOTH, NEW, "claude-opus-5", "claude-sonnet-5", "claude-fable-5", "kimi-k2"])
def test_thoughts_of_earlier_answers_are_sent_back(model: str):
    assert said_again(*GOES_ON, model=model) == ["hm", "call_1", "hm", "A four.", "c2VhbA==", "call_2"]


@pytest.mark.parametrize("model", [BOUND, "claude-fable-5-1", "claude-mythos-5-2", "claude-haiku-5-5", "claude-opus-6"])
def test_a_model_that_binds_thoughts_gets_those_of_the_answer_in_progress_only(model: str):
    assert said_again(*GOES_ON, model=model) == ["call_1", "A four.", "c2VhbA==", "call_2"]
    assert said_again(*SPOKEN, model=model) == ["call_1", "A four."]
    assert said_again(*SPOKEN[:3], model=model) == ["hm", "call_1"]


def test_the_key_is_a_header():
    assert AnthropicDialect().headers("secret") == {"x-api-key": "secret", "anthropic-version": "2023-06-01"}
    assert AnthropicDialect().headers(None) == {"anthropic-version": "2023-06-01"}
