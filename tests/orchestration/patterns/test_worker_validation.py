"""A worker validates what is not small and plain; its outcome is recorded, and a replay never asks again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from portico.capabilities.answer_contract import too_costly_answer
from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import Code
from portico.domain.journal.outcomes import AnswerValidated, AttemptSucceeded
from portico.domain.lifecycle import Mode, State
from portico.orchestration.patterns.plan_executor import plan_executor
from portico.orchestration.patterns.redundant_loop import redundant_loop
from portico.orchestration.patterns.specialized_loop import specialized_loop
from portico.orchestration.planning.planner import make_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.validation import OnRuleException
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, scripted_engine, watch_commits
from tests.support.inline_validation import InlineAnswerValidator
from tests.support.validated_modes import NATIVE, chat, run, structured
from tests.support.virtual_time import VirtualClock

TREE: dict[str, Any] = {"type": "array", "items": {"$ref": "#"}}
"""A recursive schema, which is not plain."""
GOOD, BAD = {"text": "[[], []]"}, {"text": "[1]"}


class CostlyAnswers(InlineAnswerValidator):
    """A validator to which the first answers are too costly."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    async def validate(
        self, output: OutputContract, answer: str | AnswerContent, attempt: int, on_exception: OnRuleException
    ) -> AnswerValidated:
        self.left -= 1
        if self.left >= 0:
            return too_costly_answer(attempt)
        return await super().validate(output, answer, attempt, on_exception)


def here(clock: VirtualClock, *replies: Mapping[str, Any], validator: Any = None, attempts: int = 3) -> Harness:
    engine = scripted_engine(clock, "primary", *replies, capabilities=NATIVE)
    harness = make_harness(clock, engine, attempts=attempts)
    validator = validator or InlineAnswerValidator()
    harness.environment = replace(harness.environment, answer_validator=validator)
    return harness


def validations(record: ExecutionHistory) -> list[str]:
    return [key for key, step in record.steps.items() if isinstance(step.outcome, AnswerValidated)]


def without_validations(record: ExecutionHistory) -> ExecutionHistory:
    kept = set(record.steps) - set(validations(record))
    return ExecutionHistory(
        record.header, {key: record.steps[key] for key in record.steps if key in kept}, record.events
    )


async def test_the_outcome_is_recorded_under_the_key_of_its_inference_and_takes_no_ordinal(clock: VirtualClock) -> None:
    world = here(clock, BAD, GOOD)
    response, record = await run(world, structured({"schema": TREE}))
    assert response.structured_output == [[], []]
    inferences = [key for key, step in record.steps.items() if isinstance(step.outcome, AttemptSucceeded)]
    assert [key.numbers[0] for key in inferences] == [0, 1]
    assert validations(record) == [key.validation for key in inferences]
    assert world.environment.answer_validator.validated == 2


@pytest.mark.parametrize("output", [{"schema": {"type": "array"}}, {"schema": {"items": {"type": "array"}}}])
async def test_what_is_small_and_plain_is_validated_in_place_and_records_nothing(
    clock: VirtualClock, output: dict[str, Any]
) -> None:
    world = here(clock, GOOD)
    _, record = await run(world, structured(output))
    assert validations(record) == []
    assert world.environment.answer_validator.validated == 0


async def test_a_large_answer_is_validated_by_a_worker_in_chat_too(clock: VirtualClock) -> None:
    search = {"type": "regex", "pattern": "end$"}
    _, record = await run(here(clock, {"text": "x" * 5_000 + "end"}), chat({"rules": [search]}))
    assert len(validations(record)) == 1
    _, record = await run(here(clock, {"text": "x" * 50 + "end"}), chat({"rules": [search]}))
    assert validations(record) == []


async def test_an_older_record_without_the_outcome_is_validated_in_place(clock: VirtualClock) -> None:
    _, record = await run(here(clock, BAD, GOOD), structured({"schema": TREE}))
    older = without_validations(record)
    assert replay_offline(older, specialized_loop) == len(older.steps) < len(record.steps)


async def test_after_a_crash_between_answer_and_outcome_the_answer_is_validated_and_not_asked_for_again(
    clock: VirtualClock,
) -> None:
    world = watch_commits(here(clock, GOOD))
    await world.run(structured({"schema": TREE}), specialized_loop)
    crashed = next(
        record
        for record, _ in world.journal.commits
        if any(isinstance(step.outcome, AttemptSucceeded) for step in record.steps.values())
    )
    assert validations(crashed) == []
    later = here(clock)
    response, record = await later.recover(crashed, specialized_loop)
    assert response.state is State.COMPLETE
    assert later.environment.answer_validator.validated == len(validations(record)) == 1
    assert replay_offline(record, specialized_loop) == len(record.steps)


async def test_a_recorded_outcome_is_used_by_the_next_owner(clock: VirtualClock) -> None:
    world = watch_commits(here(clock, BAD, GOOD))
    await world.run(structured({"schema": TREE}), specialized_loop)
    crashed = next(record for record, _ in world.journal.commits if len(validations(record)) == 1)
    later = here(clock, GOOD)
    response, record = await later.recover(crashed, specialized_loop)
    assert response.structured_output == [[], []]
    assert (later.environment.answer_validator.validated, len(validations(record))) == (1, 2)


async def test_an_answer_that_is_too_costly_is_asked_for_again_and_fails_after_the_last_attempt(
    clock: VirtualClock,
) -> None:
    response, _ = await run(here(clock, GOOD, GOOD, validator=CostlyAnswers(1)), structured({"schema": TREE}))
    assert response.validation_result is not None
    assert (response.state, response.validation_result.attempts) == (State.COMPLETE, 2)
    world = here(clock, GOOD, GOOD, validator=CostlyAnswers(2), attempts=2)
    lenient = structured({"schema": TREE, "strict_validation": False})
    response, _ = await run(world, lenient)
    assert response.error is not None
    assert response.error.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert response.structured_output is None


async def test_fields_that_won_are_validated_once(clock: VirtualClock) -> None:
    node = {"type": "object", "properties": {"x": {}, "y": {}, "z": {}, "next": {"$ref": "#"}}}
    ballots = [{"x": 1, "y": 1, "z": 2}, {"x": 1, "y": 2, "z": 1}, {"x": 2, "y": 1, "z": 1}]
    request = chat_request(
        mode=Mode.REDUNDANT, output={"schema": node}, redundancy={"n": 3, "voting": "field_majority"}
    )
    world = here(clock, *({"text": json.dumps(each)} for each in ballots))
    response, record = await run(world, request)
    assert response.structured_output == {"x": 1, "y": 1, "z": 1}
    assert len(validations(record)) == world.environment.answer_validator.validated == 4
    assert replay_offline(without_validations(record), redundant_loop) == len(record.steps) - 4


async def test_a_plan_has_its_contracts_checked_by_a_worker_and_its_values_validated_there(clock: VirtualClock) -> None:
    steps = [
        {"name": "ask", "type": "infer", "input": "Go on", "schema": TREE},
        {"name": "check", "type": "validate", "schema": TREE},
    ]
    world = here(clock, GOOD)
    response, record = await world.run(chat_request(mode=Mode.PLAN, plan={"steps": steps}), plan_executor, make_plan)
    assert response.state is State.COMPLETE
    assert (world.environment.answer_validator.checked, len(validations(record))) == (2, 2)
    assert replay_offline(record, plan_executor, make_plan) == len(record.steps)


async def test_a_plan_with_a_contract_that_the_worker_refuses_does_not_run(clock: VirtualClock) -> None:
    endless = {"type": "array", "minItems": 1, "items": {"$ref": "#"}}
    steps = [{"name": "ask", "type": "infer", "input": "Go on", "schema": endless}]
    response, _ = await here(clock).run(chat_request(mode=Mode.PLAN, plan={"steps": steps}), plan_executor, make_plan)
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_PLAN_REFUSED
    [violation] = response.error.details["violations"]
    assert violation["path"] == "steps.0.schema"
    assert "requires itself without end" in violation["message"]
