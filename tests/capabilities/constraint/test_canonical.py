"""Equal values have one text, others another."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.capabilities.constraint.canonical import canonical

BOUNDED = settings(derandomize=True, deadline=None, max_examples=300)
SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([-0.0, 0.5, 1.0, 2.0, "", "1", "é", "e\u0301"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def same(one: Any, other: Any) -> bool:
    """Equality of instances as JSON Schema defines it."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": [1, {"c": 2, "d": 3}]}, {"b": [1, {"d": 3, "c": 2}], "a": 1}),
        (1, 1.0),
        (0, -0.0),
        ([{"a": 1e3}], [{"a": 1000}]),
        (10**16, 1e16),
        (2**63, float(2**63)),
        (-(2**63), -float(2**63)),
    ],
)
def test_the_order_of_keys_and_the_spelling_of_a_number_make_no_difference(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)


@BOUNDED
@given(VALUES, VALUES)
def test_two_values_have_one_text_exactly_when_json_schema_calls_them_equal(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) is same(one, other)
    assert (canonical(one) == canonical(other)) is jsonschema_rs.is_valid({"const": one}, other)


@BOUNDED
@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 63))
def test_whole_floats_of_any_size_are_the_integers_they_are(number: int, shift: int) -> None:
    whole = float(number >> shift)
    if whole < 2**64:
        assert canonical([whole]) == canonical([int(whole)])


@BOUNDED
@given(VALUES)
def test_canonical_text_is_json_of_the_same_value(value: Any) -> None:
    assert same(orjson.loads(canonical(value)), value)
