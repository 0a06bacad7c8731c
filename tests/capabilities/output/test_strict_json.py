"""Nothing is lost in silence where JSON is read strictly."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.capabilities.output.strict_json import MOST_LEVELS, UnacceptableError, is_deeper, read

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(values)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_what_json_writes_is_read_back_and_ends_where_it_ends(value: Any) -> None:
    text = json.dumps(value)
    assert read(f"x{text} and more", 1) == (value, len(text) + 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value at line 1, column 1"),
        ('{"a": 1,}', "Expecting property name"),
        ('{"a": 1', "Expecting ',' delimiter at line 1, column 8"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e400]", "a number does not fit 64 bits"),
        ("[18446744073709551616]", "a number does not fit 64 bits"),
        ("[-9223372036854775809]", "a number does not fit 64 bits"),
        (f"[{'9' * 5000}]", "a number does not fit 64 bits"),
        ('{"a": 1, "a": 1}', "an object has the same key twice"),
        (r'["\ud800"]', "a string is not Unicode text"),
        ('["\ud800"]', "a string is not Unicode text"),
        ("[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1), f"it is nested deeper than {MOST_LEVELS}"),
        ("[" * 20_000 + "]" * 20_000, f"it is nested deeper than {MOST_LEVELS}"),
        ("['a']", "Expecting value"),
    ],
)
def test_what_is_no_acceptable_json_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UnacceptableError, match=why):
        read(text)


def test_numbers_keep_their_digits() -> None:
    assert read("[18446744073709551615, -9223372036854775808, 0.1]")[0] == [2**64 - 1, -(2**63), 0.1]


def test_the_deepest_value_that_is_taken_has_as_many_levels_as_the_contract_allows() -> None:
    value, _ = read("[" * MOST_LEVELS + "]" * MOST_LEVELS)
    assert not is_deeper(value, MOST_LEVELS)
    assert is_deeper(value, MOST_LEVELS - 1)


def test_brackets_in_strings_are_no_levels() -> None:
    text = "[" * 1000
    assert read(json.dumps([text])) == ([text], 1004)


@pytest.mark.parametrize("disguise", ['"]", ', '"]]]]", "[", ', '"}{", '])
def test_brackets_in_strings_hide_no_levels(disguise: str) -> None:
    text = f"[{disguise}" * MOST_LEVELS + "[]" + "]" * MOST_LEVELS
    with pytest.raises(UnacceptableError, match="nested deeper"):
        read(text)


TEXTS = ("a", "b", ":", '":', "null", "[", "}{", "é", "\\")


def pairs_text(pairs: list[tuple[str, str]], colon: str, *, ascii_only: bool) -> str:
    """An object with these members, whose keys may repeat."""
    members = (f"{json.dumps(key, ensure_ascii=ascii_only)}{colon}{inner}" for key, inner in pairs)
    return "{" + ", ".join(members) + "}"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TEXTS),
            st.sampled_from(TEXTS).map(json.dumps) | st.sampled_from(["1", "1e5", "null", r'"\u003a"', r'"\":"']),
        ),
        max_size=5,
    ),
    st.sampled_from([":", ": ", " : "]),
    st.booleans(),
)
@settings(deadline=None, max_examples=500, derandomize=True)
def test_a_key_that_stands_twice_is_found_whatever_strings_hold(
    pairs: list[tuple[str, str]], colon: str, ascii_only: bool
) -> None:
    text = pairs_text(pairs, colon, ascii_only=ascii_only)
    if len(dict(pairs)) == len(pairs):
        assert read(text)[0] == json.loads(text)
    else:
        with pytest.raises(UnacceptableError, match="twice"):
            read(text)


@pytest.mark.parametrize("around", ["", " ", "\n"])
def test_blanks_around_a_value_are_no_part_of_it(around: str) -> None:
    text = f'{{"a": [1, "x"]}}{around}'
    value, end = read(text)
    assert value == {"a": [1, "x"]}
    assert not text[end:].strip()
