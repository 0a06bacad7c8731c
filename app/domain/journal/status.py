"""Status of an execution, folded from its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from app.domain.contract.response import SystemResponse
from app.domain.failures import Code
from app.domain.journal.events import (
    Event,
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    FallbackTransition,
    InferenceStart,
    LifecycleTransition,
    StepEnd,
    StepStart,
    StoredEvent,
    ToolEnd,
    ToolStart,
    VoteCast,
    VoteDecided,
)
from app.domain.journal.outcomes import RecordedStep
from app.domain.journal.step_key import StepKey
from app.domain.lifecycle import TERMINAL, State
from app.domain.model_call import RULES


@dataclass(frozen=True, slots=True)
class ExecutionStatus:
    """State, progress, most recent error, the engine that was asked last, and the response if there is one.

    `entered_at` and `started_at`, the time at which it began to run, are in Unix seconds. `total_steps` counts the plan
    steps that have ended, or else the top-level inferences; `last_step` is the name of the last of them, or `round N`.
    A fork may begin at step 0 to `fork_points`; an earlier version did not store it. The execution may have recovered
    from the error.
    """

    entered_at: float
    state: State = State.INIT
    attempt: int = 1
    total_steps: int = 0
    last_step: str | None = None
    last_error: Code | None = None
    response: SystemResponse | None = None
    started_at: float | None = None
    provider: str | None = None
    model: str | None = None
    fork_points: int | None = 0
    last_round: int = -1
    """Number of the top-level step of the last inference that was counted."""

    @property
    def ended(self) -> bool:
        """Return True in a terminal state."""
        return self.state in TERMINAL

    def apply(self, steps: Sequence[RecordedStep], events: Sequence[StoredEvent]) -> "ExecutionStatus":
        """Return the status after these steps and events."""
        entered_at, state, attempt, started_at = self.entered_at, self.state, self.attempt, self.started_at
        last_error, response, provider, model = self.last_error, self.response, self.provider, self.model
        relevant = [each for each in events if type(each.event) in _RELEVANT]
        for stored in relevant:
            event = stored.event
            if isinstance(event, LifecycleTransition):
                state, attempt, entered_at, response = event.to_state, event.attempt, stored.at, None
                if event.from_state is None:
                    started_at = stored.at
            elif isinstance(event, InferenceStart):
                provider, model = event.provider, event.model
            elif isinstance(event, _RESTING):
                response = event.response
            last_error = _error_code(event) or last_error
        total_steps, last_step, last_round = self._count(relevant)
        return ExecutionStatus(
            entered_at,
            state,
            attempt,
            total_steps,
            last_step,
            last_error,
            response,
            started_at,
            provider,
            model,
            max(self.fork_points or 0, _last_started(steps, relevant)),
            last_round,
        )

    def _count(self, events: Sequence[StoredEvent]) -> tuple[int, str | None, int]:
        """Return `total_steps`, `last_step` and `last_round` after these events."""
        total, last_step, last_round = self.total_steps, self.last_step, self.last_round
        for stored in events:
            event = stored.event
            if isinstance(event, InferenceStart) and last_round < (number := _round(stored, event)):
                total, last_round = total + 1, number
                last_step = f"round {total}"
            elif isinstance(event, StepStart) and event.attempt > 1:
                total -= 1
            elif isinstance(event, StepEnd):
                total, last_step = total + 1, stored.correlation.step_name
        return total, last_step, last_round


def _round(stored: StoredEvent, start: InferenceStart) -> int:
    """Return the number of the top-level step that the inference is, or of the vote that it is for; -1 if of none."""
    if stored.correlation.step_name is None:
        key = StepKey(stored.anchor)
        if start.replica is not None or "/" not in key.parent:
            return key.step_number or 0
    return -1


def _last_started(steps: Sequence[RecordedStep], events: Sequence[StoredEvent]) -> int:
    """Return the highest number of the top-level steps that have an outcome, a start, or an open suspension."""
    keys = [step.key for step in steps]
    for stored in events:
        if isinstance(stored.event, _STARTS):
            keys.append(StepKey(stored.anchor))
        elif isinstance(stored.event, ExecutionSuspended):
            keys += [StepKey(each.suspension_id) for each in stored.event.suspensions]
    return max((StepKey(key).step_number or 0 for key in keys), default=0)


def _error_code(event: Event) -> Code | None:
    """Return the code of the error that the event reports, if any."""
    match event:
        case FallbackTransition() | LifecycleTransition(State.VALIDATE, State.EXECUTE):
            return _CODES.get(event.reason)
        case ToolEnd() | StepEnd() | VoteCast() | VoteDecided():
            return event.error_code
        case ExecutionSuspended() | ExecutionCompleted() | ExecutionFailed() | ExecutionCancelled():
            return event.response.error.code if event.response.error else None
        case _:
            return None


_CODES: Mapping[str, Code] = MappingProxyType(
    {reason.value: rule.code for reason, rule in RULES.items()} | {code.lower(): code for code in Code}
)
"""Code of a failed attempt or of a rejected answer, by the reason of the transition that follows it."""
_RESTING = (ExecutionSuspended, ExecutionCompleted, ExecutionFailed, ExecutionCancelled)
_STARTS = (InferenceStart, ToolStart, StepStart)
_RELEVANT = frozenset(
    {LifecycleTransition, FallbackTransition, ToolEnd, StepEnd, VoteCast, VoteDecided, *_STARTS, *_RESTING}
)
"""Most events do not change the status; they are skipped at once."""
