"""Plan steps that ask a model: its messages, its tools, and the contract of its answer."""

from typing import Any

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.failures import Code
from portico.domain.journal.events import StepEnd, StepStart, ValidationEnd, VoteDecided
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
from tests.support.virtual_time import VirtualClock

LARGE, SMALL, PROSE = {"text": '{"size":"large"}'}, {"text": '{"size":"small"}'}, {"text": "no JSON at all"}
CALCULATE = {"name": "calculate", "arguments": {"expression": "6*7"}}


# infer


async def test_infer_asks_behind_what_the_system_says_and_nothing_else_that_was_said(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    said = [("system", "be brief"), ("user", "first"), ("assistant", "yes"), ("user", "last")]
    messages = [{"role": role, "content": text} for role, text in said]
    conversation = {"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]}
    conversation["messages"].append({"role": "user", "content": "d"})
    request = plan_request({"input": "a"}, {"input": conversation}, {"depends_on": []}, messages=messages)
    await run_plan(make_harness(clock, engine), request)
    assert [[message.text for message in call.messages] for call in engine.calls] == [
        ["be brief", "a"],
        ["be brief", "last"],
        ["be brief", "b", "c", "d"],
    ]


async def test_a_first_step_without_input_sees_the_images_of_the_request(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    image = {"type": "image", "media_type": "image/png", "data": "AAAA"}
    said = {"role": "user", "content": [{"type": "text", "text": "what is it?"}, image]}
    await run_plan(make_harness(clock, engine), plan_request({}, {"input": "another"}, messages=[said]))
    assert [len(call.messages[-1].content) for call in engine.calls] == [2, len("another")]


async def test_infer_with_a_schema_gives_the_value(clock: VirtualClock) -> None:
    for step in (
        {"schema": SCHEMA},
        {"input": {"messages": [{"role": "user", "content": "request"}], "schema": SCHEMA}},
    ):
        report = await run_single_step(clock, step, KeywordEngine(clock, request=LARGE))
        assert (report.status, report.output) == ("completed", {"size": "large"})


async def test_a_schema_of_the_input_goes_before_that_of_the_step(clock: VirtualClock) -> None:
    asked = {"messages": [{"role": "user", "content": "request"}], "schema": SCHEMA}
    report = await run_single_step(
        clock, {"input": asked, "schema": {"type": "integer"}}, KeywordEngine(clock, request=LARGE)
    )
    assert report.output == {"size": "large"}


async def test_null_is_a_value_where_the_schema_has_it(clock: VirtualClock) -> None:
    report = await run_single_step(clock, {"schema": {"type": "null"}}, KeywordEngine(clock, request={"text": "null"}))
    assert (report.status, report.output) == ("completed", None)


async def test_infer_asks_again_within_its_attempts_and_each_is_an_attempt_of_the_step(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, request=PROSE | {"delay": 1}, Your=LARGE | {"delay": 2})
    here = make_harness(clock, engine, attempts=3)
    response, record = await run_plan(here, plan_request({"schema": SCHEMA, "attempts": 2}))
    assert step_of(response).output == {"size": "large"}
    attempts = [(event.attempt, event.valid) for event in events_of(record, ValidationEnd)]
    assert attempts == [(1, False), (2, True)]
    assert [event.attempt for event in events_of(record, StepStart)] == [1, 2]
    assert [(end.attempt, end.status, end.error_code, end.duration_ms) for end in events_of(record, StepEnd)] == [
        (1, "failed", Code.CONSTRAINT_JSON_INVALID, 1000),
        (2, "completed", None, 2000),
    ]
    states = [item.event.to_state for item in record.events if item.event.type == "lifecycle.transition"]
    assert states.count("VALIDATE") == 1


async def test_a_step_ends_after_the_last_of_its_attempts(clock: VirtualClock) -> None:
    here = make_harness(clock, KeywordEngine(clock, request=PROSE, Your=PROSE), attempts=5)
    response, record = await run_plan(here, plan_request({"schema": SCHEMA, "attempts": 2}))
    assert error_code_of(step_of(response)) is Code.CONSTRAINT_JSON_INVALID
    assert [end.status for end in events_of(record, StepEnd)] == ["failed", "failed"]


async def test_infer_is_held_to_rules_without_a_schema_too(clock: VirtualClock) -> None:
    rules = [{"type": "regex", "pattern": "^yes"}]
    engine = KeywordEngine(clock, request={"text": "no"}, Your={"text": "yes, indeed"})
    response, record = await run_plan(make_harness(clock, engine, attempts=2), plan_request({"rules": rules}))
    assert (step_of(response).output, response.structured_output) == ("yes, indeed", None)
    assert [event.valid for event in events_of(record, ValidationEnd)] == [False, True]


@pytest.mark.parametrize(
    ("requested", "step", "offered"),
    [
        (None, {}, 0),
        (None, {"tools": ["calculate"]}, 1),
        (["calculate", "roll_dice"], {}, 2),
        (["calculate", "roll_dice"], {"tools": []}, 0),
        (["calculate", "roll_dice"], {"tools": ["roll_dice"]}, 1),
        ([], {}, 0),
    ],
)
async def test_infer_is_offered_what_the_step_names_else_what_the_request_names(
    clock: VirtualClock, requested: list[str] | None, step: dict[str, Any], offered: int
) -> None:
    engine = KeywordEngine(clock)
    await run_single_step(clock, step, engine, tools=requested)
    assert [len(call.tools) for call in engine.calls] == [offered]


async def test_tools_named_in_the_input_go_before_those_of_the_step(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], "tools": ["calculate"]}
    await run_single_step(clock, {"input": asked, "tools": ["roll_dice", "current_time"]}, engine)
    assert [[each.name for each in call.tools] for call in engine.calls] == [["calculate"]]


async def test_a_step_calls_tools_and_its_calls_carry_its_name(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, request=[{"tool_calls": [CALCULATE]}, {"text": "it is 42"}])
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS)
    response, _ = await run_plan(here, plan_request({"name": "sum", "tools": ["calculate"]}))
    assert step_of(response).output == "it is 42"
    assert [(call.name, call.result, call.step_name) for call in response.tool_calls_made] == [
        ("calculate", "42", "sum")
    ]


async def test_an_output_cannot_bring_tools_that_the_request_does_not_name(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    asked = {"messages": [{"role": "user", "content": "a"}], "tools": ["calculate", "roll_dice", "unheard_of"]}
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS)
    steps = ({"type": "validate", "input": asked, "schema": {}}, {})
    await run_plan(here, plan_request(*steps, tools=["calculate"]))
    assert [[each.name for each in call.tools] for call in engine.calls] == [["calculate"]]


@pytest.mark.parametrize(("choice", "kept"), [("required", False), ({"name": "roll_dice"}, False), ("auto", False)])
async def test_no_call_is_demanded_of_a_step_without_tools(clock: VirtualClock, choice: Any, kept: bool) -> None:
    engine = KeywordEngine(clock)
    await run_single_step(clock, {"tools": []}, engine, hints={"tool_choice": choice})
    assert [call.hints.tool_choice is not None for call in engine.calls] == [kept]


async def test_a_demanded_call_is_demanded_of_a_step_that_has_the_tool(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    steps = ({"tools": ["roll_dice"]}, {"tools": ["calculate"]})
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS)
    await run_plan(here, plan_request(*steps, hints={"tool_choice": {"name": "roll_dice"}}))
    assert [call.hints.tool_choice is not None for call in engine.calls] == [True, False]


# redundant


async def test_redundant_votes_and_gives_the_value_that_won(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock, request=[LARGE, SMALL, LARGE])
    here = make_harness(clock, engine)
    response, record = await run_plan(here, plan_request({"type": "redundant", "schema": SCHEMA, "n": 3}))
    assert (step_of(response).output, response.structured_output) == ({"size": "large"}, {"size": "large"})
    [decided] = events_of(record, VoteDecided)
    assert (decided.replicas, decided.votes) == (3, 2)
    assert response.vote is None
    names = {item.correlation.step_name for item in record.events if item.event.type.startswith("vote")}
    assert names == {"s0"}


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"n": 3, "quorum": 3}, Code.ORCHESTRATION_NO_CONSENSUS),
        ({"n": 3, "voting": "unanimity"}, Code.ORCHESTRATION_NO_CONSENSUS),
        ({"n": 3, "min_confidence": 0.9}, Code.ORCHESTRATION_NO_CONSENSUS),
        ({"n": 3}, None),
    ],
)
async def test_redundant_is_held_to_its_options(clock: VirtualClock, step: dict[str, Any], code: Code | None) -> None:
    engine = KeywordEngine(clock, request=[LARGE, LARGE, SMALL])
    assert error_code_of(await run_single_step(clock, {"type": "redundant", "schema": SCHEMA, **step}, engine)) is code


async def test_what_the_input_says_of_the_vote_goes_before_what_the_step_says(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    asked = {"messages": [{"role": "user", "content": "a"}], "schema": SCHEMA, "n": 2}
    await run_single_step(clock, {"type": "redundant", "input": asked, "schema": {}, "n": 5}, engine)
    assert len(engine.calls) == 2


async def test_a_step_may_have_as_many_replicas_as_are_allowed(clock: VirtualClock) -> None:
    engine = KeywordEngine(clock)
    await run_single_step(clock, {"type": "redundant", "input": "a", "schema": SCHEMA, "n": 16}, engine)
    assert len(engine.calls) == 16


@pytest.mark.parametrize(
    ("vote", "path", "message"),
    [({"n": 17}, "$.n", "must be at most 16"), ({"n": 2, "quorum": 3}, "$.quorum", "must be at most the 2 replicas")],
)
async def test_an_output_cannot_ask_for_more_replicas_than_are_allowed_nor_for_more_votes_than_there_are(
    clock: VirtualClock, vote: dict[str, Any], path: str, message: str
) -> None:
    asked = {"messages": [{"role": "user", "content": "a"}], **vote}
    response = await run_with_input(clock, asked, {"type": "redundant", "schema": SCHEMA})
    report = step_of(response, 1)
    assert error_code_of(report) is Code.ORCHESTRATION_STEP_MISMATCH
    assert report.error is not None
    assert report.error.details["violations"] == [{"path": path, "message": message}]


TOO_LARGE = "must be at most 2048 characters, not recursive, and have plain keywords"


@pytest.mark.parametrize("large", [{"enum": [f"value {n}" for n in range(300)]}, {"items": {"$ref": "#"}}])
async def test_an_output_cannot_bring_a_schema_that_takes_long_to_be_made_ready(
    clock: VirtualClock, large: dict[str, Any]
) -> None:
    response = await run_with_input(clock, {"messages": [{"role": "user", "content": "a"}], "schema": large}, {})
    report = step_of(response, 1)
    assert error_code_of(report) is Code.ORCHESTRATION_STEP_MISMATCH
    assert report.error is not None
    assert report.error.details["violations"] == [{"path": "$.schema", "message": TOO_LARGE}]
