"""Status of an execution, folded from its history."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.contract.response import SystemResponse
from app.domain.failures import Code
from app.domain.journal.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    InferenceStart,
    LifecycleTransition,
    StepEnd,
    StoredEvent,
    ToolEnd,
    VoteCast,
    VoteDecided,
)
from app.domain.journal.outcomes import RecordedStep
from app.domain.journal.step_key import StepKey
from app.domain.lifecycle import TERMINAL, State


@dataclass(frozen=True, slots=True)
class ExecutionStatus:
    """State, number of steps, most recent error, the engine that was asked last, and the response if there is one.

    `entered_at` and `started_at`, the time at which it began to run, are in Unix seconds. The execution may have
    recovered from the error.
    """

    entered_at: float
    state: State = State.INIT
    attempt: int = 1
    total_steps: int = 0
    last_step: StepKey | None = None
    last_error: Code | None = None
    response: SystemResponse | None = None
    started_at: float | None = None
    provider: str | None = None
    model: str | None = None

    @property
    def ended(self) -> bool:
        """Return True in a terminal state."""
        return self.state in TERMINAL

    def apply(self, steps: Sequence[RecordedStep], events: Sequence[StoredEvent]) -> "ExecutionStatus":
        """Return the status after these steps and events."""
        entered_at, state, attempt = self.entered_at, self.state, self.attempt
        last_error, response = self.last_error, self.response
        started_at, provider, model = self.started_at, self.provider, self.model
        for stored in events:
            event = stored.event
            if type(event) not in _RELEVANT:
                continue
            if isinstance(event, LifecycleTransition):
                state, attempt, entered_at, response = event.to_state, event.attempt, stored.at, None
                if event.from_state is None:
                    started_at = stored.at
            elif isinstance(event, InferenceStart):
                provider, model = event.provider, event.model
            elif isinstance(event, _MAY_FAIL):
                last_error = event.error_code or last_error
            elif isinstance(event, _RESTING):
                response = event.response
                last_error = response.error.code if response.error else last_error
        total_steps = self.total_steps + len(steps)
        last_step = steps[-1].key if steps else self.last_step
        return ExecutionStatus(
            entered_at, state, attempt, total_steps, last_step, last_error, response, started_at, provider, model
        )


_MAY_FAIL = (ToolEnd, StepEnd, VoteCast, VoteDecided)
_RESTING = (ExecutionSuspended, ExecutionCompleted, ExecutionFailed, ExecutionCancelled)
_RELEVANT = frozenset({LifecycleTransition, InferenceStart, *_MAY_FAIL, *_RESTING})
"""Most events do not change the status; they are skipped at once."""
