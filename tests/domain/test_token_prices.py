"""The cost of a usage: tokens read from a cache and written to one have their own prices."""

import pytest

from portico.domain.contract.response import TokenUsage
from portico.domain.token_prices import FREE, TokenPrices

PRICES = TokenPrices(input=3.0, output=15.0, cached=0.3, cache_write=3.75)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (TokenUsage(), 0),
        (TokenUsage(input_tokens=1_000, output_tokens=10), 3_000 + 150),
        (TokenUsage(input_tokens=1_000, cached_tokens=1_000), 300),
        (TokenUsage(input_tokens=1_000, cache_write_tokens=1_000), 3_750),
        (TokenUsage(input_tokens=1_000, cached_tokens=600, cache_write_tokens=300), 300 + 180 + 1_125),
        (TokenUsage(input_tokens=100, cached_tokens=600), 180),
    ],
)
def test_every_part_of_the_input_has_its_own_price(usage: TokenUsage, cost: float) -> None:
    assert PRICES.cost_of(usage) == pytest.approx(cost / 1_000_000)
    assert FREE.cost_of(usage) == 0


@pytest.mark.parametrize(
    ("usage", "saved"),
    [
        (TokenUsage(input_tokens=1_000, output_tokens=10), None),
        (TokenUsage(input_tokens=1_000, cached_tokens=600), 600 * 2.7),
        (TokenUsage(input_tokens=1_000, cache_write_tokens=300), -300 * 0.75),
        (TokenUsage(input_tokens=1_000, cached_tokens=600, cache_write_tokens=300), 600 * 2.7 - 300 * 0.75),
    ],
)
def test_a_cache_saves_what_its_tokens_had_cost_without_it_less_what_they_cost(
    usage: TokenUsage, saved: float | None
) -> None:
    assert PRICES.saved_by_cache(usage) == (None if saved is None else pytest.approx(saved / 1_000_000))


def test_the_dearest_input_token_may_be_one_that_is_written_to_a_cache() -> None:
    assert PRICES.dearest_input_token == 3.75 / 1_000_000
    assert TokenPrices.without_cache(3.0, 15.0).dearest_input_token == 3.0 / 1_000_000
