"""Recorded turns: what the model of the outermost conversation said and called, as far as that is recorded.

Only what is recorded counts, so every replica reads the same turns, also of an execution that it does not run and after
a crash, and those of a later read begin with those of an earlier one. A suspension ends a part of an execution, and its
answer begins the next one. The calls of a reply are shown once none of them runs any more, since only then it is known
which of them ran.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from portico.domain.contract.messages import ToolCall
from portico.domain.contract.response import SystemResponse
from portico.domain.ids import SuspensionId, ToolCallId
from portico.domain.journal.events import (
    TERMINAL_EVENTS,
    ExecutionResumed,
    ExecutionSuspended,
    InferenceEnd,
    InferenceStart,
    LifecycleTransition,
    NodeStart,
    StoredEvent,
    TerminalEvent,
    ToolEnd,
    ToolStart,
)
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import AttemptSucceeded, InferenceSetup, ToolCallSuspended, ToolEnded
from portico.domain.journal.step_key import StepKey, step_number_of
from portico.domain.model_call import Reply
from portico.domain.value import replace, value
from portico.ports.journal import ExecutionHistory

_INFERENCE_DEPTH: Final = 1
_CALL_DEPTH: Final = 3
"""Slashes in the key of an attempt at a top-level inference, and at a call of its reply."""


@value
class EndedCall:
    """A call that ran here, and the part in which it ended. `result` is None while only the response will have it."""

    call: ToolCall
    part: int
    result: str | None
    is_error: bool


@value
class RecordedTurn:
    """A reply of the model, the part in which it came, and those of its calls that ran here, in its own order."""

    reply: Reply
    part: int
    calls: Sequence[EndedCall]


@value
class Rest:
    """The response with which a part of an execution ended, and when, in Unix seconds."""

    response: SystemResponse
    at: float


@value
class RecordedTurns:
    """The turns of one execution so far.

    `rests` are its suspensions, each of which ended a part, and its end; while it runs, the last part has no rest. An
    execution that `is_queued` has not begun. It `has_acted` if something has begun that may not be safe to run twice.
    """

    header: ExecutionHeader
    turns: Sequence[RecordedTurn]
    rests: Sequence[Rest]
    is_running: bool
    is_queued: bool = False
    has_acted: bool = False

    @property
    def parts(self) -> int:
        """Number of its parts; the last one may run."""
        return len(self.rests) + self.is_running


def recorded_turns(history: ExecutionHistory) -> RecordedTurns:
    """Return the turns of the execution as far as they are recorded."""
    fold = _Fold(history)
    for stored in history.events:
        fold.take(stored)
    rests = [
        Rest(each.event.response, each.at)
        for each in history.events
        if isinstance(each.event, TerminalEvent | ExecutionSuspended)
    ]
    turns = tuple(map(fold.turn, fold.open))
    if rests:
        turns = _with_results(turns, rests[-1].response)
    is_running, has_acted = _is_running(history), _has_acted(history)
    return RecordedTurns(history.header, turns, tuple(rests), is_running, not history.events, has_acted)


@dataclass(slots=True)
class _OpenTurn:
    reply: Reply
    part: int
    is_closed: bool = False
    ended: dict[ToolCallId, EndedCall] = field(default_factory=dict)
    waiting: set[ToolCallId] = field(default_factory=set)
    """Calls whose tool has asked a question, and that have not run since."""


class _Fold:
    def __init__(self, history: ExecutionHistory) -> None:
        self.open: list[_OpenTurn] = []
        self._steps = history.steps
        self._part = 0

    def take(self, stored: StoredEvent) -> None:
        """Take the next event."""
        event = stored.event
        if isinstance(event, ExecutionSuspended):
            self._part += 1
        elif type(event) in TERMINAL_EVENTS:
            self._close()
        elif not _is_outermost(stored):
            return
        elif isinstance(event, InferenceStart):
            self._close()
        elif isinstance(event, InferenceEnd):
            step = self._steps.get(StepKey(stored.anchor))
            if step is not None and isinstance(step.outcome, AttemptSucceeded):
                self.open.append(_OpenTurn(step.outcome.reply, self._part))
        elif isinstance(event, ToolEnd) and self.open:
            self._end_call(self.open[-1], stored, event)

    def turn(self, open_turn: _OpenTurn) -> RecordedTurn:
        """Return the turn with the calls that have ended, without those of a round that still runs."""
        ended = (open_turn.ended.get(call.id) for call in open_turn.reply.tool_calls)
        calls = [each for each in ended if each is not None and (open_turn.is_closed or each.part < self._part)]
        return RecordedTurn(open_turn.reply, open_turn.part, tuple(calls))

    def _close(self) -> None:
        """Let the calls of the last turn have ended, those that were answered by a person, too."""
        if not self.open or self.open[-1].is_closed:
            return
        last = self.open[-1]
        last.is_closed = True
        for call in last.reply.tool_calls:
            if call.id in last.waiting:
                last.ended[call.id] = EndedCall(call, self._part, None, is_error=False)

    def _end_call(self, turn: _OpenTurn, stored: StoredEvent, end: ToolEnd) -> None:
        call = next((call for call in turn.reply.tool_calls if call.id == end.tool_call_id), None)
        step = self._steps.get(StepKey(stored.anchor))
        outcome = None if step is None else step.outcome
        if call is None or outcome is None or (isinstance(outcome, ToolEnded) and not outcome.ran):
            return
        if isinstance(outcome, ToolCallSuspended):
            turn.waiting.add(call.id)
            return
        turn.waiting.discard(call.id)
        result = outcome.content if isinstance(outcome, ToolEnded) else None
        turn.ended[call.id] = EndedCall(call, self._part, result, is_error=not end.success)


def _is_running(history: ExecutionHistory) -> bool:
    """Return False for an execution that has ended or waits; it goes on once every suspension has its answer."""
    answered: set[SuspensionId] = set()
    for stored in reversed(history.events):
        event = stored.event
        if isinstance(event, ExecutionResumed):
            answered.add(event.suspension_id)
        elif isinstance(event, ExecutionSuspended):
            return answered.issuperset(each.suspension_id for each in event.suspensions)
        elif isinstance(event, TerminalEvent | LifecycleTransition):
            return isinstance(event, LifecycleTransition)
    return True


def _has_acted(history: ExecutionHistory) -> bool:
    """Return True if a call has begun of a tool that was not offered as safe to run twice, or a node of a flow."""
    setups = [step.outcome for step in history.steps.values() if isinstance(step.outcome, InferenceSetup)]
    safe = {tool.name for setup in setups for tool in setup.tools if not tool.unsafe}
    return any(
        isinstance(event, NodeStart)
        or (isinstance(event, ToolStart) and not event.client and event.tool_name not in safe)
        for event in (stored.event for stored in history.events)
    )


def _is_outermost(stored: StoredEvent) -> bool:
    """Return True for an event of an inference of the outermost conversation, or of a call of its reply."""
    depth = _CALL_DEPTH if isinstance(stored.event, ToolEnd) else _INFERENCE_DEPTH
    is_numbered = step_number_of(stored.anchor) is not None
    return is_numbered and stored.correlation.step_name is None and stored.anchor.count("/") == depth


def _with_results(turns: Sequence[RecordedTurn], response: SystemResponse) -> tuple[RecordedTurn, ...]:
    """Return the turns with the results that only the response has: those of agents and of answered questions."""
    made = {call.id: call for call in reversed(response.tool_calls_made)}

    def calls(turn: RecordedTurn) -> Iterator[EndedCall]:
        for each in turn.calls:
            known = made.get(each.call.id) if each.result is None else None
            yield each if known is None else replace(each, result=known.result, is_error=known.is_error)

    return tuple([replace(turn, calls=tuple(calls(turn))) for turn in turns])
