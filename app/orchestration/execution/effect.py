"""What an execution is asked to do: leaves, the questions they may come to, races between branches, steps of a plan."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import JsonValue

from app.domain.contract.response import StepStatus, SuspensionKind
from app.domain.failures import Code
from app.domain.fingerprints import question_digest
from app.domain.frozen import dataclass
from app.domain.journal.events import CorrelationContext, Event, StepEnd
from app.domain.journal.outcomes import AttemptCancelled, Outcome, RecordedStep

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing to do, and how it is told.

    `act` does it; `cut_off` says what it had used when it is cancelled. `end` gives the events that belong to an
    outcome and is asked once; `count` is told the step, acted or remembered. An `instant` act never waits, so what is
    held need not be put before it.
    """

    key: str
    fingerprint: str
    correlation: CorrelationContext
    run: Callable[[], Awaitable[Outcome]]
    start_event: Event | None = None
    end_events: Callable[[Outcome], Sequence[Event]] = lambda outcome: ()
    count: Callable[[RecordedStep], None] = lambda row: None
    cancelled_outcome: Callable[[], AttemptCancelled] | None = None
    instant: bool = False
    non_idempotent: "NonIdempotent | None" = None


@dataclass(frozen=True, slots=True)
class NonIdempotent:
    """A call that must not act twice.

    `doubtful` says that an outcome leaves open whether it has happened. Then `question` is asked, the first of which is
    that of number 0, and `told` is the outcome that an answer gives, None where it is to be run. `unknown` is its
    outcome when nobody can be asked any more.
    """

    question: Callable[[int], "SuspensionRequest"]
    is_uncertain: Callable[[Outcome], bool]
    outcome_from_answer: Callable[[JsonValue], Outcome | None]
    unknown_outcome: Outcome


@dataclass(frozen=True, slots=True)
class SuspensionRequest:
    """An open question: what a suspension will show."""

    key: str
    kind: SuspensionKind
    tool_id: str
    value: JsonValue
    tool_call_id: str | None = None
    arguments_digest: str | None = None

    @property
    def fingerprint(self) -> str:
        """What a journal knows it again by."""
        return question_digest(self.key, self.kind, self.tool_id, self.value)


@dataclass(slots=True)
class StepProgress:
    """A step of a plan that has begun. `anchor` is what the start of its latest attempt hangs behind.

    `began_at` is in Unix seconds, by what was recorded last.
    """

    step_type: str
    context: CorrelationContext
    attempt: int = 0
    anchor: str = ""
    started_at: float = 0.0

    def end_event(self, status: StepStatus, *, at: float, code: Code | None) -> StepEnd:
        """How the latest attempt ended."""
        return StepEnd(self.step_type, self.attempt, status, max(0.0, at - self.started_at) * 1000, code)
