"""Strict JSON reader, for request bodies, replies of providers and answers of models.

It accepts RFC 8259 JSON and rejects what readers usually let pass: NaN and Infinity, duplicate keys, numbers that do
not fit 64 bits, lone surrogates, and nesting deeper than `max_depth`. Every value it returns can be written again.

Theory of operation

1. orjson reads the text. It lets three things pass: it keeps the last of duplicate keys, turns long integers into
   floats, and may nest deeper than `max_depth`.
2. The value is written again. If that gives the same text, nothing was lost. Otherwise the colons are counted: each
   member has one, so a lost member shows in their number unless a colon is escaped. A run of 19 digits may be a long
   integer.
3. While a doubt remains, Python's reader decides. Its hooks reject all of the above, but it takes ten times as long.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

import orjson

DEFAULT_MAX_DEPTH: Final = 64
MAX_WRITABLE_DEPTH: Final = 254
"""The deepest nesting that orjson writes."""
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_MAX_DIGITS: Final = 20
_DIGITS: Final = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_EXPECTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Expecting value": "expected a value",
        "Expecting property name": "expected a key in double quotes",
        "Expecting ':'": "expected ':'",
        "Expecting ','": "expected ',' or a closing bracket",
        "Illegal trailing comma": "expected no ',' before the closing bracket",
        "Extra data": "expected the end",
        "Unterminated string": "expected an end of the string that begins here",
        "Invalid control character": "expected the control character to be escaped",
        "Invalid \\": "expected an escape that JSON has",
    }
)
"""The expectation behind each message of Python's reader, by its beginning."""
_WHITESPACE: Final = " \n\r\t"
_WHITESPACE_BYTES: Final = _WHITESPACE.encode()
_LONG_INTEGER: Final = b"0" * 19
"""The shortest integer that may not fit 64 bits, after a translation by `_DIGITS`."""
_IN_DOUBT: Final = object()
_CONTAINERS = (dict, list)


class StrictJsonError(ValueError):
    """Rejected text; the message quotes none of the text.

    Models read the message. `reason` is for people: of a syntax error it names the line, the column, the expectation
    and the character there.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message


def loads(text: bytes, *, max_depth: int = DEFAULT_MAX_DEPTH) -> Any:
    """Return the value that a whole text in UTF-8 holds. Raises: StrictJsonError."""
    value = _read_fast(text, max_depth)
    if value is not _IN_DOUBT:
        return value
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise StrictJsonError("the text is not UTF-8") from None
    value, end = _read_slowly(decoded, 0, max_depth)
    if _skip_whitespace(decoded, end) < len(decoded):
        raise _syntax_error(json.JSONDecodeError("Extra data", decoded, end))
    return value


def raw_decode(text: str, start: int = 0, *, max_depth: int = DEFAULT_MAX_DEPTH) -> tuple[Any, int]:
    """Return the value that begins at an index of the text, or after whitespace there, and the index after it.

    Whitespace between the value and the end of the text may count as part of it. Raises: StrictJsonError.
    """
    try:
        value = _read_fast(text[start:].encode(), max_depth)
    except UnicodeEncodeError:
        value = _IN_DOUBT
    return _read_slowly(text, start, max_depth) if value is _IN_DOUBT else (value, len(text))


def dumps(value: Any, source: str, *, max_depth: int = DEFAULT_MAX_DEPTH) -> bytes:
    """Return a value as JSON that a more lenient reader found in `source`.

    Raises: StrictJsonError for an integer beyond 64 bits, an infinity, a lone surrogate, or nesting that is too deep.
    """
    try:
        written = orjson.dumps(value)
    except orjson.JSONEncodeError as fault:
        raise _unwritable(value, str(fault), max_depth) from None
    if max_depth < MAX_WRITABLE_DEPTH and _is_deep(value, written, max_depth):
        raise too_deep(max_depth)
    nulls = written.count(b"null")
    if nulls and nulls > source.count("null"):
        _reject_infinity(value)
    return written


def is_deeper(value: Any, depth: int) -> bool:
    """Return True if objects and lists are nested in each other more than `depth` times."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(depth):
        if not level:
            return False
        level = [child for parent in level for child in _children(parent) if isinstance(child, _CONTAINERS)]
    return bool(level)


def unique_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these members. Raises: StrictJsonError for a duplicate key."""
    found = dict(members)
    if len(found) < len(members):
        raise StrictJsonError("an object has the same key twice")
    return found


def too_deep(max_depth: int) -> StrictJsonError:
    """Return the error for nesting deeper than `max_depth`."""
    return StrictJsonError(f"it is nested deeper than {max_depth}")


def _read_fast(text: bytes, max_depth: int) -> Any:
    """Return the value if it is certain that nothing was lost, otherwise `_IN_DOUBT`."""
    try:
        value = orjson.loads(text)
        written = orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return _IN_DOUBT
    if written != text and _may_have_lost(text, written):
        return _IN_DOUBT
    if max_depth < MAX_WRITABLE_DEPTH and _is_deep(value, written, max_depth):
        return _IN_DOUBT
    return value


def _may_have_lost(text: bytes, written: bytes) -> bool:
    """Return True if the text may hold a member or a digit that is missing from the written value.

    Spaces are what most texts differ in, and are removed in half the time of all whitespace.
    """
    if text.replace(b" ", b"") == written.replace(b" ", b""):
        return False
    return text.translate(None, _WHITESPACE_BYTES) != written.translate(None, _WHITESPACE_BYTES) and (
        text.count(b":") != written.count(b":")
        or _LONG_INTEGER in text.translate(_DIGITS)
        or b"\\u003a" in text
        or b"\\u003A" in text
    )


def _read_slowly(text: str, start: int, max_depth: int) -> tuple[Any, int]:
    try:
        value, end = _READER.raw_decode(text, _skip_whitespace(text, start))
    except json.JSONDecodeError as fault:
        raise _syntax_error(fault) from None
    except RecursionError:
        raise too_deep(max_depth) from None
    dumps(value, text[start:end], max_depth=max_depth)
    return value, end


def _is_deep(value: Any, written: bytes, max_depth: int) -> bool:
    """Return True if the value is nested too deeply. orjson writes nothing deeper than `MAX_WRITABLE_DEPTH`."""
    if written.count(b"[") + written.count(b"{") <= max_depth:
        return False
    return is_deeper(value, max_depth)


def _skip_whitespace(text: str, start: int) -> int:
    while start < len(text) and text[start] in _WHITESPACE:
        start += 1
    return start


def _children(parent: Any) -> Iterable[Any]:
    return parent.values() if isinstance(parent, dict) else parent


def _unwritable(value: Any, reason: str, max_depth: int) -> StrictJsonError:
    if "surrogates" in reason:
        return StrictJsonError("a string is not Unicode text")
    return too_deep(min(max_depth, MAX_WRITABLE_DEPTH)) if is_deeper(value, MAX_WRITABLE_DEPTH) else _too_large()


def _reject_infinity(value: Any) -> None:
    """Reject numbers that were read as infinities; they are written as `null`."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise _too_large() from None


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or not _MIN_INTEGER <= (number := int(digits)) <= _MAX_INTEGER:
        raise _too_large()
    return number


def _constant(name: str) -> NoReturn:
    raise StrictJsonError(f"{name} is not JSON")


def _syntax_error(fault: json.JSONDecodeError) -> StrictJsonError:
    fault = _at_trailing_comma(fault)
    expected = next((text for start, text in _EXPECTED.items() if fault.msg.startswith(start)), "expected JSON")
    place = f"line {fault.lineno}, column {fault.colno}"
    reason = f"{place}: {expected}, found {_character_at(fault.doc, fault.pos)}"
    return StrictJsonError(f"{fault.msg} at {place}", reason)


def _at_trailing_comma(fault: json.JSONDecodeError) -> json.JSONDecodeError:
    """Return the fault as Python 3.13 words it: at a comma before a closing bracket, and no longer at the bracket."""
    ends = {"]": "array", "}": "object"}.get(fault.doc[fault.pos : fault.pos + 1])
    before = fault.doc[: fault.pos].rstrip(_WHITESPACE)
    if ends is None or not before.endswith(",") or not fault.msg.startswith("Expecting "):
        return fault
    return json.JSONDecodeError(f"Illegal trailing comma before end of {ends}", fault.doc, len(before) - 1)


def _character_at(text: str, index: int) -> str:
    if index >= len(text):
        return "the end"
    character = text[index]
    return f"'{character}'" if character.isascii() and character.isprintable() else f"U+{ord(character):04X}"


def _too_large() -> StrictJsonError:
    return StrictJsonError("a number does not fit 64 bits")


_READER: Final = json.JSONDecoder(object_pairs_hook=unique_object, parse_int=_integer, parse_constant=_constant)
