"""What is parsed is what was written, wherever blanks and escapes stand; what a value cannot hold is refused."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.engines.wire.strict_json import loads

WORDS = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.none() | st.booleans() | WORDS | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
TOO_LARGE = st.integers(2**64, 10**40) | st.integers(-(10**40), -(2**63) - 1)
COLONS = st.sampled_from([":", " : ", ":\n", "\t:"])


@given(value=VALUES, blanks=st.sampled_from([None, 1]), escaped=st.booleans(), colon=COLONS)
def test_a_value_is_what_was_written_however_it_was(value: Any, blanks: int | None, escaped: bool, colon: str):
    text = json.dumps(value, indent=blanks, ensure_ascii=escaped, separators=(",", colon))
    assert loads(text.encode()) == value


@given(
    before=st.dictionaries(st.text(), SCALARS, max_size=3),
    key=st.text(),
    values=st.tuples(VALUES, VALUES),
    escaped=st.booleans(),
    colon=COLONS,
)
def test_a_key_that_comes_twice_is_refused(
    before: dict[str, Any], key: str, values: tuple[Any, Any], escaped: bool, colon: str
):
    members = [*before.items(), *((key, value) for value in values)]
    texts = [f"{json.dumps(name)}{colon}{json.dumps(value, ensure_ascii=escaped)}" for name, value in members]
    for outer in ("{%s}", '[1, {"inner": {%s}}]'):
        with pytest.raises(ValueError, match="twice"):
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
def test_a_key_that_comes_twice_is_not_hidden_by_what_else_changes(text: bytes):
    with pytest.raises(ValueError, match="twice"):
        loads(text)


@given(number=TOO_LARGE, around=st.sampled_from(["%d", " %d", '{"n": %d}', '[1,%d,"x"]', '{"a":1e6,"b":"\\/","n":%d}']))
def test_an_integer_above_64_bits_is_refused_and_never_a_float(number: int, around: str):
    with pytest.raises(ValueError, match="64 bits"):
        loads((around % number).encode())


@pytest.mark.parametrize("text", [b"184467440737095516160", b"-9223372036854775809", b"9" * 300])
def test_an_integer_that_is_as_long_as_its_float_is_refused_too(text: bytes):
    with pytest.raises(ValueError, match="64 bits"):
        loads(text)


@pytest.mark.parametrize(
    "text", [b"NaN", b"[Infinity]", b"1e999", b"9" * 5000, b'"\\ud800"', b"\xff", b"[" * 5000, b"{'a':1}", b""]
)
def test_what_is_no_json_is_refused(text: bytes):
    with pytest.raises(ValueError):
        loads(text)


def test_what_was_read_can_be_written_again():
    with pytest.raises(ValueError, match="nested too deeply"):
        loads(b"[" * 300 + b"]" * 300)
    deep = b"[" * 200 + b"]" * 200
    assert orjson.dumps(loads(deep)) == deep
