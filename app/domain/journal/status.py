"""Where an execution stands, as its record tells it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.contract.response import SystemResponse
from app.domain.failures import Code
from app.domain.journal.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    LifecycleTransition,
    StepEnd,
    StoredEvent,
    ToolEnd,
    VoteCast,
    VoteDecided,
)
from app.domain.journal.outcomes import RecordedStep
from app.domain.lifecycle import TERMINAL, State


@dataclass(frozen=True, slots=True)
class ExecutionStatus:
    """An execution's place, its steps so far, its most recent error, and its response while it has one.

    `entered_at` is Unix seconds. The error may have been recovered from.
    """

    entered_at: float
    state: State = State.INIT
    attempt: int = 1
    total_steps: int = 0
    last_step: str | None = None
    last_error: Code | None = None
    response: SystemResponse | None = None

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    def apply(self, rows: Sequence[RecordedStep], events: Sequence[StoredEvent]) -> "ExecutionStatus":
        """Where it stands with these steps and events recorded too."""
        entered_at, state, attempt = self.entered_at, self.state, self.attempt
        last_error, response = self.last_error, self.response
        for told in events:
            event = told.event
            if type(event) not in _TELLING:
                continue
            if isinstance(event, LifecycleTransition):
                state, attempt, entered_at, response = event.to_state, event.attempt, told.at, None
            elif isinstance(event, _MAY_FAIL):
                last_error = event.error_code or last_error
            elif isinstance(event, _LAST):
                response = event.response
                last_error = response.error.code if response.error else last_error
        steps = self.total_steps + len(rows)
        last_step = rows[-1].key if rows else self.last_step
        return ExecutionStatus(entered_at, state, attempt, steps, last_step, last_error, response)


_MAY_FAIL = (ToolEnd, StepEnd, VoteCast, VoteDecided)
_LAST = (ExecutionSuspended, ExecutionCompleted, ExecutionFailed, ExecutionCancelled)
_TELLING = frozenset({LifecycleTransition, *_MAY_FAIL, *_LAST})
"""Most events say nothing about it, and are not looked at twice."""
