"""Limits of a key or a tenant, and the arithmetic of their rates.

A rate is enforced by the generic cell rate algorithm: `quota` units may be taken at once, and taken units come back at
`quota / seconds` a second. Its whole state is `full_at`, the time in Unix seconds at which all units are back.
"""

from enum import StrEnum
from math import ceil, inf
from typing import Final

from portico.domain.value import value

DEFAULT_TENANT: Final = "default"
"""Name of the configuration of every tenant that has none of its own."""
MILLIONTHS: Final = 1_000_000
"""Units of a cost limit in one unit of the currency."""
LEASES: Final = 40
"""A replica leases this part of what is left of a limit, to spend it without asking again."""
_CLOCK_RESOLUTION_S: Final = 1e-6
_PART_OF_UNIT: Final = 1e-3
"""A unit that is missing by the precision of a time in Unix seconds, or of many sums of such, counts as back."""


class LimitKind(StrEnum):
    """The kinds of limits, under their names in configuration and headers."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    COST = "cost"
    CONCURRENCY = "concurrency"


@value(slots=False)
class Rate:
    """So many units in so many seconds; those of a cost are millionths of the currency."""

    quota: int
    seconds: int

    def available(self, full_at: float, now: float) -> int:
        """Return the units that may be taken now."""
        missing_s = full_at - now - _CLOCK_RESOLUTION_S
        missing = ceil(missing_s * self.quota / self.seconds - _PART_OF_UNIT)
        return min(self.quota, max(0, self.quota - missing))

    def take(self, full_at: float, now: float, units: int) -> float:
        """Return the state after so many units are taken, or given back if negative; all of them may be missing."""
        return max(full_at, now) + units * self.seconds / self.quota

    def seconds_until(self, full_at: float, now: float, units: int) -> float:
        """Return after how long so many units may be taken; infinite if they never may."""
        if units > self.quota:
            return inf
        fits_at = full_at - (self.quota - units) * self.seconds / self.quota
        wait = fits_at - now
        return wait if wait > _CLOCK_RESOLUTION_S + _PART_OF_UNIT * self.seconds / self.quota else 0.0


@value(slots=False)
class AccessLimits:
    """Limits of a key or a tenant: rates, and executions that run at the same time. None is no limit."""

    requests: Rate | None = None
    tokens: Rate | None = None
    cost: Rate | None = None
    concurrency: int | None = None


NO_LIMITS: Final = AccessLimits()


def parse_rate(text: str, *, units: int = 1) -> Rate:
    """Return the rate of a text `N/S`, so many in so many seconds; `units` are those of 1.

    Raises: ValueError.
    """
    amount, slash, seconds = text.partition("/")
    whole, point, fraction = amount.partition(".")
    digits = fraction.rstrip("0")
    is_number = whole.isdecimal() and whole.isascii() and (not point or (fraction.isdecimal() and fraction.isascii()))
    precision = len(str(units)) - 1
    if not (slash and is_number and len(digits) <= precision and seconds.isdecimal() and seconds.isascii()):
        raise ValueError(f"must be N/S, so many per so many whole seconds, with at most {precision} decimals")
    quota = int(whole) * units + (int(digits.ljust(precision, "0")) if digits else 0)
    if not 1 <= quota <= _MOST_UNITS or not 1 <= int(seconds) <= _MOST_SECONDS:
        raise ValueError(f"must be more than 0 per 1 to {_MOST_SECONDS} seconds")
    return Rate(quota, int(seconds))


def format_rate(rate: Rate, *, units: int = 1) -> str:
    """Return the text that `parse_rate` reads."""
    whole, rest = divmod(rate.quota, units)
    fraction = f".{rest:0{len(str(units)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}{fraction}/{rate.seconds}"


_MOST_UNITS: Final = 10**15 - 1
"""Largest integer of a structured field."""
_MOST_SECONDS: Final = 366 * 86_400
