"""The recorder: matches what an execution does against its history and writes what is new to its journal."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import NoReturn, TypeAlias

from portico.domain.contract.messages import Message
from portico.domain.failures import Code, Failure, OrchestrationFailure
from portico.domain.fingerprints import digest
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import (
    RESUME_ANCHOR,
    ApprovalGiven,
    CorrelationContext,
    Event,
    ExecutionResumed,
    ExecutionSuspended,
    FlowStep,
    InferenceStart,
    LifecycleTransition,
    NodeStart,
    RetrievalStart,
    StoredEvent,
    ToolEnd,
    ToolStart,
    UnnumberedEvent,
)
from portico.domain.journal.outcomes import AttemptCancelled, Outcome, RecordedStep, StopDecision, SuspensionAnswer
from portico.domain.journal.step_key import LIMIT_KEY, ROOT, STOP_KEY, StepKey
from portico.domain.lifecycle import SUSPENSION_EDGES, State, was_left_suspended
from portico.orchestration.execution.effect import BranchStopped, Effect, NonIdempotentEffect
from portico.ports.journal import ExecutionHistory, Journal
from portico.ports.runtime import Clock, Timeline

_STATES_AT_REST = frozenset({State.INIT, State.SUSPENDED})
StartEvent: TypeAlias = InferenceStart | ToolStart | NodeStart | RetrievalStart
MIN_REMAINING_SECONDS = 30.0
"""Least running time of an execution that is continued."""


class PatternTime:
    """Time of the outermost pattern. If step `limit` ended it, no effect begins until the pattern has ended, too."""

    def __init__(self, limit: RecordedStep | None) -> None:
        self.has_passed = limit is not None
        self.is_over = self.has_passed

    def end(self) -> None:
        """Let no effect begin: the time has passed."""
        self.has_passed = self.is_over = True

    def reopen(self) -> None:
        """Let effects begin that are not the pattern's, which has ended with all its branches."""
        self.is_over = False


class Recorder:
    """The history of one execution, and the steps and events that are not committed yet.

    A commit comes before the world is touched or anything is waited for, and after it, never between: the outcome of
    an instant effect, which neither acts nor waits, is committed with what follows it. Commits keep their order. A
    decision, and the outcome of every other effect, is committed at once. Without a journal, in an offline replay,
    every new event or step is a divergence. Once the execution or a branch was stopped, no effect begins there.
    """

    def __init__(
        self, execution_id: ExecutionId, journal: Journal | None, history: ExecutionHistory | None, clock: Clock | None
    ) -> None:
        self.cursor = ReplayCursor(history)
        self.is_read_only = journal is None
        """True in an offline replay."""
        stop = self.cursor.step(STOP_KEY) if self.cursor.has_history else None
        self.stop_decision = stop.outcome if stop and isinstance(stop.outcome, StopDecision) else None
        self.failure: Failure | None = None
        self._put = None if journal is None else partial(journal.put, execution_id)
        self._events: list[UnnumberedEvent] = []
        self.pending_steps: list[RecordedStep] = []
        """The steps that are not committed yet; nothing has been waited for since."""
        self._cancelled: tuple[StepKey, ...] = ()
        self._spared: tuple[StepKey, ...] = ()
        self.has_stopped = self.stop_decision is not None
        """True once the execution or a branch was stopped; before, `is_closed` need not be asked."""
        self.pattern_time = PatternTime(self.cursor.step(LIMIT_KEY) if self.cursor.has_history else None)
        self.has_stopped |= self.pattern_time.has_passed
        self._timeline = None if clock is None else Timeline(clock)

    def is_closed(self, key: str = ROOT) -> bool:
        """Return True if no effect may begin at that step; without one, if none may begin anywhere."""
        return (
            self.stop_decision is not None
            or self.failure is not None
            or self.pattern_time.is_over
            or (bool(self._cancelled) and StepKey(key).is_within(*self._cancelled) and not self._is_spared(key))
        )

    def _is_spared(self, key: str) -> bool:
        """Return True if effects may begin at that step all the same; without one, if they may begin anywhere."""
        return bool(self._spared) and (key == ROOT or StepKey(key).is_within(*self._spared))

    def close(self, branches: tuple[StepKey, ...], spared: tuple[StepKey, ...] = ()) -> None:
        """Let no effect begin in these branches any more, but for those within them that are `spared`."""
        self._cancelled += branches
        self._spared += spared
        self.has_stopped = True

    def stop(self, reason: StopDecision | Failure) -> None:
        """Let no effect begin any more. A decision is recorded; the failure of the journal itself is not."""
        self.has_stopped = True
        if isinstance(reason, Failure):
            self.failure = reason
            return
        self.stop_decision = reason
        self.record_step(STOP_KEY, digest(STOP_KEY, reason.code), reason)

    def step(self, key: StepKey, fingerprint: str) -> RecordedStep | None:
        """Return the recorded step of that key.

        Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) if the record has another fingerprint.
        """
        step = self.cursor.step(key)
        if step is not None and step.fingerprint != fingerprint:
            raise diverged(key, recorded=step.fingerprint, replayed=fingerprint)
        return step

    def emit(self, anchor: str, correlation: CorrelationContext, *events: Event) -> None:
        """Record events behind that step. Raises: BranchStopped if any is new and no effect may begin there."""
        new = self.cursor.match(anchor, events) if self.cursor.has_history else events
        if not new:
            return
        if self.has_stopped and self.is_closed(anchor):
            raise BranchStopped
        if self._put is None:
            raise diverged(anchor, recorded=None, replayed=new[0])
        self._events += [(anchor, correlation, event) for event in new]

    def record(self, anchor: str, correlation: CorrelationContext, *events: Event) -> None:
        """Record events behind that step, stopped or not."""
        new = self.cursor.match(anchor, events) if self.cursor.has_history else events
        if new and self._put is None:
            raise diverged(anchor, recorded=None, replayed=new[0])
        self._events += [(anchor, correlation, event) for event in new]

    def begin(self, effect: Effect) -> None:
        """Record the start of the effect, or that it starts again after runs that were interrupted.

        It is committed, unless the effect is instant.
        """
        interrupted = self.cursor.starts(effect.key) if self.cursor.has_history else ()
        if interrupted:
            self.cursor.mark_matched(effect.key)
            again = effect.start_again(len(interrupted))
            self._events += [(effect.key, effect.correlation, event) for event in again]
        elif effect.start_event is not None:
            self._events.append((effect.key, effect.correlation, effect.start_event))
        if not effect.is_instant:
            self.commit()

    def complete(self, effect: Effect, outcome: Outcome) -> RecordedStep:
        """Record the outcome with its events in one commit, and account for it."""
        step = self.add(effect, outcome)
        self.commit()
        effect.account(step)
        return step

    def add(self, effect: Effect, outcome: Outcome) -> RecordedStep:
        """Record the outcome of an instant effect, with its events, for the next commit."""
        key, events = effect.key, effect.end_events(outcome)
        if self._timeline is None or self._put is None:
            raise diverged(key, recorded=None, replayed=events[0] if events else effect)
        step = RecordedStep(key, effect.fingerprint, outcome, self._timeline.now())
        self._events += [(key, effect.correlation, event) for event in events]
        self.pending_steps.append(step)
        return step

    def replay(self, effect: Effect, step: RecordedStep) -> None:
        """Match the events of a recorded effect, from its last start, and account for it."""
        self.cursor.rewind_to_last_start(effect.key)
        start = () if effect.start_event is None else (effect.start_event,)
        self.record(effect.key, effect.correlation, *start, *effect.end_events(step.outcome))
        effect.account(step)

    def record_step(self, key: StepKey, fingerprint: str, outcome: Outcome) -> RecordedStep:
        """Commit the step. Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) in an offline replay."""
        if self._timeline is None or self._put is None:
            raise diverged(key, recorded=None, replayed=fingerprint)
        step = RecordedStep(key, fingerprint, outcome, self._timeline.now())
        self.pending_steps.append(step)
        self.commit()
        return step

    def commit(self, new_messages: Sequence[Message] = ()) -> None:
        """Write what is not committed yet in one transaction, with the last events the session's new messages."""
        if self._put is not None and (self._events or self.pending_steps):
            steps, events = self.pending_steps, self._events
            self.pending_steps, self._events = [], []
            self._put(steps, events, new_messages)


class ReplayCursor:
    """The steps and events of a history, each matched once.

    Suspension and resume events belong to the history, not to the pattern, so they are not matched. A step that was
    restarted after a crash is compared from its last start.
    """

    def __init__(self, history: ExecutionHistory | None) -> None:
        self.pending_steps: dict[StepKey, RecordedStep] = dict(history.steps) if history else {}
        self._events: dict[str, list[Event]] = defaultdict(list)
        self._next: dict[str, int] = {}
        self._read: set[str] = set()
        self._ran_for = 0.0
        self.has_history = history is not None and bool(history.steps or history.events)
        """False for a new execution, which has nothing to match."""
        self.ends_suspended = False
        self.was_suspended = False
        if history and history.events:
            self._index(history.events)

    def mark_resumed(self) -> None:
        """Treat the history as continued: the last answer was recorded."""
        self.ends_suspended = False

    def remaining_seconds(self, seconds: float) -> float:
        """Return what is left of that running time: at least 30 s once the execution has run."""
        return max(MIN_REMAINING_SECONDS, seconds - self._ran_for) if self._ran_for > 0 else seconds

    def step(self, key: StepKey) -> RecordedStep | None:
        """Return the recorded step of that key."""
        if self.pending_steps:
            self._read.add(key)
        return self.pending_steps.get(key)

    def is_past(self, key: StepKey) -> bool:
        """Return True if a step is recorded that began after that one had ended."""
        numbered = (StepKey(each) for each in self.pending_steps if each.replace("/", "").isdecimal())
        return any(key.precedes(each) for each in numbered)

    def answers(self) -> list[SuspensionAnswer]:
        """Return the answers to suspensions in the order in which they were recorded."""
        return [step.outcome for step in self.pending_steps.values() if isinstance(step.outcome, SuspensionAnswer)]

    def has_started(self, key: str) -> bool:
        """Return True if the start of that step is recorded, with or without an outcome."""
        return bool(self.starts(key))

    def starts(self, key: str) -> Sequence[StartEvent]:
        """Return the recorded starts of that step, one for each of its runs; none if the end kept it from running."""
        recorded = self._events.get(key, ())
        if recorded and isinstance(recorded[-1], ToolEnd) and key not in self.pending_steps:
            return ()
        return [event for event in recorded if isinstance(event, StartEvent)]

    def has_events(self, key: str) -> bool:
        """Return True if events are recorded behind that step."""
        return key in self._events

    def rewind_to_last_start(self, key: str) -> None:
        """Compare the events of that step from its last start."""
        starts = [index for index, event in enumerate(self._events.get(key, ())) if isinstance(event, StartEvent)]
        if starts:
            self._next[key] = starts[-1]

    def mark_matched(self, key: str) -> None:
        """Count all recorded events of that step as matched: an interrupted run recorded them."""
        self._next[key] = len(self._events.get(key, ()))

    def match(self, anchor: str, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events that are not recorded yet.

        Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) if another event is recorded in the same place.
        """
        recorded = self._events.get(anchor)
        if not recorded:
            return events
        position = self._next.get(anchor, 0)
        replayed = min(len(events), len(recorded) - position)
        for offset in range(replayed):
            if recorded[position + offset] != events[offset]:
                raise diverged(anchor, recorded=recorded[position + offset], replayed=events[offset])
        self._next[anchor] = position + replayed
        return events[replayed:]

    def verify_complete(self) -> int:
        """Return the number of recorded steps, all of which were matched with all of their events.

        Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) naming the first that was not.
        """
        for key, step in self.pending_steps.items():
            if key not in self._read:
                raise diverged(key, recorded=step.outcome, replayed=None)
        for anchor, events in self._events.items():
            position = self._next.get(anchor, 0)
            if position < len(events):
                raise diverged(anchor, recorded=events[position], replayed=None)
        return len(self.pending_steps)

    def _index(self, events: Sequence[StoredEvent]) -> None:
        self._ran_for = _running_seconds(events)
        self.was_suspended = any(isinstance(item.event, ExecutionSuspended) for item in events)
        transitions = (item.event for item in events if isinstance(item.event, LifecycleTransition))
        self.ends_suspended = was_left_suspended((each.from_state, each.to_state) for each in transitions)
        for item in events:
            if item.anchor != RESUME_ANCHOR and not _is_suspension_event(item.event):
                self._events[item.anchor].append(item.event)


def refuse(recorder: Recorder, effect: Effect) -> NoReturn:
    """End the branch before the effect. Raises: BranchStopped."""
    cancel_unfinished(recorder, effect)
    raise BranchStopped


def cancel_unfinished(recorder: Recorder, effect: Effect) -> None:
    """Record that an effect which an earlier run started was cancelled."""
    if recorder.cursor.has_started(effect.key) and not recorder.is_read_only:
        recorder.cursor.mark_matched(effect.key)
        if isinstance(effect, NonIdempotentEffect):
            recorder.complete(effect, effect.unknown_outcome)
        else:
            recorder.complete(effect, AttemptCancelled(duration_ms=0.0))


ReplayedPart: TypeAlias = Event | Outcome | Effect | str | None
"""One side of a difference: an event, an outcome, an effect, a fingerprint, or None if the side has nothing there."""


class ReplayDiverged(OrchestrationFailure):
    """Failure of a replay at its first difference, with both sides.

    The details name the step and the kinds of the sides, and nothing of their contents.
    """

    def __init__(self, step: str, recorded: ReplayedPart, replayed: ReplayedPart) -> None:
        details = {"step": step, "recorded": _kind(recorded), "replayed": _kind(replayed)}
        message = "the replay asked for something else than the record"
        super().__init__(Code.ORCHESTRATION_REPLAY_DIVERGED, message, details)
        self.step = step
        self.recorded = recorded
        self.replayed = replayed


def diverged(step: str, *, recorded: ReplayedPart, replayed: ReplayedPart) -> ReplayDiverged:
    """Return the failure at that step."""
    return ReplayDiverged(step, recorded, replayed)


def _kind(part: ReplayedPart) -> str | None:
    if isinstance(part, Effect):
        return part.fingerprint
    return part if part is None or isinstance(part, str) else type(part).__name__


def _is_suspension_event(event: Event) -> bool:
    match event:
        case ExecutionSuspended() | ExecutionResumed() | ApprovalGiven() | FlowStep(outcome="suspend"):
            return True
        case LifecycleTransition(from_state=before, to_state=after):
            return (before, after) in SUSPENSION_EDGES
        case _:
            return False


def _running_seconds(events: Sequence[StoredEvent]) -> float:
    """Add up the time from each start to the suspension, or the last event, that follows; INIT is no running time."""
    total, started_at, last_at = 0.0, None, 0.0
    for item in events:
        if (
            started_at is None
            and isinstance(item.event, LifecycleTransition)
            and item.event.to_state not in _STATES_AT_REST
        ):
            started_at = item.at
        if started_at is not None and isinstance(item.event, ExecutionSuspended):
            total, started_at = total + item.at - started_at, None
        last_at = item.at
    return total if started_at is None else total + last_at - started_at
