"""Equal values have the same canonical text, different values different ones."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.output.canonical_json import canonical_json
from tests.support.equal_json import SPELLED_TWICE, equal_json
from tests.support.seeds import randomised

BOUNDED = randomised(300)
SCALARS = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([-0.0, 0.5, 1.0, 2.0, "", "1", "é", "e\u0301"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(("one", "other"), SPELLED_TWICE)
def test_the_order_of_keys_and_the_spelling_of_a_number_make_no_difference(one: Any, other: Any) -> None:
    assert canonical_json(one) == canonical_json(other)


@BOUNDED
@given(VALUES, VALUES)
def test_two_values_have_one_text_exactly_if_json_schema_calls_them_equal(one: Any, other: Any) -> None:
    assert (canonical_json(one) == canonical_json(other)) is equal_json(one, other)
    assert (canonical_json(one) == canonical_json(other)) is jsonschema_rs.is_valid({"const": one}, other)


@BOUNDED
@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 63))
def test_whole_floats_of_any_size_equal_integers(number: int, shift: int) -> None:
    whole = float(number >> shift)
    if whole < 2**64:
        assert canonical_json([whole]) == canonical_json([int(whole)])


@BOUNDED
@given(VALUES)
def test_canonical_text_is_json_of_the_same_value(value: Any) -> None:
    assert equal_json(orjson.loads(canonical_json(value)), value)
