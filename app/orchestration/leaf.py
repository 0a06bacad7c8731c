"""What an execution is asked to do: leaves, the questions they may come to, races between branches, steps of a plan."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from pydantic import JsonValue

from app.domain.boundary import StepStatus, SuspensionKind
from app.domain.digests import digest, question_digest
from app.domain.effects import CutOff, Decided, Outcome, Row
from app.domain.events import CorrelationContext, Event, StepEnd
from app.domain.failures import Code, Failure
from app.domain.frozen import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leaf:
    """One thing to do, and how it is told.

    `act` does it; `cut_off` says what it had used when it is cancelled. `end` gives the events that belong to an
    outcome and is asked once; `count` is told the step, acted or remembered. An `instant` act never waits, so what is
    held need not be put before it.
    """

    key: str
    fingerprint: str
    correlation: CorrelationContext
    act: Callable[[], Awaitable[Outcome]]
    start: Event | None = None
    end: Callable[[Outcome], Sequence[Event]] = lambda outcome: ()
    count: Callable[[Row], None] = lambda row: None
    cut_off: Callable[[], CutOff] | None = None
    instant: bool = False
    unsafe: "UnsafeCall | None" = None


@dataclass(frozen=True, slots=True)
class UnsafeCall:
    """A call that must not act twice.

    `doubtful` says that an outcome leaves open whether it has happened. Then `question` is asked, the first of which is
    that of number 0, and `told` is the outcome that an answer gives, None where it is to be run. `unknown` is its
    outcome when nobody can be asked any more.
    """

    question: Callable[[int], "Question"]
    doubtful: Callable[[Outcome], bool]
    told: Callable[[JsonValue], Outcome | None]
    unknown: Outcome


@dataclass(frozen=True, slots=True)
class Question:
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
class Race(Generic[T]):
    """Branches that need not all be waited for. `until` sees the finished ones by number and says when it is enough.

    It is pure, and true of more whenever it was true of fewer. The decision stands under `key`, `at` is its time.
    """

    key: str
    branches: int
    until: Callable[[Mapping[int, T | Failure]], bool]
    counted: tuple[int, ...] | None = None
    at: float = 0.0

    @property
    def fingerprint(self) -> str:
        """What a journal knows the decision again by."""
        return digest("gather", self.key, self.branches)

    @property
    def called_off(self) -> tuple[str, ...]:
        """What the keys of those branches begin with that did not count."""
        counted = range(self.branches) if self.counted is None else self.counted
        return tuple(f"{self.key}/{index}/" for index in range(self.branches) if index not in counted)

    def decide(self, row: Row) -> None:
        """Takes the recorded decision."""
        assert isinstance(row.outcome, Decided)  # noqa: S101 - what a race can come to
        self.counted, self.at = row.outcome.counted, row.at


@dataclass(slots=True)
class TimeLimit:
    """How many seconds of running time a branch may take. That they have passed stands under `key`."""

    key: str
    seconds: float
    passed_at: float | None = None

    @property
    def fingerprint(self) -> str:
        """What a journal knows the decision again by."""
        return digest("within", self.key, self.seconds)

    @property
    def branch(self) -> str:
        """What the keys of the branch begin with."""
        return f"{self.key}/0/"


@dataclass(slots=True)
class OpenStep:
    """A step of a plan that has begun. `anchor` is what the start of its latest attempt hangs behind.

    `began_at` is in Unix seconds, by what was recorded last.
    """

    step_type: str
    context: CorrelationContext
    attempt: int = 0
    anchor: str = ""
    began_at: float = 0.0

    def end(self, status: StepStatus, *, at: float, code: Code | None) -> StepEnd:
        """How the latest attempt ended."""
        return StepEnd(self.step_type, self.attempt, status, max(0.0, at - self.began_at) * 1000, code)
