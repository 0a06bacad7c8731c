"""How a branch ends, and what the branches of a gather come to together."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Generic, TypeAlias, TypeVar

from app.domain.failures import Code, Failure
from app.domain.fingerprints import digest
from app.domain.frozen import dataclass
from app.domain.journal.outcomes import RaceDecided, RecordedStep
from app.ports.runtime import Clock

T = TypeVar("T")


class BranchStopped(BaseException):
    """The branch ends here: it, or the whole execution, was stopped before or while this was done."""


class BranchSuspended(BaseException):
    """The branch waits for an answer that does not exist yet."""


BranchEnd: TypeAlias = T | Failure | BranchStopped | BranchSuspended
"""A branch's end as a value."""


async def capture(
    branch: Callable[[], Awaitable[T]], held: BranchStopped | BranchSuspended | None = None
) -> BranchEnd[T]:
    """The branch's result, or why it has none, which is known already where it is `held`."""
    if held is not None:
        return held
    try:
        return await branch()
    except (Failure, BranchStopped, BranchSuspended) as interrupted:
        return interrupted


def finished_results(settled: Mapping[int, BranchEnd[T]]) -> dict[int, T | Failure]:
    """What came to a result, in order."""
    in_order = sorted(settled.items(), key=lambda each: each[0])
    return {index: each for index, each in in_order if not isinstance(each, BranchStopped | BranchSuspended)}


def blocked_by(settled: Mapping[int, BranchEnd[T]], earlier: Sequence[int]) -> BranchStopped | BranchSuspended | None:
    """What keeps a branch from beginning that comes after these: the first of them that came to no result."""
    ends = (settled[index] for index in earlier)
    return next((end for end in ends if isinstance(end, BranchStopped | BranchSuspended)), None)


def has_diverged(value: object) -> bool:
    """Whether it is the failure of a replay, which is nobody's result."""
    return isinstance(value, Failure) and value.code is Code.ORCHESTRATION_REPLAY_DIVERGED


def collect(settled: Mapping[int, BranchEnd[T]], counted: Sequence[int]) -> dict[int, T | Failure]:
    """What counts, in order. Raises what is no result: a divergence anywhere first, then Dropped, then Suspended."""
    for each in settled.values():
        if isinstance(each, Failure) and has_diverged(each):
            raise each
    for interruption in (BranchStopped, BranchSuspended):
        if any(isinstance(settled[index], interruption) for index in counted):
            raise interruption
    in_order = ((index, settled[index]) for index in counted)
    return {index: each for index, each in in_order if not isinstance(each, BranchStopped | BranchSuspended)}


class Deadline:
    """So many seconds from when it is entered, or begun again. Left before they have passed, nothing is called."""

    def __init__(self, clock: Clock, seconds: float, passed: Callable[[], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._passed = passed

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())

    def restart(self) -> None:
        """What has passed until now does not count."""
        self._call_off()
        self._begin()

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call_off()
        # What is called is the execution's own: the circle would keep both until garbage is collected.
        del self._passed, self._call_off

    def _begin(self) -> None:
        self._at = self._clock.monotonic() + self._seconds
        self._call_off = self._clock.call_later(self._seconds, self._passed)


@dataclass(slots=True)
class EarlyStop(Generic[T]):
    """Branches that need not all be waited for. `until` sees the finished ones by number and says when it is enough.

    It is pure, and true of more whenever it was true of fewer. The decision stands under `key`, `at` is its time.
    """

    key: str
    branch_count: int
    until: Callable[[Mapping[int, T | Failure]], bool]
    winners: tuple[int, ...] | None = None
    decided_at: float = 0.0

    @property
    def fingerprint(self) -> str:
        """What a journal knows the decision again by."""
        return digest("gather", self.key, self.branch_count)

    @property
    def cancelled_prefixes(self) -> tuple[str, ...]:
        """What the keys of those branches begin with that did not count."""
        counted = range(self.branch_count) if self.winners is None else self.winners
        return tuple(f"{self.key}/{index}/" for index in range(self.branch_count) if index not in counted)

    def apply(self, row: RecordedStep) -> None:
        """Takes the recorded decision."""
        assert isinstance(row.outcome, RaceDecided)  # noqa: S101 - what a race can come to
        self.winners, self.decided_at = row.outcome.winners, row.at


@dataclass(slots=True)
class TimeLimit:
    """How many seconds of running time a branch may take. That they have passed stands under `key`."""

    key: str
    seconds: float
    expired_at: float | None = None

    @property
    def fingerprint(self) -> str:
        """What a journal knows the decision again by."""
        return digest("within", self.key, self.seconds)

    @property
    def prefix(self) -> str:
        """What the keys of the branch begin with."""
        return f"{self.key}/0/"
