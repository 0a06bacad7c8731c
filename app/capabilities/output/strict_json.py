"""Reads JSON as the contract means it wherever it comes from, here from the middle of an answer.

Refused beside what is no JSON: NaN and Infinity, a key twice in one object, numbers that do not fit 64 bits, lone
surrogates, and what is nested deeper than `MOST_LEVELS`. So no digit and no member is ever lost in silence, and all
that is read can be written again.

Python's reader can be told to refuse most of that, pydantic's cannot but takes a third of the time. So pydantic's is
believed where writing the value again proves it right, which it does for nearly every answer; else Python's decides.
Refused: orjson's reader, which rounds long integers.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import orjson
from pydantic_core import from_json

MOST_LEVELS: Final = 64
_UNPROVEN: Final = object()
_CONTAINERS = (dict, list)


class UnacceptableError(ValueError):
    """The text is no JSON value that can be taken; the message says why, and is for people."""


def read(text: str, at: int = 0) -> tuple[Any, int]:
    """The value that begins at that character, and where what follows it begins, blanks before it aside.

    Raises: UnacceptableError.
    """
    value = _proven(text[at:])
    if value is not _UNPROVEN:
        return value, len(text)
    try:
        value, end = _READER.raw_decode(text, at)
    except json.JSONDecodeError as fault:
        raise UnacceptableError(f"{fault.msg} at line {fault.lineno}, column {fault.colno}") from None
    except RecursionError:
        raise _too_deep() from None
    except UnacceptableError:
        raise
    except ValueError:
        raise _too_long() from None
    as_json(value, text[at:end])
    return value, end


def _proven(text: str) -> Any:
    """The value that all of the text is, where that can be proven cheaply, else `_UNPROVEN`.

    Every colon follows a key or stands in a string, and only as a code point could one be written otherwise. So there
    are as many when the value is written again, unless a key, and what it led to, was lost.
    """
    if "\\" in text and "\\u" in text:
        return _UNPROVEN
    try:
        value = from_json(text, allow_inf_nan=False, cache_strings="keys")
        data = as_json(value, text)
    except (ValueError, TypeError):
        return _UNPROVEN
    return value if data.count(b":") == text.count(":") else _UNPROVEN


def as_json(value: Any, text: str) -> bytes:
    """The value as JSON, which was read from that text.

    Raises: UnacceptableError for an integer beyond 64 bits, an infinity, a lone surrogate, and too many levels.
    """
    try:
        data = orjson.dumps(value)
    except orjson.JSONEncodeError as fault:
        raise _unwritable(str(fault)) from None
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS and is_deeper(value, MOST_LEVELS):
        raise _too_deep()
    nulls = data.count(b"null")
    if nulls and nulls > text.count("null"):
        _refuse_infinity(value)
    return data


def _unwritable(why: str) -> UnacceptableError:
    if "surrogates" in why:
        return UnacceptableError("a string is not Unicode text")
    return _too_deep() if "ecursion" in why else _too_long()


def _refuse_infinity(value: Any) -> None:
    """Infinities, which numbers too large are read as, are written as `null`."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise _too_long() from None


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested in each other more often than that."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not level:
            return False
        level = [child for parent in level for child in _children(parent) if isinstance(child, _CONTAINERS)]
    return bool(level)


def _children(parent: Any) -> Iterable[Any]:
    return parent.values() if isinstance(parent, dict) else parent


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members. Raises: UnacceptableError where a key stands twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise UnacceptableError("an object has the same key twice")
    return members


def _constant(name: str) -> NoReturn:
    raise UnacceptableError(f"{name} is not JSON")


def _too_deep() -> UnacceptableError:
    return UnacceptableError(f"it is nested deeper than {MOST_LEVELS}")


def _too_long() -> UnacceptableError:
    return UnacceptableError("a number does not fit 64 bits")


_READER = json.JSONDecoder(object_pairs_hook=unique, parse_constant=_constant)
