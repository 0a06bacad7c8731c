"""Token usage of a reply, from the counts that its parts report: at its beginning, at its end, or repeatedly."""

from dataclasses import dataclass
from typing import NamedTuple

from app.domain.contract.response import NO_USAGE, TokenUsage


class TokenCounts(NamedTuple):
    """Token counts that one part of a reply reports, with the fields of `TokenUsage`."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    total_tokens: int = 0


@dataclass(slots=True)
class UsageAccumulator:
    """The usage of one reply so far. A reported count replaces the earlier one unless it is 0."""

    _counts: TokenCounts | None = None

    def add(self, counts: TokenCounts) -> None:
        """Add the counts of the next part."""
        known = self._counts
        if known is None:
            self._counts = counts
            return
        read = counts.input_tokens or known.input_tokens
        written = counts.output_tokens or known.output_tokens
        self._counts = TokenCounts(
            read,
            written,
            counts.reasoning_tokens or known.reasoning_tokens,
            counts.cached_tokens or known.cached_tokens,
            max(counts.total_tokens, read + written),
        )

    @property
    def is_known(self) -> bool:
        """True once any part has reported counts."""
        return self._counts is not None

    def usage(self) -> TokenUsage:
        """Return the usage that is known by now."""
        return NO_USAGE if self._counts is None else TokenUsage(**self._counts._asdict())
