"""Structured mode: an answer that keeps its contract, after corrections, or fails with what it was."""

import json
from typing import Any

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.contract.constrained_types import FormatEnforcement
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import ConstraintRepaired, Event, InferenceStart, LifecycleTransition, ValidationEnd
from portico.domain.journal.outcomes import AttemptSucceeded
from portico.domain.lifecycle import State
from portico.orchestration.patterns.specialized_loop import specialized_loop
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineCapabilities
from tests.support.harness import Harness, make_harness, replay_offline, scripted_engine
from tests.support.structured_mode import GOOD, NATIVE, ROLL, SCHEMA, asking, said
from tests.support.virtual_time import VirtualClock

YES_OR_NO = 'root ::= "yes" | "no"'


def here(clock: VirtualClock, *replies: Any, able: EngineCapabilities = NATIVE, attempts: int = 3) -> Harness:
    engine = scripted_engine(
        clock,
        "primary",
        *(reply if isinstance(reply, dict) and "tool_calls" in reply else said(reply) for reply in replies),
        capabilities=able,
    )
    return make_harness(clock, engine, tools=BUILTIN_TOOLS, attempts=attempts)


async def run(world: Harness, request: SystemRequest) -> tuple[SystemResponse, ExecutionHistory]:
    """Return the response and the history, which replays identically."""
    response, record = await world.run(request, specialized_loop)
    assert replay_offline(record, specialized_loop) == len(record.steps)
    return response, record


def events(record: ExecutionHistory, kind: type[Event]) -> list[Any]:
    return [item.event for item in record.events if isinstance(item.event, kind)]


def states(record: ExecutionHistory) -> list[tuple[State, int]]:
    return [(event.to_state, event.attempt) for event in events(record, LifecycleTransition)]


async def test_an_answer_that_fits_is_the_structured_output(clock: VirtualClock) -> None:
    response, record = await run(here(clock, GOOD), asking({"schema": SCHEMA}))
    assert response.state is State.COMPLETE
    assert response.structured_output == GOOD
    assert json.loads(response.content or "") == GOOD
    assert (response.confidence, response.confidence_source) == (1.0, "validation")
    assert response.validation_result is not None
    assert response.validation_result.valid
    assert response.metadata.kept_by is FormatEnforcement.SCHEMA
    assert states(record) == [
        (State.INIT, 1),
        (State.PREPARE, 1),
        (State.EXECUTE, 1),
        (State.VALIDATE, 1),
        (State.COMPLETE, 1),
    ]


async def test_an_answer_that_failed_twice_and_then_held(clock: VirtualClock) -> None:
    response, record = await run(here(clock, "prose", {"city": 3, "size": "large"}, GOOD), asking({"schema": SCHEMA}))
    assert response.structured_output == GOOD
    assert response.validation_result is not None
    assert response.validation_result.attempts == 3
    assert [event.valid for event in events(record, ValidationEnd)] == [False, False, True]
    assert states(record)[3:] == [
        (State.VALIDATE, 1),
        (State.EXECUTE, 2),
        (State.VALIDATE, 2),
        (State.EXECUTE, 3),
        (State.VALIDATE, 3),
        (State.COMPLETE, 3),
    ]
    assert [event.message_count for event in events(record, InferenceStart)] == [1, 3, 5]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("no JSON at all", Code.CONSTRAINT_JSON_INVALID),
        ({"city": "Köln"}, Code.CONSTRAINT_SCHEMA_INVALID),
        ({"city": "Köln", "size": "huge"}, Code.CONSTRAINT_ENUM_UNRECOGNIZED),
    ],
)
async def test_an_answer_that_never_holds_is_a_failure_and_is_not_shown(
    answer: Any, code: Code, clock: VirtualClock
) -> None:
    response, record = await run(here(clock, answer, answer, answer), asking({"schema": SCHEMA}))
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.code is code
    assert (response.content, response.structured_output) == (None, None)
    assert response.confidence == 0.0
    assert response.validation_result is not None
    assert not response.validation_result.valid
    assert response.validation_result.attempts == len(events(record, ValidationEnd)) == 3
    assert "Köln" not in json.dumps(response.error.model_dump(mode="json"), ensure_ascii=False)


async def test_attempts_are_as_many_as_asked_for(clock: VirtualClock) -> None:
    response, record = await run(here(clock, "prose", GOOD, attempts=1), asking({"schema": SCHEMA}))
    assert response.error is not None
    assert len(events(record, InferenceStart)) == 1


async def test_a_repair_is_reported_and_not_made_if_it_is_not_allowed(clock: VirtualClock) -> None:
    broken = "{'city': 'Köln', 'size': 'LARGE',}"
    response, record = await run(here(clock, broken), asking({"schema": SCHEMA}))
    assert response.structured_output == GOOD
    (repaired,) = events(record, ConstraintRepaired)
    assert {repair["action"] for repair in repaired.repairs} >= {"quotes_replaced", "enum_normalised"}
    assert response.validation_result is not None
    assert response.validation_result.repairs == list(repaired.repairs)
    refused, _ = await run(here(clock, broken, attempts=1), asking({"schema": SCHEMA, "repair_allowed": False}))
    assert refused.error is not None
    assert refused.error.code is Code.CONSTRAINT_JSON_INVALID


async def test_with_a_grammar_alone_the_text_is_the_answer(clock: VirtualClock) -> None:
    response, record = await run(here(clock, "maybe", "yes"), asking({"grammar": YES_OR_NO}))
    assert (response.content, response.structured_output) == ("yes", None)
    assert response.metadata.kept_by is FormatEnforcement.GRAMMAR
    assert [event.valid for event in events(record, ValidationEnd)] == [False, True]
    assert [(event.schema_present, event.grammar_present) for event in events(record, InferenceStart)] == [
        (False, True)
    ] * 2


async def test_rules_are_run_and_reported(clock: VirtualClock) -> None:
    rules = [
        {"type": "length", "path": "$.city", "max": 3},
        {"type": "not_empty", "severity": "warning", "path": "$.more"},
    ]
    short = {"city": "Ulm", "size": "small"}
    response, record = await run(here(clock, GOOD, short), asking({"schema": SCHEMA, "rules": rules}))
    assert response.structured_output == short
    first, second = events(record, ValidationEnd)
    assert [error["rule"] for error in first.errors] == ["length"]
    assert [warning["rule"] for warning in second.warnings] == ["not_empty"]


@pytest.mark.parametrize("output", [{"schema": SCHEMA}, {"grammar": YES_OR_NO}], ids=["schema", "grammar"])
async def test_an_answer_that_breaks_its_format_fails_even_if_validation_is_not_strict(
    clock: VirtualClock, output: dict[str, Any]
) -> None:
    lenient = asking(output | {"strict_validation": False})
    response, _ = await run(here(clock, "maybe", attempts=1), lenient)
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.category == "ConstraintFailure"
    assert (response.content, response.structured_output, response.confidence) == ("maybe", None, 0.0)


async def test_with_tools_it_gathers_first_and_is_then_offered_none(clock: VirtualClock) -> None:
    world = here(clock, ROLL, "The dice fell.", GOOD)
    response, record = await run(world, asking({"schema": SCHEMA}, tools=["roll_dice"]))
    assert response.structured_output == GOOD
    assert [call.name for call in response.tool_calls_made] == ["roll_dice"]
    started = events(record, InferenceStart)
    assert [event.tool_defs_count for event in started] == [1, 1, 0]
    assert [event.schema_present for event in started] == [False, False, True]
    assert [event.temperature for event in started] == [None, None, 0.3]


async def test_without_named_tools_none_are_offered(clock: VirtualClock) -> None:
    _, record = await run(here(clock, GOOD), asking({"schema": SCHEMA}, hints={"temperature": 0}))
    (started,) = events(record, InferenceStart)
    assert (started.tool_defs_count, started.temperature) == (0, 0)


@pytest.mark.parametrize(("hints", "left_out"), [({}, []), ({"temperature": 0}, ["hints.temperature"])])
async def test_a_temperature_of_the_pattern_is_not_reported_as_left_out(
    hints: dict[str, float], left_out: list[str], clock: VirtualClock
) -> None:
    response, record = await run(here(clock, GOOD), asking({"schema": SCHEMA}, hints=hints))
    (replied,) = (row.outcome for row in record.steps.values() if isinstance(row.outcome, AttemptSucceeded))
    assert replied.reply.withheld == ("hints.temperature",)
    assert response.metadata.left_out == left_out


@pytest.mark.parametrize(
    ("able", "way"),
    [
        (EngineCapabilities(schema=True), FormatEnforcement.SCHEMA),
        (EngineCapabilities(), FormatEnforcement.SUBMIT),
        (EngineCapabilities(forced_calls=False), FormatEnforcement.CONTRACT),
        (EngineCapabilities(tools=False), FormatEnforcement.CONTRACT),
    ],
)
async def test_an_engine_is_kept_to_the_form_in_the_best_way_it_has(
    able: EngineCapabilities, way: FormatEnforcement, clock: VirtualClock
) -> None:
    submitted = {"tool_calls": [{"name": "submit", "arguments": GOOD}]}
    world = here(clock, submitted if way is FormatEnforcement.SUBMIT else GOOD, able=able)
    response, _ = await run(world, asking({"schema": SCHEMA}))
    assert response.structured_output == GOOD
    assert response.metadata.kept_by is way
    assert response.tool_calls_made == []
