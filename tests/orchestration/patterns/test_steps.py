"""Plan steps that ask no model: their results, their failures, and inputs of the wrong type."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import JsonValue

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.failures import Code
from portico.domain.journal.events import StepEnd, ValidationEnd
from portico.domain.lifecycle import State
from portico.domain.plan.steps import STEP_SPECS, StepType
from portico.orchestration.patterns.steps import STEP_PATTERNS
from portico.ports.tool import Tool, ToolContext, ToolError
from tests.support.harness import make_harness
from tests.support.plans import (
    SCHEMA,
    KeywordEngine,
    error_code_of,
    events_of,
    plan_request,
    run_plan,
    run_single_step,
    run_with_input,
    step_of,
)
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

CALCULATE = {"name": "calculate", "arguments": {"expression": "6*7"}}


def test_every_type_that_a_plan_may_have_has_what_runs_it() -> None:
    assert STEP_PATTERNS.keys() | {StepType.SUBPLAN} == STEP_SPECS.keys()


# tool


async def fails(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
    raise ToolError("refused by the other side")


async def sleeps(_arguments: Mapping[str, Any], context: ToolContext) -> str:
    await context.clock.sleep(60)
    return "slept"


def failing() -> list[Tool]:
    """Return a tool that fails, one that takes too long, and one that cannot run."""
    gone = FakeTool("gone")
    gone.unavailable_reason = "it is broken"
    send = FakeTool("send", fails, idempotent=False)
    return [send, FakeTool("sleep", sleeps, timeout=1), gone]


async def test_a_tool_is_called_without_any_model(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS)
    response, record = await run_plan(here, plan_request({"name": "sum", "type": "tool", "input": CALCULATE}))
    assert engine.calls == []
    assert (response.content, step_of(response).output) == ("42", "42")
    [call] = response.tool_calls_made
    assert (call.name, call.arguments, call.result, call.step_name) == (
        "calculate",
        CALCULATE["arguments"],
        "42",
        "sum",
    )
    kinds = {item.event.type for item in record.events if item.correlation.step_name == "sum"}
    assert kinds == {"step.start", "tool.start", "tool.end", "step.end"}


async def test_a_tool_is_called_as_an_output_says(clock: VirtualClock) -> None:
    response = await run_with_input(clock, CALCULATE, {"type": "tool"})
    assert response.content == "42"


@pytest.mark.parametrize(
    ("call", "code", "retryable"),
    [
        ({"name": "calculate", "arguments": {"expression": "1/0"}}, Code.TOOL_EXECUTION_FAILED, True),
        ({"name": "calculate", "arguments": {}}, Code.ORCHESTRATION_STEP_MISMATCH, False),
        ({"name": "send", "arguments": {}}, Code.TOOL_EXECUTION_FAILED, False),
        ({"name": "sleep", "arguments": {}}, Code.TOOL_TIMEOUT, True),
        ({"name": "gone", "arguments": {}}, Code.TOOL_UNAVAILABLE, True),
        ({"name": "unheard_of", "arguments": {}}, Code.TOOL_NOT_FOUND, False),
    ],
)
async def test_an_error_of_the_tool_is_the_steps_failure(
    clock: VirtualClock, call: dict[str, JsonValue], code: Code, retryable: bool
) -> None:
    first = {"type": "validate", "input": call, "schema": {}}
    here = make_harness(clock, KeywordEngine(clock), tools=[*BUILTIN_TOOLS, *failing()])
    response, _ = await run_plan(here, plan_request(first, {"type": "tool"}))
    assert response.state is State.ERROR
    error = step_of(response, 1).error
    assert error is not None
    assert (error.code, error.retryable) == (code, retryable)
    assert response.tool_calls_made[0].is_error
    assert response.tool_calls_made[0].result not in error.message


async def test_arguments_of_an_output_that_cannot_fit_the_tool_are_named_by_their_path(clock: VirtualClock) -> None:
    call: JsonValue = {"name": "roll_dice", "arguments": {"count": "two", "sides": 6}}
    response = await run_with_input(clock, call, {"type": "tool"})
    error = step_of(response, 1).error
    assert error is not None
    assert (error.code, error.retryable) == (Code.ORCHESTRATION_STEP_MISMATCH, False)
    assert "s1" in error.message
    assert error.details["violations"] == [
        {"path": "$.arguments.count", "message": 'the value is not of type "integer"'}
    ]


async def test_an_output_cannot_call_a_tool_that_the_request_does_not_name(clock: VirtualClock) -> None:
    steps = ({"type": "validate", "input": CALCULATE, "schema": {}}, {"type": "tool"})
    here = make_harness(clock, KeywordEngine(clock), tools=BUILTIN_TOOLS)
    response, _ = await run_plan(here, plan_request(*steps, tools=["roll_dice"]))
    assert error_code_of(step_of(response, 1)) is Code.TOOL_NOT_FOUND


# rerank

TEXTS: list[JsonValue] = ["nothing", "red wine", "a glass of red wine", "wine"]


async def test_rerank_puts_texts_and_chunks_in_order_and_keeps_them_as_they_are(clock: VirtualClock) -> None:
    chunks: list[JsonValue] = [
        {"source": f"doc {number}", "content": text, "score": 0.5} for number, text in enumerate(TEXTS)
    ]
    ranking = {"query": "a glass of red wine", "candidates": [TEXTS[1], *chunks], "top_k": 3}
    report = await run_single_step(clock, {"type": "rerank", "input": ranking})
    assert report.output == [chunks[2], TEXTS[1], chunks[1]]


@pytest.mark.parametrize(
    ("step", "inner", "kept"),
    [
        ({}, {}, 4),
        ({"top_k": 2}, {}, 2),
        ({"top_k": 2}, {"top_k": 3}, 3),
        ({"min_score": 0.5}, {}, 2),
        ({"min_score": 0.5}, {"min_score": 1.0}, 1),
        ({"min_score": 0.1, "top_k": 2}, {}, 2),
    ],
)
async def test_what_the_ranking_says_goes_before_what_the_step_says(
    clock: VirtualClock, step: dict[str, Any], inner: dict[str, Any], kept: int
) -> None:
    ranking = {"query": "glass of red wine", "candidates": TEXTS, **inner}
    report = await run_single_step(clock, {"type": "rerank", "input": ranking, **step})
    assert isinstance(report.output, list)
    assert len(report.output) == kept


async def test_rerank_refuses_more_text_than_it_could_look_at_in_time(clock: VirtualClock) -> None:
    ranking = {"query": "wine", "candidates": ["wine " * 99_999, "word"]}
    report = await run_single_step(clock, {"type": "rerank", "input": ranking})
    assert error_code_of(report) is Code.ORCHESTRATION_STEP_MISMATCH


# validate


@pytest.mark.parametrize(
    ("value", "step", "code"),
    [
        ({"size": "large"}, {"schema": SCHEMA}, None),
        ({"size": "LARGE"}, {"schema": SCHEMA}, Code.CONSTRAINT_ENUM_UNRECOGNIZED),
        ({}, {"schema": SCHEMA}, Code.CONSTRAINT_SCHEMA_INVALID),
        ("a text", {"schema": {"type": "string", "minLength": 3}}, None),
        ('{"size":"large"}', {"schema": SCHEMA}, Code.CONSTRAINT_SCHEMA_INVALID),
        ("```json\n{}\n```", {"schema": {"type": "string"}}, None),
        ([1, 2], {"rules": [{"type": "length", "path": "$", "max": 1}]}, Code.VALIDATION_RULE_FAILED),
        ({"a": [1, 2]}, {"rules": [{"type": "compare", "path": "$.a[0]", "operator": "lt", "other": "$.a[1]"}]}, None),
        ("", {"rules": ["not_empty"]}, Code.VALIDATION_RULE_FAILED),
        ("fine", {"rules": ["not_empty"]}, None),
        (7, {"schema": {"type": "integer"}, "rules": [{"type": "regex", "pattern": "^7$"}]}, None),
        (False, {"schema": {"type": "boolean"}}, None),
    ],
)
async def test_validate_gives_the_value_as_it_is_or_says_what_is_wrong_with_it(
    clock: VirtualClock, value: JsonValue, step: dict[str, Any], code: Code | None
) -> None:
    report = await run_single_step(clock, {"type": "validate", "input": value, **step})
    assert error_code_of(report) is code
    assert report.output == (value if code is None else None)


async def test_validate_tells_its_verdict_with_the_name_of_the_step(clock: VirtualClock) -> None:
    request = plan_request({"name": "check", "type": "validate", "input": 1, "schema": {"type": "string"}})
    _, record = await run_plan(make_harness(clock, KeywordEngine(clock)), request)
    [verdict] = [item for item in record.events if isinstance(item.event, ValidationEnd)]
    assert (verdict.event.valid, verdict.correlation.step_name) == (False, "check")


# types that do not meet


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ([1], "infer", "messages"),
        (7, "infer", "messages"),
        ({"messages": []}, "infer", "messages"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "infer", "messages"),
        ({"messages": [{"role": "user", "content": "x"}], "tool": "x"}, "infer", "messages"),
        ("calculate", "tool", "name and arguments"),
        ({"name": "calculate"}, "tool", "name and arguments"),
        ({"name": "no such name!", "arguments": {}}, "tool", "name and arguments"),
        ("texts", "rerank", "query, candidates"),
        ({"query": "x", "candidates": [1]}, "rerank", "query, candidates"),
        ({"query": "x", "candidates": [{"text": "y"}]}, "rerank", "query, candidates"),
        ({"query": "x", "candidates": [], "top_k": 0}, "rerank", "query, candidates"),
        ([1], "redundant", "messages"),
    ],
)
async def test_an_output_that_does_not_fit_names_the_step_and_what_was_expected(
    clock: VirtualClock, value: JsonValue, type_: str, expected: str
) -> None:
    engine = KeywordEngine(clock, request={"text": json.dumps(value)})
    second = {"name": "second", "type": type_} | ({"schema": SCHEMA} if type_ == "redundant" else {})
    response, record = await run_plan(make_harness(clock, engine), plan_request({"schema": {}}, second))
    error = step_of(response, 1).error
    assert error is not None
    assert error.code is Code.ORCHESTRATION_STEP_MISMATCH
    assert error.details["step"] == "second"
    assert expected in error.details["expected"]
    assert response.error == error
    assert len(events_of(record, StepEnd)) == 2
