"""Strict JSON reader: no value is lost or changed, and everything it rejects has its reason."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.domain.strict_json import (
    DEFAULT_MAX_DEPTH,
    MAX_WRITABLE_DEPTH,
    StrictJsonError,
    dumps,
    is_deeper,
    loads,
    raw_decode,
)

WORDS = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.none() | st.booleans() | WORDS | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
TOO_LARGE = st.integers(2**64, 10**40) | st.integers(-(10**40), -(2**63) - 1)
COLONS = st.sampled_from([":", " : ", ":\n", "\t:"])
REJECTED = [
    ("", "Expecting value at line 1, column 1"),
    ('{"a": 1,}', "Illegal trailing comma before end of object at line 1, column 8"),
    ("[1, \n2,\n ]", "Illegal trailing comma before end of array at line 2, column 2"),
    ('{"a": 1', "Expecting ',' delimiter at line 1, column 8"),
    ("['a']", "Expecting value"),
    ("NaN", "NaN is not JSON"),
    ("[Infinity]", "Infinity is not JSON"),
    ("[-Infinity]", "-Infinity is not JSON"),
    ("[1e400]", "a number does not fit 64 bits"),
    ("[18446744073709551616]", "a number does not fit 64 bits"),
    ("[-9223372036854775809]", "a number does not fit 64 bits"),
    ("184467440737095516160", "a number does not fit 64 bits"),
    (f"[{'9' * 5000}]", "a number does not fit 64 bits"),
    ('{"a": 1, "a": 1}', "an object has the same key twice"),
    (r'["\ud800"]', "a string is not Unicode text"),
    (r'{"\udfff": 1}', "a string is not Unicode text"),
    ("[" * (DEFAULT_MAX_DEPTH + 1) + "]" * (DEFAULT_MAX_DEPTH + 1), f"it is nested deeper than {DEFAULT_MAX_DEPTH}"),
    ("[" * 20_000 + "]" * 20_000, f"it is nested deeper than {DEFAULT_MAX_DEPTH}"),
]


@given(value=VALUES, indent=st.sampled_from([None, 1]), escaped=st.booleans(), colon=COLONS)
def test_a_written_value_is_read_back(value: Any, indent: int | None, escaped: bool, colon: str) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped, separators=(",", colon))
    assert loads(text.encode()) == value


@given(VALUES)
@settings(deadline=None, max_examples=200, derandomize=True)
def test_a_value_in_the_middle_of_a_text_ends_where_it_ends(value: Any) -> None:
    text = json.dumps(value)
    assert raw_decode(f"x{text} and more", 1) == (value, len(text) + 1)


@pytest.mark.parametrize(("text", "reason"), REJECTED)
def test_a_rejected_text_has_its_reason(text: str, reason: str) -> None:
    with pytest.raises(StrictJsonError, match=reason):
        loads(text.encode())
    with pytest.raises(StrictJsonError, match=reason):
        raw_decode(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [(b"\xff", "the text is not UTF-8"), (b"{} {}", "Extra data"), (b"\xef\xbb\xbf1", "Expecting value")],
)
def test_a_whole_text_is_one_value_in_utf_8(text: bytes, reason: str) -> None:
    with pytest.raises(StrictJsonError, match=reason):
        loads(text)


def test_a_lone_surrogate_in_a_decoded_text_is_rejected() -> None:
    with pytest.raises(StrictJsonError, match="not Unicode text"):
        raw_decode('["\ud800"]')


@given(
    before=st.dictionaries(st.text(), SCALARS, max_size=3),
    key=st.text(),
    values=st.tuples(VALUES, VALUES),
    escaped=st.booleans(),
    colon=COLONS,
)
def test_a_duplicate_key_is_rejected(
    before: dict[str, Any], key: str, values: tuple[Any, Any], escaped: bool, colon: str
) -> None:
    members = [*before.items(), *((key, value) for value in values)]
    texts = [f"{json.dumps(name)}{colon}{json.dumps(value, ensure_ascii=escaped)}" for name, value in members]
    for outer in ("{%s}", '[1, {"inner": {%s}}]'):
        with pytest.raises(StrictJsonError, match="twice"):
            loads((outer % ",".join(texts)).encode())


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":0,"a":1e6}',
        b'{"a" :1,"a":2}',
        b'{"b":"\\u003a","a":1,"a":2}',
        b'{"b":"\\u003A\\u003A" ,"a":":","a":2}',
        b'{"\\u0061":1,"a":1}',
    ],
)
def test_no_other_change_of_the_text_hides_a_duplicate_key(text: bytes) -> None:
    with pytest.raises(StrictJsonError, match="twice"):
        loads(text)


STRINGS = ("a", "b", ":", '":', "null", "[", "}{", "é", "\\")
MEMBER_VALUES = st.sampled_from([*map(json.dumps, STRINGS), "1", "1e5", "null", r'"\u003a"', r'"\":"'])


@given(
    st.lists(st.tuples(st.sampled_from(STRINGS), MEMBER_VALUES), max_size=5),
    st.sampled_from([":", ": ", " : "]),
    st.booleans(),
)
@settings(deadline=None, max_examples=500, derandomize=True)
def test_no_content_of_strings_hides_a_duplicate_key(
    members: list[tuple[str, str]], colon: str, ascii_only: bool
) -> None:
    written = (f"{json.dumps(key, ensure_ascii=ascii_only)}{colon}{inner}" for key, inner in members)
    text = "{" + ", ".join(written) + "}"
    if len(dict(members)) == len(members):
        assert raw_decode(text)[0] == json.loads(text)
    else:
        with pytest.raises(StrictJsonError, match="twice"):
            raw_decode(text)


@given(number=TOO_LARGE, around=st.sampled_from(["%d", " %d", '{"n": %d}', '[1,%d,"x"]', '{"a":1e6,"b":"\\/","n":%d}']))
def test_an_integer_beyond_64_bits_is_rejected_and_never_becomes_a_float(number: int, around: str) -> None:
    with pytest.raises(StrictJsonError, match="64 bits"):
        loads((around % number).encode())


def test_numbers_keep_their_digits() -> None:
    assert loads(b"[18446744073709551615, -9223372036854775808, 0.1]") == [2**64 - 1, -(2**63), 0.1]


@pytest.mark.parametrize("depth", [1, 3, DEFAULT_MAX_DEPTH, MAX_WRITABLE_DEPTH])
def test_the_deepest_accepted_value_has_as_many_levels_as_are_allowed(depth: int) -> None:
    text = "[" * depth + "]" * depth
    value = loads(text.encode(), max_depth=depth)
    assert raw_decode(text, max_depth=depth) == (value, len(text))
    assert orjson.dumps(value) == text.encode()
    assert not is_deeper(value, depth)
    assert is_deeper(value, depth - 1)
    with pytest.raises(StrictJsonError, match=f"nested deeper than {depth}"):
        loads(f"[{text}]".encode(), max_depth=depth)


def test_brackets_in_strings_are_not_levels() -> None:
    text = "[" * 1000
    assert raw_decode(json.dumps([text])) == ([text], 1004)


@pytest.mark.parametrize("disguise", ['"]", ', '"]]]]", "[", ', '"}{", '])
def test_brackets_in_strings_do_not_hide_levels(disguise: str) -> None:
    text = f"[{disguise}" * DEFAULT_MAX_DEPTH + "[]" + "]" * DEFAULT_MAX_DEPTH
    with pytest.raises(StrictJsonError, match="nested deeper"):
        raw_decode(text)


@pytest.mark.parametrize("around", ["", " ", "\n"])
@pytest.mark.parametrize("member", ['"x"', r'"\u0061"'])
def test_whitespace_around_a_value_is_not_part_of_it(around: str, member: str) -> None:
    text = f'{around}{{"a": [1, {member}]}}{around}'
    value, end = raw_decode(text)
    assert value == {"a": [1, json.loads(member)]} == loads(text.encode())
    assert not text[end:].strip()


@pytest.mark.parametrize(
    ("value", "source", "reason"),
    [
        (2**64, "18446744073709551616", "64 bits"),
        (float("inf"), "1e400", "64 bits"),
        ([None, float("-inf")], "[null, -1e400]", "64 bits"),
        ("\ud800", r'"\ud800"', "not Unicode text"),
        ([[[[]]]], "[[[[]]]]", "nested deeper than 3"),
    ],
)
def test_a_value_of_a_lenient_reader_is_checked_when_it_is_written(value: Any, source: str, reason: str) -> None:
    with pytest.raises(StrictJsonError, match=reason):
        dumps(value, source, max_depth=3)
    assert dumps({"a": None}, '{"a": null}', max_depth=3) == b'{"a":null}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "line 1, column 1: expected a value, found the end"),
        (b'{"a": }', "line 1, column 7: expected a value, found '}'"),
        (b'{"a": 1,\n "b" 2}', "line 2, column 6: expected ':', found '2'"),
        (b"{'a': 1}", "line 1, column 2: expected a key in double quotes, found '''"),
        (b'{"a": 1 "b"}', "line 1, column 9: expected ',' or a closing bracket, found '\"'"),
        (b"{}x", "line 1, column 3: expected the end, found 'x'"),
        (b'{"a": "b', "line 1, column 7: expected an end of the string that begins here, found '\"'"),
        (b'["\x01"]', "line 1, column 3: expected the control character to be escaped, found U+0001"),
        ("\ufeff{}".encode(), "line 1, column 1: expected a value, found U+FEFF"),
        (b"{NaN}", "line 1, column 2: expected a key in double quotes, found 'N'"),
        (b"[NaN]", "NaN is not JSON"),
    ],
)
def test_the_reason_for_people_names_the_place_and_what_was_found(text: bytes, reason: str) -> None:
    with pytest.raises(StrictJsonError) as caught:
        loads(text)
    assert caught.value.reason == reason
