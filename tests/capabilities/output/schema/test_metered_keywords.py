"""Metered keywords agree with the library and stay within their budget."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.capabilities.output.schema.metered_keywords import (
    METERED_KEYWORDS,
    CheckBudget,
    metered_validators,
    rename_metered_keywords,
)
from app.capabilities.output.schema.pattern_cost import pattern_cost
from app.capabilities.output.schema.validators import compile_validator
from tests.support.seeds import randomised

BOUNDED = randomised(400)
PLENTY = 10**9
NUMBERS = (
    st.integers(-(2**63), 2**64 - 1)
    | st.integers(-20, 20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-1000, 1000, places=2).map(float)
    | st.sampled_from([0.0, -0.0, 0.1, 0.3, 1e-300, 5e-324, 1e300, 1.7976931348623157e308, 1e16, 2.0**53, 0.07])
)
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.1, 0.01, 0.5, 1e-7, 1e20, 2.5])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=2)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)


def judged(schema: dict[str, Any], value: Any, left: int = PLENTY) -> tuple[bool, int]:
    """Return if the value fits, and the rest of the budget."""
    spared, effort = dict(schema), CheckBudget(left)
    rename_metered_keywords({(): spared})
    assert METERED_KEYWORDS & spared.keys()
    return compile_validator(spared, keywords=metered_validators(effort)).is_valid(value), effort.remaining


def read_again(value: Any) -> Any:
    """Return a copy of the value in which no two parts are the same object."""
    return orjson.loads(orjson.dumps(value))


@BOUNDED
@given(st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), FRACTIONS, NUMBERS | SCALARS)
def test_bounds_with_fractions_agree_with_the_library(keyword: str, bound: float, value: Any) -> None:
    for number in (value, bound):
        fits, _ = judged({keyword: bound}, number)
        assert fits is jsonschema_rs.is_valid({keyword: bound}, number)


@BOUNDED
@given(FRACTIONS.filter(lambda divisor: divisor > 0), NUMBERS | SCALARS, st.integers(-100, 100))
def test_multiples_of_fractions_agree_with_the_library(divisor: float, value: Any, times: int) -> None:
    for number in (value, divisor, divisor * times):
        if number in {float("inf"), float("-inf")}:
            continue
        fits, _ = judged({"multipleOf": divisor}, number)
        assert fits is jsonschema_rs.is_valid({"multipleOf": divisor}, number)


@BOUNDED
@given(st.lists(VALUES, max_size=6) | st.lists(st.sampled_from([1, 1.0, True, "1", [1], [1.0], {"a": 0}, {"a": -0.0}])))
def test_uniqueness_agrees_with_the_library(values: list[Any]) -> None:
    for elements in (values, [*values, *range(100, 120)]):
        fits, _ = judged({"uniqueItems": True}, read_again(elements))
        assert fits is jsonschema_rs.is_valid({"uniqueItems": True}, elements)


@BOUNDED
@given(st.text(alphabet="ab1é", max_size=40))
def test_expensive_patterns_agree_with_the_library(text: str) -> None:
    for pattern in ("a.{5}b", "(?:[ab]{0,5}a){3}1$", r"^(?:\w+é?){2,9}b"):
        fits, _ = judged({"pattern": pattern}, text)
        assert fits is jsonschema_rs.is_valid({"pattern": pattern}, text)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"multipleOf": 3}, 3),
        ({"minimum": 1, "maximum": 2}, 1),
        ({"uniqueItems": False}, [1]),
        ({"pattern": "^[a-z]+$"}, "a"),
        ({"minimum": "x", "multipleOf": [], "pattern": 5, "uniqueItems": 1}, 1),
        ({"multipleOf": -0.5}, 1),
    ],
)
def test_cheap_and_invalid_keywords_are_left_to_the_library(schema: dict[str, Any], value: Any) -> None:
    spared = dict(schema)
    rename_metered_keywords({(): spared})
    assert spared == schema


def test_schema_entries_with_a_metered_name_are_ignored() -> None:
    schema: dict[str, Any] = dict.fromkeys(METERED_KEYWORDS, "(")
    rename_metered_keywords({(): schema, ("properties", "a"): True})
    assert schema == {}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"minimum": 0.5}, 1),
        ({"multipleOf": 0.5}, 1),
        ({"uniqueItems": True}, [[1], [2]]),
        ({"uniqueItems": True}, [[number] for number in range(100)]),
        ({"pattern": "a.{20}b"}, "a" * 100 + "b"),
    ],
)
def test_nothing_fits_beyond_the_budget_and_the_excess_is_visible(schema: dict[str, Any], value: Any) -> None:
    fits, left = judged(schema, value)
    assert (fits, 0 < left < PLENTY) == (True, True)
    fits, left = judged(schema, value, PLENTY - left - 1)
    assert (fits, left < 0) == (False, True)


def test_the_cost_of_a_pattern_is_proportional_to_the_text() -> None:
    for size in (10, 1_000):
        _, left = judged({"pattern": "a.{20}b"}, "x" * size)
        assert PLENTY - left == 100 + size * pattern_cost("a.{20}b")


@pytest.mark.parametrize("number", [1e-300, 5e-324, 1.7976931348623157e308, 3.141592653589793])
def test_numbers_far_from_1_are_checked_within_the_budget(number: float) -> None:
    lists = read_again([[[number] * 200 + [index] for index in range(15)]] * 5)
    schema = {"items": {"items": {"items": {"minimum": -1e300, "multipleOf": 5e-324}}, "uniqueItems": True}}
    rename_metered_keywords({(): schema["items"], (1,): schema["items"]["items"]["items"]})
    assert compile_validator(schema, keywords=metered_validators(CheckBudget(PLENTY))).is_valid(lists)
