"""The rehearsal engine's plans: always allowed by the schema and the policy, and made from the request."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.engines.rehearsal.engine import RehearsalEngine
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.models.format_enforcement import apply_enforcement, submitted_reply
from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import Prompt, PromptCall, violations_of
from portico.capabilities.prompting.prompts.planning import (
    STEP_TYPE_DESCRIPTIONS,
    HistoryMessage,
    PlanGenerationInput,
    PlanGenerationOutput,
    PlannableTool,
)
from portico.capabilities.prompting.registry import default_registry
from portico.domain.contract.constrained_types import FormatEnforcement
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall, Reply
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.plan.plan import validate_plan
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.plan.steps import STEP_SPECS
from tests.support.engine_calls import RecordedProgress, profile
from tests.support.virtual_time import VirtualClock

TOOLS = tuple(
    PlannableTool(name=each.name, description=each.description, parameters=dict(each.parameters))
    for each in (tool.definition() for tool in BUILTIN_TOOLS)
)
TYPES = tuple(STEP_SPECS)


def prompted(request: str, types: Sequence[str] = TYPES, **more: Any) -> PromptCall[PlanGenerationOutput]:
    members = {
        "tools": TOOLS,
        "max_steps": 50,
        "step_types": {name: STEP_TYPE_DESCRIPTIONS[name] for name in types},
        **more,
    }
    given = PlanGenerationInput.model_validate({"request": request, **members})
    return PromptCall(PromptId.PLAN_GENERATION_USER, given, PlanGenerationOutput)


async def answered(
    question: PromptCall[PlanGenerationOutput], way: FormatEnforcement = FormatEnforcement.SCHEMA
) -> Reply:
    engine = RehearsalEngine(profile("rehearsal"), VirtualClock())
    call = EngineCall(question.messages, (), ExecutionHints(), question.response_format.schema)
    return submitted_reply(
        await engine.attempt(apply_enforcement(call, way, default_registry()), RecordedProgress(), stream=False), way
    )


async def planned(request: str, types: Sequence[str] = TYPES, **more: Any) -> list[dict[str, Any]]:
    """The steps, as far as they say something."""
    question = prompted(request, types, **more)
    made = question.parse((await answered(question)).text)
    return [step.model_dump(exclude_none=True) for step in made.steps]


async def test_a_tool_that_is_meant_is_called_and_its_result_answered() -> None:
    call = {"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}
    assert await planned("Roll 2 dice with 6 sides") == [
        {"name": "call", "type": "tool", "input": call},
        {"name": "answer", "type": "infer"},
    ]
    assert await planned("Roll 2 dice with 6 sides", max_steps=1) == [{"name": "call", "type": "tool", "input": call}]


async def test_a_request_of_one_part_is_asked_and_one_of_two_in_two_steps() -> None:
    assert await planned("Tell me a story") == [{"name": "answer", "type": "infer", "input": "Tell me a story"}]
    two = [("first", "Tell me a story"), ("second", "Make it short")]
    for text in ("Tell me a story. Make it short", "Tell me a story, then Make it short"):
        steps = await planned(text)
        assert [(step["name"], step["input"]) for step in steps] == two
    assert len(await planned("One. Two. Three. Four.")) == 2
    assert len(await planned("One. Two", max_steps=1)) == 1


async def test_without_a_request_there_is_a_plan_too() -> None:
    assert await planned("") == [{"name": "answer", "type": "infer", "input": ""}]


async def test_directives_are_for_the_planner_and_not_planned() -> None:
    assert await planned("[[slow:1]] Tell me a story") == await planned("Tell me a story")


async def test_the_same_request_gives_the_same_plan_whether_it_is_submitted_or_written() -> None:
    question = prompted("Roll 2d6")
    written, submitted = await answered(question), await answered(question, FormatEnforcement.SUBMIT)
    assert orjson.loads(written.text) == orjson.loads(submitted.text)
    assert submitted.tool_calls == ()


async def test_a_plan_that_was_refused_is_made_again() -> None:
    question = prompted("Tell me a story")
    engine = RehearsalEngine(profile("rehearsal"), VirtualClock())
    first = await answered(question)
    members = Prompt.of_violations(violations_of(_refusal(question))).messages(default_registry())
    call = EngineCall(
        [*question.messages, first.message("x"), *members], (), ExecutionHints(), question.response_format.schema
    )
    assert (await engine.attempt(call, RecordedProgress(), stream=False)).text == first.text


def _refusal(question: PromptCall[PlanGenerationOutput]) -> Any:
    made = question.parse('{"steps": [{"name": "a", "type": "zork"}]}')
    refusal = validate_plan(parse_plan(made.steps), ANYTHING)
    assert refusal is not None
    return refusal


ANYTHING = EffectivePlanPolicy(50, frozenset(STEP_SPECS), False, None)
REQUESTS = st.text(max_size=60) | st.lists(
    st.sampled_from(["roll", "2", "dice", "6 sides", "calculate", "17*3", ". ", "then ", '"x"', "Europe/Berlin", "?"])
).map(" ".join)


@pytest.mark.parametrize(
    "tools",
    [
        "no JSON",
        "[1]",
        '[{"name": "x", "description": "roll", "parameters": {"properties": 1}}]',
        '[{"name": "x", "description": "roll", "parameters": {"required": "all", "properties": {"x": 1}}}]',
    ],
)
async def test_a_tool_list_that_is_malformed_leads_to_a_plan_all_the_same(tools: str) -> None:
    said = f"<tools-00000000>\n{tools}\n</tools-00000000>\n<request-00000000>\nroll x\n</request-00000000>"
    for types in (["infer", "tool"], ["tool"]):
        form = prompted("x", types).response_format.schema
        call = EngineCall([Message(role="user", content=said)], (), ExecutionHints(), form)
        reply = await RehearsalEngine(profile("rehearsal"), VirtualClock()).attempt(
            call, RecordedProgress(), stream=False
        )
        assert {step["type"] for step in orjson.loads(reply.text)["steps"]} <= set(types)


@given(
    request=REQUESTS,
    types=st.sets(st.sampled_from(TYPES), min_size=1),
    most=st.integers(1, 50),
    offered=st.sets(st.sampled_from([tool.name for tool in TOOLS])),
    history=st.lists(st.builds(HistoryMessage, role=st.just("user"), text=st.text(max_size=20)), max_size=2),
)
async def test_its_plans_always_pass_the_policy(
    request: str, types: set[str], most: int, offered: set[str], history: list[HistoryMessage]
) -> None:
    named = [name for name in TYPES if name in types and (name != "tool" or offered)]
    if not named:
        return
    tools = tuple(tool for tool in TOOLS if tool.name in offered)
    question = prompted(request, named, max_steps=most, tools=tools, history=tuple(history), require_linear=True)
    made = question.parse((await answered(question)).text)
    policy = EffectivePlanPolicy(most, frozenset(named), True, None, attempts=1, replicas=3, tools=frozenset(offered))
    assert validate_plan(parse_plan(made.steps), policy) is None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"title": "PlanGenerationOutput"},
        {"title": "PlanGenerationOutput", "properties": {"steps": True}, "$defs": {"PlanStep": True}},
        PlanGenerationOutput.model_json_schema(),
        dict(prompted("x").response_format.schema or {}) | {"title": "Another"},
    ],
)
async def test_another_schema_is_not_taken_for_one_of_plans(schema: dict[str, Any]) -> None:
    engine = RehearsalEngine(profile("rehearsal"), VirtualClock())
    call = EngineCall(prompted("Roll 2d6").messages, (), ExecutionHints(), schema)
    text = (await engine.attempt(call, RecordedProgress(), stream=False)).text
    assert "rehearsal engine" not in text
