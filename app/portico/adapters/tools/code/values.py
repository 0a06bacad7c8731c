"""Values of code as JSON."""

import json
from collections.abc import Mapping, Set
from math import isfinite
from typing import Final

from pydantic import JsonValue

MAX_DEPTH: Final = 64
_MAX_INTEGER: Final = 2**63 - 1
"""Larger integers are no JSON that every reader takes."""


class NotJsonError(ValueError):
    """A value of code is no JSON; the message says what it is."""


def as_json(value: object, depth: int = 0) -> JsonValue:
    """Return a value of code as JSON; tuples and sets become arrays, and a set is in the order of its JSON texts.

    Raises: NotJsonError.
    """
    if depth > MAX_DEPTH:
        raise NotJsonError(f"it is nested more than {MAX_DEPTH} levels deep")
    match value:
        case None | bool() | str():
            return value
        case int() | float():
            return _number(value)
        case Mapping():
            return {_name(name): as_json(each, depth + 1) for name, each in value.items()}
        case list() | tuple():
            return [as_json(each, depth + 1) for each in value]
        case Set():
            return sorted([as_json(each, depth + 1) for each in value], key=json.dumps)
        case _:
            raise NotJsonError(f"{type(value).__name__} is no JSON")


def _number(value: float) -> int | float:
    if (isinstance(value, int) and abs(value) <= _MAX_INTEGER) or (isinstance(value, float) and isfinite(value)):
        return value
    raise NotJsonError("a number is infinite, no number, or has more than 63 bits")


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise NotJsonError("a key of a dict is no str")
    return value
