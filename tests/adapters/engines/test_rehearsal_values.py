"""Single numbers and strings that are made up."""

from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.adapters.engines.rehearsal.scalars import NumberRange, StringForm, exact, numbers, strings


def first(options: int | None) -> int:
    return 0


@pytest.mark.parametrize(
    ("kept", "number"),
    [
        (NumberRange(), 1),
        (NumberRange(least=exact(4)), 4),
        (NumberRange(least=exact(4), open_least=True), 5),
        (NumberRange(most=exact(-2.5)), -2.5),
        (NumberRange(most=exact(1), open_most=True), 0),
        (NumberRange(least=exact(0), open_least=True, most=exact(1), open_most=True), 0.5),
        (NumberRange(steps=(exact(0.1),)), 1),
        (NumberRange(least=exact(0.25), steps=(exact(0.1),)), 0.3),
        (NumberRange(steps=(exact(4), exact(6))), 12),
        (NumberRange(most=exact(-1), steps=(exact(7),)), -7),
    ],
)
def test_the_first_number_is_a_plain_one(kept: NumberRange, number: float) -> None:
    assert next(numbers(kept, first)) == number


@settings(deadline=None, max_examples=300, derandomize=True)
@given(
    *(st.none() | st.floats(allow_nan=False, allow_infinity=False),) * 2,
    st.lists(st.floats(1e-300, 1e300), max_size=2),
    st.integers(0, 99),
)
def test_any_bounds_give_few_numbers_within_them(
    least: float | None, most: float | None, steps: list[float], turn: int
) -> None:
    lower, upper = (None if bound is None else exact(bound) for bound in (least, most))
    kept = NumberRange(lower, False, upper, False, tuple(map(exact, steps)))
    found = list(numbers(kept, lambda options: turn if options is None else turn % options))
    assert len(found) <= 32
    assert all(abs(Fraction(each)) < 2**1024 for each in found)


def test_a_string_is_the_text_as_far_as_it_may_be() -> None:
    assert next(strings(StringForm(), " Hello there ", first)) == "Hello there"
    assert next(strings(StringForm(most=5), "Hello there", first)) == "Hello"
    assert next(strings(StringForm(least=8), "Hello", first)) == "Hello..."
    assert next(strings(StringForm(), "", first)) == "rehearsal"


def test_a_word_of_the_form_that_is_asked_for_comes_before_what_is_made_up() -> None:
    found = list(strings(StringForm(formats=("date",)), "On 2025-02-03.", first))
    assert found.index("2025-02-03") < found.index("2024-01-01")


def test_turns_give_other_strings() -> None:
    found = {next(islice(strings(StringForm(most=3), "Hello", lambda _, turn=turn: turn), 1)) for turn in range(500)}
    assert len(found) == 500


def test_no_string_becomes_endless() -> None:
    assert max(map(len, strings(StringForm(least=10**12), "x", first))) == 65_536
