"""What is told of an execution: matched against its record first, and put into its journal in order."""

from collections import defaultdict
from collections.abc import Sequence

from app.domain.contract.messages import Message
from app.domain.failures import Code, OrchestrationFailure
from app.domain.journal.events import (
    CorrelationContext,
    Event,
    ExecutionResumed,
    ExecutionSuspended,
    InferenceRetracted,
    InferenceStart,
    LifecycleTransition,
    StoredEvent,
    ToolStart,
    UnnumberedEvent,
)
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import RecordedStep
from app.domain.lifecycle import State
from app.orchestration.execution.effect import Effect
from app.ports.journal import ExecutionHistory, Journal


class Recorder:
    """The record of what was told before, and what is told now.

    Events are held until the next put, which nothing can come before. Without a journal nothing new can be told: that
    is a divergence.
    """

    def __init__(self, header: ExecutionHeader, journal: Journal | None, record: ExecutionHistory | None) -> None:
        self.history = ReplayCursor(record)
        self._execution_id = header.execution_id
        self._journal = journal
        self._held: list[UnnumberedEvent] = []

    @property
    def is_read_only(self) -> bool:
        """Whether nothing new can be told."""
        return self._journal is None

    def recorded_step(self, key: str, fingerprint: str) -> RecordedStep | None:
        """The recorded step under that key.

        Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when it is the record of something else.
        """
        row = self.history.step(key)
        if row is not None and row.fingerprint != fingerprint:
            raise diverged(key, recorded=row.fingerprint, replayed=fingerprint)
        return row

    def record(self, anchor: str, context: CorrelationContext, events: Sequence[Event]) -> None:
        """Holds those of the events that the record does not have yet."""
        self.buffer(anchor, context, self.history.match(anchor, events))

    def buffer(self, anchor: str, context: CorrelationContext, events: Sequence[Event]) -> None:
        """Holds new events. Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when nothing new can be."""
        if events and self._journal is None:
            raise diverged(anchor, recorded=None, replayed=events[0])
        self._held += [(anchor, context, event) for event in events]

    def replay(self, leaf: Effect, row: RecordedStep) -> None:
        """Tells again what was told of that step, from its last start on."""
        self.history.rewind_to_last_start(leaf.key)
        events = [leaf.start_event] if leaf.start_event else []
        self.record(leaf.key, leaf.correlation, [*events, *leaf.end_events(row.outcome)])

    def start(self, leaf: Effect, *, began: bool) -> None:
        """Tells that it begins; that it begins once more where it `began` in a life that was cut short."""
        if leaf.start_event is None:
            return
        if not began:
            self.buffer(leaf.key, leaf.correlation, (leaf.start_event,))
            return
        self.history.mark_matched(leaf.key)
        if isinstance(leaf.start_event, InferenceStart):
            self.buffer(leaf.key, leaf.correlation, (InferenceRetracted(leaf.start_event.segment), leaf.start_event))

    def commit(self, row: RecordedStep | None = None, new_messages: Sequence[Message] = ()) -> None:
        """One commit: the step, all events held so far, and with the last ones the turn."""
        if self._journal is not None and (self._held or row is not None):
            held, self._held = self._held, []
            self._journal.put(self._execution_id, row, held, new_messages)


_STARTS = (InferenceStart, ToolStart)
_AT_REST = frozenset({State.INIT, State.SUSPENDED})
MIN_REMAINING_SECONDS = 30.0
"""Of running time, for an execution that goes on."""


class ReplayCursor:
    """The rows and events of a record, each handed out once.

    Suspended and resumed belong to the record, not to the pattern, so they are left out. A step that was begun again
    after a crash is compared from its last start.
    """

    def __init__(self, record: ExecutionHistory | None) -> None:
        self._rows: dict[str, RecordedStep] = dict(record.steps) if record else {}
        self._events: dict[str, list[Event]] = defaultdict(list)
        self._next: dict[str, int] = {}
        self._asked: set[str] = set()
        events = record.events if record else ()
        self._ran_for = _ran_for(events)
        self._waits = False
        self.was_suspended = any(isinstance(item.event, ExecutionSuspended) for item in events)
        for item in events:
            match item.event:
                case LifecycleTransition(to_state=State.SUSPENDED) | LifecycleTransition(from_state=State.SUSPENDED):
                    self._waits = item.event.to_state is not State.EXECUTE
            if not _belongs_to_waiting(item.event):
                self._events[item.anchor].append(item.event)

    @property
    def ends_suspended(self) -> bool:
        """Whether the record ends in SUSPENDED, or went from there to its end."""
        return self._waits

    def mark_resumed(self) -> None:
        """It does not wait any more: the last answer is there."""
        self._waits = False

    def remaining_seconds(self, seconds: float) -> float:
        """Of the running time that an execution has: at least 30 s of it when some of it ran already."""
        return max(MIN_REMAINING_SECONDS, seconds - self._ran_for) if self._ran_for else seconds

    def step(self, key: str) -> RecordedStep | None:
        """The recorded step under that key."""
        if self._rows:
            self._asked.add(key)
        return self._rows.get(key)

    def has_started(self, key: str) -> bool:
        """Whether the step's start is recorded, with or without an outcome."""
        return any(isinstance(event, _STARTS) for event in self._events.get(key, ()))

    def rewind_to_last_start(self, key: str) -> None:
        """Compares the step's events from its last start on."""
        starts = [index for index, event in enumerate(self._events.get(key, ())) if isinstance(event, _STARTS)]
        if starts:
            self._next[key] = starts[-1]

    def mark_matched(self, key: str) -> None:
        """Counts all recorded events of the step as matched: the run that died emitted them."""
        self._next[key] = len(self._events.get(key, ()))

    def match(self, anchor: str, events: Sequence[Event]) -> Sequence[Event]:
        """Those of the events that the record does not hold yet.

        Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when the record holds another one in its place.
        """
        recorded = self._events.get(anchor)
        if not recorded:
            return events
        position = self._next.get(anchor, 0)
        again = min(len(events), len(recorded) - position)
        for offset in range(again):
            if recorded[position + offset] != events[offset]:
                raise diverged(anchor, recorded=recorded[position + offset], replayed=events[offset])
        self._next[anchor] = position + again
        return events[again:]

    def verify_complete(self) -> int:
        """The number of recorded steps, once all of them and all of their events were asked for.

        Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) naming the first that was not.
        """
        for key, row in self._rows.items():
            if key not in self._asked:
                raise diverged(key, recorded=row.outcome, replayed=None)
        for anchor, events in self._events.items():
            position = self._next.get(anchor, 0)
            if position < len(events):
                raise diverged(anchor, recorded=events[position], replayed=None)
        return len(self._rows)


def diverged(step: str, *, recorded: object, replayed: object) -> OrchestrationFailure:
    """The failure that names the step and shows both sides by their kind."""
    return OrchestrationFailure(
        Code.ORCHESTRATION_REPLAY_DIVERGED,
        "the replay asked for something else than the record",
        {"step": step, "recorded": _kind(recorded), "replayed": _kind(replayed)},
    )


def _kind(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return type(value).__name__


def _belongs_to_waiting(event: Event) -> bool:
    match event:
        case ExecutionSuspended() | ExecutionResumed():
            return True
        case LifecycleTransition(from_state=before, to_state=after):
            return {before, after} == {State.EXECUTE, State.SUSPENDED}
        case _:
            return False


def _ran_for(events: Sequence[StoredEvent]) -> float:
    """Seconds of running time: from each beginning to the suspension, or the last event, that follows.

    In INIT it waits for its turn.
    """
    total, began, last = 0.0, None, 0.0
    for item in events:
        if began is None and isinstance(item.event, LifecycleTransition) and item.event.to_state not in _AT_REST:
            began = item.at
        if began is not None and isinstance(item.event, ExecutionSuspended):
            total, began = total + item.at - began, None
        last = item.at
    return total if began is None else total + last - began
