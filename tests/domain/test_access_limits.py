"""The arithmetic of rates, and their texts."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.access.limits import MILLIONTHS, Rate, format_rate, parse_rate

NOW = 1_790_000_000.0


def test_the_quota_may_be_taken_at_once_and_comes_back_evenly() -> None:
    rate = Rate(quota=600, seconds=60)
    empty = rate.take(0.0, NOW, 600)
    assert empty == NOW + 60
    assert [rate.available(empty, NOW + seconds) for seconds in (0, 0.05, 0.1, 1, 59.95, 60, 1_000)] == [
        *(0, 0, 1, 10, 599, 600, 600)
    ]


def test_a_wait_is_exactly_as_long_as_the_units_need_to_come_back() -> None:
    rate = Rate(quota=10, seconds=5)
    state = rate.take(0.0, NOW, 8)
    assert rate.seconds_until(state, NOW, 2) == 0
    assert rate.seconds_until(state, NOW, 3) == pytest.approx(0.5)
    assert rate.available(state, NOW + rate.seconds_until(state, NOW, 9)) == 9
    assert rate.seconds_until(state, NOW, 11) == inf


def test_units_that_are_given_back_never_exceed_the_quota() -> None:
    rate = Rate(quota=10, seconds=10)
    assert rate.available(rate.take(NOW + 2, NOW, -9), NOW) == 10
    assert rate.available(rate.take(NOW + 8, NOW, -3), NOW) == 5


@given(
    quota=st.integers(1, 10**9),
    seconds=st.integers(1, 10**6),
    steps=st.lists(st.tuples(st.floats(0, 1.5), st.floats(0, 1)), max_size=40),
)
def test_no_window_grants_more_than_twice_the_quota_and_never_more_than_is_left(
    quota: int, seconds: int, steps: list[tuple[float, float]]
) -> None:
    rate, state, now = Rate(quota, seconds), 0.0, NOW
    granted = 0
    for windows, share in steps:
        now += windows * seconds
        left = rate.available(state, now)
        units = int(share * left)
        state = rate.take(state, now, units)
        granted += units
        assert 0 <= units <= left <= quota
        assert granted <= quota + (now - NOW + 1e-5) * quota / seconds + len(steps)


@pytest.mark.parametrize(
    ("text", "units", "rate"),
    [
        ("600/60", 1, Rate(600, 60)),
        ("5/3600", MILLIONTHS, Rate(5_000_000, 3600)),
        ("0.25/86400", MILLIONTHS, Rate(250_000, 86_400)),
        ("0.000001/1", MILLIONTHS, Rate(1, 1)),
    ],
)
def test_a_rate_is_read_and_written_as_text(text: str, units: int, rate: Rate) -> None:
    assert parse_rate(text, units=units) == rate
    assert format_rate(rate, units=units) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "600", "600/", "/60", "600/60/1", "600 / 60", "-1/60", "1.5/60", "1e3/60", "٣/60", "600/0", "0/60"),
        *("600/1.5", "9999999999999999/60", "1/99999999", "1./60", "nan/1"),
    ],
)
def test_another_text_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_rate(text)
