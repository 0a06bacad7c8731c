"""Reads JSON as the contract means it wherever it comes from, here from the middle of an answer.

Refused beside what is no JSON: NaN and Infinity, a key twice in one object, numbers that do not fit 64 bits, lone
surrogates, and what is nested deeper than `MOST_LEVELS`. So no digit and no member is ever lost in silence, and all
that is read can be written again. Refused as readers: orjson and pydantic's, which take a key twice, and of which
the first rounds long integers and the second reads 1e400 as infinity.
"""

import json
from math import isfinite
from typing import Any, Final, NoReturn

import orjson

MOST_LEVELS: Final = 64


class UnacceptableError(ValueError):
    """The text is no JSON value that can be taken; the message says why, and is for people."""


def read(text: str, at: int = 0) -> tuple[Any, int]:
    """The value that begins at that character, and the index after its last one.

    Raises: UnacceptableError.
    """
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
    if text.count("{", at, end) + text.count("[", at, end) > MOST_LEVELS and is_deeper(value, MOST_LEVELS):
        raise _too_deep()
    refuse_unwritable(value)
    return value, end


def refuse_unwritable(value: Any) -> None:
    """Raises: UnacceptableError where a finite value holds an integer beyond 64 bits or a lone surrogate."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as fault:
        if "surrogates" in str(fault):
            raise UnacceptableError("a string is not Unicode text") from None
        raise _too_long() from None


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested in each other more often than that."""
    level = _containers([value])
    for _ in range(levels):
        if not level:
            return False
        level = [child for parent in level for child in _containers(parent)]
    return bool(level)


def _containers(parent: Any) -> list[Any]:
    children = parent.values() if isinstance(parent, dict) else parent
    return [child for child in children if isinstance(child, dict | list)]


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members. Raises: UnacceptableError where a key stands twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise UnacceptableError("an object has the same key twice")
    return members


def _number(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise _too_long()
    return number


def _constant(name: str) -> NoReturn:
    raise UnacceptableError(f"{name} is not JSON")


def _too_deep() -> UnacceptableError:
    return UnacceptableError(f"it is nested deeper than {MOST_LEVELS}")


def _too_long() -> UnacceptableError:
    return UnacceptableError("a number does not fit 64 bits")


_READER = json.JSONDecoder(object_pairs_hook=unique, parse_float=_number, parse_constant=_constant)
