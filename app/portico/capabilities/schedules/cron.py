"""Times of a cron expression in a time zone.

| Local time | Runs |
|---|---|
| is skipped, as the clock is put forward | at the change |
| is there twice, as the clock is put back | once, the first time |
| with a star in its minute or hour | whenever the clock shows it: never if it is skipped, twice if it is there twice |

These are the rules of Debian's cron. cronsim finds the local times; they become instants here, since its own changes of
the clock leave out times where the shift is half an hour.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from cronsim import CronSim, CronSimError

from portico.domain.time_zones import time_zone

MAX_LENGTH: Final = 256
_FIELDS: Final = 5
_FIRST_SPAN_S: Final = 3_600.0
_WIDER: Final = 4
_MINUTE: Final = timedelta(minutes=1)
_LARGEST_SHIFT: Final = timedelta(hours=3)
"""A clock is set by two hours at most, at Troll station."""


class Cron:
    """A cron expression of five fields in a time zone of the IANA database.

    Raises: ValueError, for each of the two, if it is none.
    """

    def __init__(self, expression: str, timezone: str) -> None:
        self._expression = expression
        self._zone = time_zone(timezone)
        minute, hour, *_ = require_cron(expression).split()
        self._follows_clock = minute.startswith("*") or hour.startswith("*")

    def next_after(self, after: float) -> float | None:
        """Return the first time after that one, both in Unix seconds; None if there is none within 50 years."""
        return next(self._times_after(after), None)

    def latest(self, after: float, until: float, most: int) -> Sequence[float]:
        """Return the last times after one and until the other, at most so many, the oldest first.

        What is far back is not looked at, so that a long pause of a schedule of every minute takes no time.
        """
        span, found = _FIRST_SPAN_S, list[float]()
        while True:
            start = max(after, until - span)
            found = [*self._times_until(start, until)]
            if len(found) >= most or start == after:
                return found[-most:]
            span *= _WIDER

    def _times_until(self, after: float, until: float) -> Iterator[float]:
        for at in self._times_after(after):
            if at > until:
                return
            yield at

    def _times_after(self, after: float) -> Iterator[float]:
        """Yield all times after that one in order; those of the second pass of a doubled hour wait for their turn."""
        previous, second_pass = after, list[float]()
        begin = datetime.fromtimestamp(after, self._zone).replace(tzinfo=None) - _LARGEST_SHIFT
        for local in CronSim(self._expression, begin):
            first, *second = self._instants(local) or (previous,)
            for at in [*(each for each in second_pass if each < first), first]:
                if at > previous:
                    previous = at
                    yield at
            second_pass = [each for each in (*second_pass, *second) if each > first]

    def _instants(self, local: datetime) -> Sequence[float]:
        """Return the times at which the expression runs for what a clock shows: none, one or two."""
        time = local.replace(tzinfo=self._zone)
        if self._follows_clock:
            return () if _is_skipped(time) else sorted({time.timestamp(), time.replace(fold=1).timestamp()})
        while _is_skipped(time):
            time += _MINUTE
        return (time.timestamp(),)


def _is_skipped(time: datetime) -> bool:
    """Return whether no clock of its zone shows that time."""
    return time != time.astimezone(UTC).astimezone(time.tzinfo)


def require_cron(expression: str) -> str:
    """Return the expression. Raises: ValueError if it has not five fields of cron, or no time at all."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"must have at most {MAX_LENGTH} characters")
    if not expression.isascii() or len(expression.split(" ")) != _FIELDS or len(expression.split()) != _FIELDS:
        raise ValueError("must have five fields, each divided by one space: minute hour day month weekday")
    try:
        first = next(CronSim(expression, _SOME_DAY), None)
    except CronSimError as error:
        raise ValueError(f"is no cron expression: {str(error).lower()}") from None
    if first is None:
        raise ValueError("has no time within 50 years")
    return expression


_SOME_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
