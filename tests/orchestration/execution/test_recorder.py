"""The recorder: fingerprints and events are compared with the history, and nothing begins where it was stopped."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from portico.domain.contract.messages import Message
from portico.domain.failures import Code, OrchestrationFailure, StorageFailure
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import (
    Event,
    InferenceRetracted,
    InferenceStart,
    LifecycleTransition,
    StoredEvent,
    ToolEnd,
    ToolStart,
    UnnumberedEvent,
)
from portico.domain.journal.outcomes import Outcome, RecordedStep, StopDecision, TimerFired, ToolEnded
from portico.domain.journal.step_key import STOP_KEY, StepKey
from portico.domain.lifecycle import State
from portico.orchestration.execution.effect import BranchStopped, Effect
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.recorder import Recorder, ReplayCursor
from portico.ports.journal import ExecutionHistory
from tests.support.examples import correlation, header
from tests.support.virtual_time import VirtualClock

KEY = StepKey("0")
CORRELATION = correlation()
ENTERED = LifecycleTransition(State.PREPARE, State.EXECUTE, 1, "prepared")
START = ToolStart("look", "call_1", "hash")
END = ToolEnd("look", "call_1", 1.0, success=True, error_code=None)
STEP = RecordedStep(KEY, "f", TimerFired(), 1.0)


@dataclass
class Commits:
    """Implements what a recorder needs of `ports.journal.Journal`: it lists what was put."""

    commits: list[tuple[list[RecordedStep], list[Event]]] = field(default_factory=list)

    def put(
        self,
        execution_id: ExecutionId,
        steps: Sequence[RecordedStep],
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        self.commits.append(([*steps], [event for _, _, event in events]))


class Look(Effect):
    """An effect that counts how often it was accounted for."""

    def __init__(self, start: Event | None = START, *, again: Sequence[Event] = ()) -> None:
        self.key, self.fingerprint, self.correlation = KEY, "f", CORRELATION
        self.start_event = start
        self.again = again
        self.accounted: list[RecordedStep] = []

    async def run(self, environment: Environment) -> Outcome:
        return ToolEnded("seen", is_error=False, code=None, duration_ms=1.0)

    def start_again(self, runs: int) -> Sequence[Event]:
        return self.again

    def end_events(self, outcome: Outcome) -> Sequence[Event]:
        return [END]

    def account(self, step: RecordedStep) -> None:
        self.accounted.append(step)


def history(*events: tuple[str, Event], steps: Sequence[RecordedStep] = ()) -> ExecutionHistory:
    stored = [StoredEvent(number, 1.0, anchor, CORRELATION, event) for number, (anchor, event) in enumerate(events, 1)]
    return ExecutionHistory(header("e"), {step.key: step for step in steps}, stored)


def recorder(clock: VirtualClock, past: ExecutionHistory | None = None) -> tuple[Recorder, Commits]:
    commits = Commits()
    return Recorder(ExecutionId("e"), commits, past, clock), commits


def offline(past: ExecutionHistory) -> Recorder:
    return Recorder(ExecutionId("e"), None, past, None)


async def test_a_recorded_step_is_found_by_its_key_and_its_fingerprint(clock: VirtualClock) -> None:
    found, _ = recorder(clock, history(steps=[STEP]))
    assert found.step(KEY, "f") is STEP
    assert found.step(StepKey("1"), "f") is None


async def test_another_fingerprint_than_the_recorded_one_diverges_and_both_are_named(clock: VirtualClock) -> None:
    found, _ = recorder(clock, history(steps=[STEP]))
    with pytest.raises(OrchestrationFailure) as caught:
        found.step(KEY, "g")
    assert caught.value.code is Code.ORCHESTRATION_REPLAY_DIVERGED
    assert caught.value.details == {"step": "0", "recorded": "f", "replayed": "g"}


async def test_recorded_events_are_matched_and_new_ones_are_committed_with_the_next_step(clock: VirtualClock) -> None:
    found, commits = recorder(clock, history(("0", START)))
    found.emit(KEY, CORRELATION, START)
    found.emit(KEY, CORRELATION, END)
    assert commits.commits == []
    step = found.record_step(KEY, "f", TimerFired())
    assert commits.commits == [([step], [END])]


async def test_another_event_than_the_recorded_one_diverges(clock: VirtualClock) -> None:
    found, _ = recorder(clock, history(("0", START)))
    with pytest.raises(OrchestrationFailure) as caught:
        found.emit(KEY, CORRELATION, END)
    assert caught.value.details == {"step": "0", "recorded": "ToolStart", "replayed": "ToolEnd"}


async def test_the_start_of_an_effect_is_committed_before_it_runs(clock: VirtualClock) -> None:
    found, commits = recorder(clock)
    found.begin(Look())
    assert commits.commits == [([], [START])]


async def test_the_outcome_of_an_instant_effect_is_committed_with_the_start_of_what_follows(
    clock: VirtualClock,
) -> None:
    found, commits = recorder(clock)
    found.emit(KEY, CORRELATION, ENTERED)
    step = found.add(Look(None), TimerFired())
    assert commits.commits == []
    found.begin(Look())
    assert commits.commits == [([step], [ENTERED, END, START])]


async def test_a_decision_is_committed_at_once_behind_the_instant_outcomes_before_it(clock: VirtualClock) -> None:
    found, commits = recorder(clock)
    step = found.add(Look(None), TimerFired())
    decision = found.record_step(StepKey("1"), "f", TimerFired())
    assert commits.commits == [([step, decision], [END])]


async def test_an_interrupted_effect_starts_again_with_events_of_its_own(clock: VirtualClock) -> None:
    start = InferenceStart("0", 1, 0, False, False, None, "a", "m", None)
    again = InferenceRetracted("0"), replace(start, segment="0#2")
    found, commits = recorder(clock, history(("0", start)))
    found.begin(Look(start, again=again))
    assert commits.commits == [([], [*again])]


async def test_an_outcome_is_committed_together_with_its_events_and_accounted_for_once(clock: VirtualClock) -> None:
    found, commits = recorder(clock)
    effect, outcome = Look(), ToolEnded("seen", is_error=False, code=None, duration_ms=1.0)
    step = found.complete(effect, outcome)
    assert (step.outcome, step.at) == (outcome, clock.now())
    assert commits.commits == [([step], [END])]
    assert effect.accounted == [step]


async def test_a_replayed_effect_is_compared_from_its_last_start_and_commits_nothing(clock: VirtualClock) -> None:
    found, commits = recorder(clock, history(("0", START), ("0", START), ("0", END), steps=[STEP]))
    effect = Look()
    found.replay(effect, STEP)
    found.commit()
    assert commits.commits == []
    assert effect.accounted == [STEP]
    assert found.step(KEY, "f") is STEP
    assert found.cursor.verify_complete() == 1


def test_an_offline_replay_diverges_at_the_first_new_event_or_step() -> None:
    with pytest.raises(OrchestrationFailure) as caught:
        offline(history()).emit(KEY, CORRELATION, START)
    assert caught.value.details == {"step": "0", "recorded": None, "replayed": "ToolStart"}
    with pytest.raises(OrchestrationFailure) as caught:
        offline(history()).record_step(KEY, "f", TimerFired())
    assert caught.value.details == {"step": "0", "recorded": None, "replayed": "f"}


def test_a_recorded_step_or_event_that_was_never_asked_for_is_found_at_the_end() -> None:
    with pytest.raises(OrchestrationFailure) as caught:
        ReplayCursor(history(steps=[STEP])).verify_complete()
    assert caught.value.details["recorded"] == "TimerFired"
    with pytest.raises(OrchestrationFailure) as caught:
        ReplayCursor(history(("0", START))).verify_complete()
    assert caught.value.details["recorded"] == "ToolStart"


async def test_after_a_stop_nothing_new_is_emitted_and_its_decision_is_recorded_first(clock: VirtualClock) -> None:
    found, commits = recorder(clock)
    decision = StopDecision(Code.CANCELLED_SIGNAL, "cancelled")
    found.stop(decision)
    [([step], _)] = commits.commits
    assert (step.key, step.outcome) == (STOP_KEY, decision)
    assert found.is_closed(KEY)
    with pytest.raises(BranchStopped):
        found.emit(KEY, CORRELATION, ENTERED)
    found.record(KEY, CORRELATION, END)
    found.commit()
    assert commits.commits[1] == ([], [END])


async def test_a_failure_of_the_journal_stops_it_and_is_not_recorded(clock: VirtualClock) -> None:
    found, commits = recorder(clock)
    found.stop(StorageFailure(Code.STORAGE_UNAVAILABLE, "gone"))
    assert found.is_closed(KEY)
    assert commits.commits == []


async def test_a_cancelled_branch_is_closed_with_all_below_it_and_no_other(clock: VirtualClock) -> None:
    found, _ = recorder(clock)
    found.close((StepKey("2/1"),))
    assert [key for key in ("2/1", "2/1/0", "2/10/0", "2/0/0", "3") if found.is_closed(key)] == ["2/1", "2/1/0"]


async def test_a_recorded_stop_decision_stops_a_recovered_execution(clock: VirtualClock) -> None:
    decision = StopDecision(Code.CANCELLED_SIGNAL, "cancelled")
    found, _ = recorder(clock, history(steps=[RecordedStep(STOP_KEY, "f", decision, 1.0)]))
    assert found.stop_decision == decision
    assert found.is_closed()


def test_a_continued_execution_has_what_is_left_of_its_time_but_half_a_minute_at_least() -> None:
    def at(seconds: float, event: Event, number: int) -> StoredEvent:
        return StoredEvent(number, seconds, "x", CORRELATION, event)

    accepted = LifecycleTransition(None, State.INIT, 1, "accepted")
    entered = LifecycleTransition(State.INIT, State.PREPARE, 1, "accepted")
    ran = ExecutionHistory(header("e"), {}, [at(0.0, accepted, 1), at(100.0, entered, 2), at(150.0, ENTERED, 3)])
    assert ReplayCursor(ran).remaining_seconds(600.0) == 550.0
    assert ReplayCursor(ran).remaining_seconds(60.0) == 30.0
    assert ReplayCursor(None).remaining_seconds(10.0) == 10.0
