"""Token usage of a reply, from the counts that its parts report: at its beginning, at its end, or repeatedly.

Counts are read as they come and checked once, when the usage is asked for. Usage that cannot be true is none.
"""

from math import inf
from typing import Any, Final, NamedTuple

from portico.domain.contract.response import NO_USAGE, TokenUsage
from portico.domain.value import value

NO_COUNT: Final = -1
"""A count that cannot be true."""


class TokenCounts(NamedTuple):
    """Token counts that one part of a reply reports, with the fields of `TokenUsage`.

    They are not checked yet, so that any of them may be another value than a number. A total of 0 is not reported.
    """

    input_tokens: Any = 0
    output_tokens: Any = 0
    reasoning_tokens: Any = 0
    cached_tokens: Any = 0
    total_tokens: Any = 0
    cache_write_tokens: Any = 0


@value
class UsageBounds:
    """The most tokens that a reply can have used. The text of a reply bounds nothing: reasoning may be hidden."""

    input_tokens: float = inf
    output_tokens: float = inf


NO_BOUNDS: Final = UsageBounds()


class UsageAccumulator:
    """The usage of one reply so far. A reported count replaces the earlier one unless it is 0."""

    __slots__ = (
        *("_bounds", "_cache_written", "_cached", "_is_repeated", "_read", "_reasoning", "_total", "_written"),
        "is_known",
    )

    def __init__(self, bounds: UsageBounds) -> None:
        self._bounds = bounds
        self._read: Any = 0
        self._written: Any = 0
        self._reasoning: Any = 0
        self._cached: Any = 0
        self._cache_written: Any = 0
        self._total: Any = 0
        self._is_repeated = False
        self.is_known = False
        """True once any part has reported counts."""

    def add(self, counts: TokenCounts) -> None:
        """Add the counts of the next part."""
        read, written, reasoning, cached, self._total, cache_written = counts
        if read:
            self._read = read
        if written:
            self._written = written
        if reasoning:
            self._reasoning = reasoning
        if cached:
            self._cached = cached
        if cache_written:
            self._cache_written = cache_written
        self._is_repeated = self.is_known
        self.is_known = True

    def usage(self) -> TokenUsage:
        """Return the usage so far: `NO_USAGE` if none is known, or a count is no whole number or out of its bounds.

        The provider's own total counts where one part reports all.
        """
        if not self.is_known:
            return NO_USAGE
        most_read, most_written = self._bounds.input_tokens, self._bounds.output_tokens
        bounds = (most_read, most_written, most_written, most_read, most_read, most_read + most_written)
        counts = (self._read, self._written, self._reasoning, self._cached, self._cache_written, self._total)
        for count, most in zip(counts, bounds, strict=True):
            if type(count) is not int or not 0 <= count <= most:
                return NO_USAGE
        together = self._read + self._written
        return TokenUsage(
            input_tokens=self._read,
            output_tokens=self._written,
            reasoning_tokens=self._reasoning,
            cached_tokens=self._cached,
            cache_write_tokens=self._cache_written,
            total_tokens=max(self._total, together) if self._is_repeated else self._total or together,
        )


def sum_counts(*counts: Any) -> Any:
    """Return the sum of counts that a provider reports apart; a count that cannot be true if one of them cannot."""
    return sum(counts) if all(type(count) is int and count >= 0 for count in counts) else NO_COUNT
