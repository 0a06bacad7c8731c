"""Prices of tokens, and the cost of a usage by them."""

from typing import Final

from portico.domain.contract.response import TokenUsage
from portico.domain.value import value

_MILLION: Final = 1_000_000


@value
class TokenPrices:
    """Prices of a million tokens, in the configured currency.

    `cached` is the price of input tokens that were read from a cache, `cache_write` of those that were written to one,
    `input` of all others.
    """

    input: float
    output: float
    cached: float
    cache_write: float

    @classmethod
    def without_cache(cls, input_price: float, output_price: float) -> "TokenPrices":
        """Return prices that do not depend on a cache."""
        return cls(input_price, output_price, input_price, input_price)

    @property
    def dearest_input_token(self) -> float:
        """The most that one input token costs."""
        return max(self.input, self.cached, self.cache_write) / _MILLION

    @property
    def output_token(self) -> float:
        """The cost of one output token."""
        return self.output / _MILLION

    def cost_of(self, usage: TokenUsage) -> float:
        """Return the cost of a usage."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        others = max(0, usage.input_tokens - cached - written)
        reading = others * self.input + cached * self.cached + written * self.cache_write
        return (reading + usage.output_tokens * self.output) / _MILLION

    def saved_by_cache(self, usage: TokenUsage) -> float | None:
        """Return what the tokens read from and written to a cache had cost as other input, less what they cost.

        It is negative if the cache did not pay, and None if the usage has no such tokens.
        """
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        if not cached and not written:
            return None
        return (cached * (self.input - self.cached) + written * (self.input - self.cache_write)) / _MILLION


FREE: Final = TokenPrices.without_cache(0.0, 0.0)
