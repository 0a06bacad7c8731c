"""Statistics: executions by state and duration over time."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil, floor
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, Field

from portico.domain.access.principal import AccessScope, Principal
from portico.domain.failures import invalid_request
from portico.domain.lifecycle import Mode, State
from portico.domain.value import value
from portico.ports.runtime import Clock
from portico.ports.storage import DURATION_BOUNDS, CountSelection, ExecutionCount, RecordStore

MAX_BUCKETS: Final = 1_500
MAX_AGE_S: Final = 1.0
_DEFAULT_SPAN_S: Final = 3_600.0
BucketName = Literal["minute", "hour", "day"]
_WIDTHS: Final = MappingProxyType[BucketName, int]({"minute": 60, "hour": 3_600, "day": 86_400})
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_LATEST: Final = datetime.max.replace(tzinfo=UTC).timestamp()
_OUT_OF_RANGE: Final = "must be within the years 1 to 9999 in UTC"
_Key: TypeAlias = tuple[AccessScope, CountSelection]


class BucketView(BaseModel):
    """The executions that were created within one bucket."""

    start: datetime = Field(description="Begin of the bucket, in UTC.")
    states: dict[State, int] = Field(description="Number of executions by the state that they have now.")
    durations: list[int] = Field(
        description="Number of those that have ended by seconds from their start to their end: a count for each of "
        "`duration_bounds`, and a last one above all of them."
    )


class StatisticsView(BaseModel):
    """Executions over time. Buckets without any are left out."""

    since: datetime = Field(description="Begin of the first bucket.")
    until: datetime = Field(description="End of the last bucket.")
    bucket: BucketName = Field(description="Width of a bucket.")
    duration_bounds: list[float] = Field(description="Upper bounds of the classes of durations, in seconds.")
    buckets: list[BucketView] = Field(description="Buckets with executions, the oldest first.")


@value
class StatisticsSelection:
    """Executions to count: those created from `since` to `until`, both widened to whole buckets; None counts all.

    Without `until` it is now, and without `since` an hour before.
    """

    bucket: BucketName = "minute"
    since: datetime | None = None
    until: datetime | None = None
    agent: str | None = None
    mode: Mode | None = None
    model: str | None = None


class Statistics:
    """Counts of stored executions, by principal. A result is used for a second by callers with the same rights."""

    def __init__(self, store: RecordStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._recent: dict[_Key, tuple[float, StatisticsView]] = {}

    async def read(self, principal: Principal, selection: StatisticsSelection) -> StatisticsView:
        """Return the counts of the executions that the principal may read.

        Raises: RequestFailure (REQUEST_INVALID) for no bucket, or too many; StorageFailure.
        """
        where = _widened(selection, self._clock.now())
        key, now = (principal.readable, where), self._clock.monotonic()
        recent = self._recent.get(key)
        if recent is not None and now - recent[0] < MAX_AGE_S:
            return recent[1]
        view = _view(where, selection.bucket, await self._store.counts(principal.readable, where))
        self._recent = {each: known for each, known in self._recent.items() if now - known[0] < MAX_AGE_S}
        self._recent[key] = (now, view)
        return view


def _widened(selection: StatisticsSelection, now: float) -> CountSelection:
    """Return what is to be counted, in whole buckets. Raises: RequestFailure (REQUEST_INVALID)."""
    width = _WIDTHS[selection.bucket]
    until = now if selection.until is None else selection.until.timestamp()
    since = until - _DEFAULT_SPAN_S if selection.since is None else selection.since.timestamp()
    first, last = floor(since / width), ceil(until / width)
    if first * width < _EARLIEST:
        raise invalid_request(("since", _OUT_OF_RANGE))
    if last <= first:
        raise invalid_request(("until", "must be later than since"))
    if last - first > MAX_BUCKETS:
        message = f"must be at most {MAX_BUCKETS} buckets after since; choose a wider bucket"
        raise invalid_request(("until", message))
    if last * width >= _LATEST:
        raise invalid_request(("until", _OUT_OF_RANGE))
    times = (float(first * width), float(last * width))
    return CountSelection(*times, width, agent=selection.agent, mode=selection.mode, model=selection.model)


def _view(where: CountSelection, bucket: BucketName, counts: Sequence[ExecutionCount]) -> StatisticsView:
    buckets: dict[int, BucketView] = {}
    for count in counts:
        found = buckets.get(count.start)
        if found is None:
            empty = BucketView(start=_time(count.start), states={}, durations=[0] * (len(DURATION_BOUNDS) + 1))
            found = buckets[count.start] = empty
        found.states[count.state] = found.states.get(count.state, 0) + count.number
        if count.duration_class is not None:
            found.durations[count.duration_class] += count.number
    return StatisticsView(
        since=_time(where.since),
        until=_time(where.until),
        bucket=bucket,
        duration_bounds=list(DURATION_BOUNDS),
        buckets=list(buckets.values()),
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
