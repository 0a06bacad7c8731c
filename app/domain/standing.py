"""Where an execution stands, as its record tells it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.boundary import SystemResponse
from app.domain.effects import Row
from app.domain.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    LifecycleTransition,
    Recorded,
    ToolEnd,
    VoteCast,
    VoteDecided,
)
from app.domain.failures import Code
from app.domain.lifecycle import TERMINAL, State


@dataclass(frozen=True, slots=True)
class Standing:
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

    def after(self, row: Row | None, events: Sequence[Recorded]) -> "Standing":
        """Where it stands with that step and these events recorded too."""
        standing = self
        if row is not None:
            standing = replace(standing, total_steps=self.total_steps + 1, last_step=row.key)
        for event in events:
            standing = _told(standing, event)
        return standing


def _told(standing: Standing, told: Recorded) -> Standing:
    match told.event:
        case LifecycleTransition(to_state=state, attempt=attempt):
            return replace(standing, state=state, attempt=attempt, entered_at=told.at, response=None)
        case ToolEnd(error_code=code) | VoteCast(error_code=code) | VoteDecided(error_code=code) if code is not None:
            return replace(standing, last_error=code)
        case ExecutionSuspended() | ExecutionCompleted() | ExecutionFailed() | ExecutionCancelled() as last:
            error = last.response.error
            return replace(standing, response=last.response, last_error=error.code if error else standing.last_error)
        case _:
            return standing
