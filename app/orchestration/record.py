"""What an earlier owner recorded of this execution, matched step by step against what is asked for now."""

from collections import defaultdict
from collections.abc import Sequence

from app.domain.effects import Row
from app.domain.events import (
    Event,
    ExecutionResumed,
    ExecutionSuspended,
    InferenceStart,
    LifecycleTransition,
    Recorded,
    ToolStart,
)
from app.domain.failures import Code, OrchestrationFailure
from app.domain.lifecycle import State
from app.ports import Record

_STARTS = (InferenceStart, ToolStart)
_AT_REST = frozenset({State.INIT, State.SUSPENDED})
LEAST_SECONDS = 30.0
"""Of running time, for an execution that goes on."""


class Recollection:
    """The rows and events of a record, each handed out once.

    Suspended and resumed belong to the record, not to the pattern, so they are left out. A step that was begun again
    after a crash is compared from its last start.
    """

    def __init__(self, record: Record | None) -> None:
        self._rows: dict[str, Row] = dict(record.rows) if record else {}
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
    def waits(self) -> bool:
        """Whether the record ends in SUSPENDED, or went from there to its end."""
        return self._waits

    def resumed(self) -> None:
        """It does not wait any more: the last answer is there."""
        self._waits = False

    def seconds_left(self, seconds: float) -> float:
        """Of the running time that an execution has: at least 30 s of it when some of it ran already."""
        return max(LEAST_SECONDS, seconds - self._ran_for) if self._ran_for else seconds

    def row(self, key: str) -> Row | None:
        """The recorded step under that key."""
        if self._rows:
            self._asked.add(key)
        return self._rows.get(key)

    def began(self, key: str) -> bool:
        """Whether the step's start is recorded, with or without an outcome."""
        return any(isinstance(event, _STARTS) for event in self._events.get(key, ()))

    def from_last_start(self, key: str) -> None:
        """Compares the step's events from its last start on."""
        starts = [index for index, event in enumerate(self._events.get(key, ())) if isinstance(event, _STARTS)]
        if starts:
            self._next[key] = starts[-1]

    def skip(self, key: str) -> None:
        """Counts all recorded events of the step as matched: the run that died emitted them."""
        self._next[key] = len(self._events.get(key, ()))

    def unmatched(self, anchor: str, events: Sequence[Event]) -> Sequence[Event]:
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

    def finish(self) -> int:
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


def _ran_for(events: Sequence[Recorded]) -> float:
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
