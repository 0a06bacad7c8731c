"""The execution: a recorded effect never runs again, and a non-idempotent one starts only once its start is durable."""

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest
from pydantic import JsonValue

from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code, OrchestrationFailure, StorageFailure
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import Event, ToolEnd, ToolStart
from portico.domain.journal.outcomes import AttemptCancelled, Outcome, SuspensionAnswer, ToolEnded
from portico.domain.journal.step_key import STOP_KEY, StepKey
from portico.orchestration.execution.effect import (
    BranchStopped,
    BranchSuspended,
    Effect,
    NonIdempotentEffect,
    SuspensionRequest,
)
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.ports.journal import ExecutionHistory
from tests.support.harness import Harness, chat_request, make_harness, scripted_engine
from tests.support.stored_journal import InMemoryJournal
from tests.support.virtual_time import VirtualClock

KEY = StepKey("0")
UNKNOWN = ToolEnded("unknown", is_error=True, code=Code.TOOL_OUTCOME_UNKNOWN, duration_ms=0.0)
DONE = ToolEnded("done", is_error=False, code=None, duration_ms=1.0)


class Act(Effect):
    """An effect that logs its run, which takes some seconds."""

    def __init__(self, execution: Execution, log: list[str], *, seconds: float = 0.0, fingerprint: str = "f") -> None:
        self.key, self.fingerprint, self.correlation = KEY, fingerprint, execution.correlation
        self.start_event = ToolStart("act", "call_1", "hash")
        self._log = log
        self._seconds = seconds

    async def run(self, environment: Environment) -> Outcome:
        self._log.append("acts")
        await environment.clock.sleep(self._seconds)
        return DONE

    def end_events(self, outcome: Outcome) -> Sequence[Event]:
        return [ToolEnd("act", "call_1", 1.0, success=True, error_code=None)]


class ActOnce(Act, NonIdempotentEffect):
    """The same effect as a non-idempotent one; an answer is that it has happened, or that it may run."""

    unknown_outcome = UNKNOWN

    def is_uncertain(self, outcome: Outcome) -> bool:
        return outcome == UNKNOWN

    def question(self, number: int) -> SuspensionRequest:
        return SuspensionRequest(KEY.child(0, number), SuspensionKind.UNKNOWN_OUTCOME, "act", None)

    def outcome_from_answer(self, payload: JsonValue) -> Outcome | None:
        return DONE if payload == "happened" else None


class WatchedJournal(InMemoryJournal):
    """A journal that logs each wait for durability, or fails it."""

    log: list[str]
    fails = False

    async def durable(self, execution_id: ExecutionId) -> None:
        self.log.append("durable")
        if self.fails:
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database is gone")
        await super().durable(execution_id)


def harness(clock: VirtualClock, log: list[str], *, fails: bool = False) -> Harness:
    here = make_harness(clock, scripted_engine(clock, "a"))
    journal = WatchedJournal(clock, here.bus)
    journal.log, journal.fails = log, fails
    return replace(here, journal=journal, environment=replace(here.environment, journal=journal))


async def committed(here: Harness, execution: Execution) -> ExecutionHistory:
    """Return the stored history once all of it is durable."""
    await InMemoryJournal.durable(here.journal, execution.header.execution_id)
    return here.record(execution)


def continued(here: Harness, history: ExecutionHistory) -> Execution:
    """Return the execution that continues a history in another process."""
    here.journal.attach(history)
    return Execution(history.header, environment=here.environment, journal=here.journal, history=history)


def interrupted(clock: VirtualClock, kind: type[Act]) -> ExecutionHistory:
    """Return the history of a process that died after the start of the effect."""
    here = harness(clock, [])
    execution = here.execution(chat_request())
    execution.recorder.begin(kind(execution, []))
    return here.record(execution)


async def test_a_recorded_effect_is_not_run_again(clock: VirtualClock) -> None:
    log: list[str] = []
    here = harness(clock, log)
    execution = here.execution(chat_request())
    step = await execution.perform(Act(execution, log))
    again = continued(harness(clock, log), here.record(execution))
    assert await again.perform(Act(again, log)) == step
    assert log == ["acts"]


async def test_a_recorded_effect_of_another_fingerprint_diverges_before_it_runs(clock: VirtualClock) -> None:
    log: list[str] = []
    here = harness(clock, log)
    execution = here.execution(chat_request())
    await execution.perform(Act(execution, log))
    again = continued(harness(clock, log), here.record(execution))
    with pytest.raises(OrchestrationFailure) as caught:
        await again.perform(Act(again, log, fingerprint="g"))
    assert caught.value.code is Code.ORCHESTRATION_REPLAY_DIVERGED
    assert log == ["acts"]


async def test_an_idempotent_effect_that_was_interrupted_runs_again_without_a_question(clock: VirtualClock) -> None:
    log: list[str] = []
    again = continued(harness(clock, log), interrupted(clock, Act))
    assert (await again.perform(Act(again, log))).outcome == DONE
    assert log == ["acts"]


async def test_a_non_idempotent_effect_runs_only_once_its_start_is_durable(clock: VirtualClock) -> None:
    log: list[str] = []
    here = harness(clock, log)
    execution = here.execution(chat_request())
    await execution.perform(ActOnce(execution, log))
    assert log == ["durable", "acts"]
    assert [item.event.type for item in (await committed(here, execution)).events] == ["tool.start", "tool.end"]


async def test_a_non_idempotent_effect_whose_start_cannot_be_stored_does_not_run(clock: VirtualClock) -> None:
    log: list[str] = []
    execution = harness(clock, log, fails=True).execution(chat_request())
    with pytest.raises(StorageFailure):
        await execution.perform(ActOnce(execution, log))
    assert log == ["durable"]


async def test_an_interrupted_non_idempotent_effect_suspends_and_does_not_run(clock: VirtualClock) -> None:
    log: list[str] = []
    again = continued(harness(clock, log), interrupted(clock, ActOnce))
    with pytest.raises(BranchSuspended):
        await again.perform(ActOnce(again, log))
    assert log == []
    assert [question.key for question in again.branches.open_questions] == ["0/0/0"]


@pytest.mark.parametrize(("answer", "runs"), [("happened", 0), ("run", 1)])
async def test_the_answer_decides_what_becomes_of_an_interrupted_effect(
    clock: VirtualClock, answer: str, runs: int
) -> None:
    log: list[str] = []
    here = harness(clock, log)
    again = continued(here, interrupted(clock, ActOnce))
    effect = ActOnce(again, log)
    question = effect.question(0)
    again.recorder.record_step(question.key, question.fingerprint, SuspensionAnswer(answer))
    later = continued(harness(clock, log), await committed(here, again))
    assert (await later.perform(ActOnce(later, log))).outcome == DONE
    assert log.count("acts") == runs


async def test_an_approved_rerun_that_was_interrupted_asks_again(clock: VirtualClock) -> None:
    here = harness(clock, [])
    again = continued(here, interrupted(clock, ActOnce))
    question = ActOnce(again, []).question(0)
    again.recorder.record_step(question.key, question.fingerprint, SuspensionAnswer("run"))
    again.recorder.record_step(question.key.child(0), "f", DONE)
    later = continued(harness(clock, []), await committed(here, again))
    with pytest.raises(BranchSuspended):
        await later.perform(ActOnce(later, []))
    assert [each.key for each in later.branches.open_questions] == ["0/0/1"]


async def test_a_stop_is_recorded_before_what_runs_is_cancelled(clock: VirtualClock) -> None:
    here = harness(clock, [])
    execution = here.execution(chat_request())

    async def run() -> None:
        with execution.until_stopped(), execution.start_deadline():
            await execution.perform(Act(execution, [], seconds=100))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await clock.sleep(1)
        execution.stop(Code.CANCELLED_SIGNAL, "cancelled")
    steps = here.record(execution).steps
    assert list(steps) == [STOP_KEY, "0"]
    assert isinstance(steps["0"].outcome, AttemptCancelled)


async def test_nothing_begins_after_a_stop(clock: VirtualClock) -> None:
    log: list[str] = []
    execution = harness(clock, log).execution(chat_request())
    execution.stop(Code.CANCELLED_SIGNAL, "cancelled")
    with pytest.raises(BranchStopped):
        await execution.perform(Act(execution, log))
    assert log == []


async def test_a_handed_over_execution_records_nothing_of_what_it_cancels(clock: VirtualClock) -> None:
    here = harness(clock, [])
    execution = here.execution(chat_request())

    async def run() -> None:
        with execution.until_stopped(), execution.start_deadline():
            await execution.perform(Act(execution, [], seconds=100))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await clock.sleep(1)
        execution.abandon()
    assert execution.is_handed_over
    assert list(here.record(execution).steps) == []
