"""Attempts at engines in the last 60 minutes, by the minute, as this process has seen them.

A count costs no call of a function but the first in a minute: every attempt is counted. A duration counts in a class
whose middle is less than 5 % away, so that a minute takes the same memory however much is asked.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType
from typing import Final

from portico.domain.failures import Code
from portico.domain.model_call import RULES

MINUTE_S: Final = 60
MINUTES: Final = 60
CLASS_RATIO: Final = 1.1
"""Ratio of the bounds of a class of durations; class 0 ends at a millisecond."""
CODES: Final = MappingProxyType[str, Code]({reason: rule.code for reason, rule in RULES.items()})
"""Code of a failed attempt by its reason."""


@dataclass(slots=True)
class Minute:
    """Attempts that ended within one minute, which is counted from 1970; `durations` has the answered ones by class."""

    number: int
    attempts: int = 0
    failures: int = 0
    codes: Counter[Code] = field(default_factory=Counter)
    durations: Counter[int] = field(default_factory=Counter)


class RecentAttempts(dict[int, Minute]):
    """The minutes of one engine by number. The first attempt in a minute adds it and drops those of an hour ago."""

    def __missing__(self, number: int) -> Minute:
        for old in [each for each in self if each <= number - MINUTES]:
            del self[old]
        return self.setdefault(number, Minute(number))

    def window(self, now: float) -> list[Minute]:
        """Return the minutes with attempts, the oldest first, of the 60 that end with the minute of `now`."""
        last = int(now // MINUTE_S)
        return [self[number] for number in sorted(self) if last - MINUTES < number <= last]


def percentile(minutes: Sequence[Minute], share: float) -> float | None:
    """Return the milliseconds within which that share of the answered attempts ended; None without any."""
    counts = sum((minute.durations for minute in minutes), Counter[int]())
    left = ceil(share * counts.total())
    for number in sorted(counts):
        left -= counts[number]
        if left <= 0:
            return round(float(CLASS_RATIO ** (number - 0.5)), 1)
    return None
