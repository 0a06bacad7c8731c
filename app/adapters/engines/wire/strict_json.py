"""Parses JSON strictly: no NaN, no lone surrogates, no bottomless nesting, no key twice, no integer above 64 bits.

orjson sees to the first three. Of the others nothing is left to see in a text that comes back as it was when its value
is written. One that does not, since it holds blanks or escapes, is looked at: every member has its colon, whoever
writes it, so that a key that was lost shows in their number. Only what is still in doubt is parsed a second time, which
is ten times as dear as the first.
"""

import json
from typing import Any, Final

import orjson

DIGITS: Final = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
BLANKS: Final = b" \n\r\t"
LONG: Final = b"0" * 19
"""Of so many digits is the smallest integer that may not fit into 64 bits."""


def loads(text: bytes) -> Any:
    """Raises: ValueError."""
    value = orjson.loads(text)
    try:
        written = orjson.dumps(value)
        if written != text and _may_be_more(text, written):
            _STRICT.decode(text.decode())
    except (orjson.JSONEncodeError, RecursionError):
        raise ValueError("nested too deeply") from None
    return value


def _may_be_more(text: bytes, written: bytes) -> bool:
    """Whether a text may hold a member or a digit that its value, as it is written, does not. Colons may be escaped."""
    return text.translate(None, BLANKS) != written.translate(None, BLANKS) and (
        text.count(b":") != written.count(b":")
        or LONG in text.translate(DIGITS)
        or b"\\u003a" in text
        or b"\\u003A" in text
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return members


def _word(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**64:
        raise ValueError("an integer is larger than 64 bits")
    return number


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_word)
