"""The few keywords that jsonschema-rs is spared: where it can take a thousand times longer than anywhere else.

It compares fractions as ratios of large integers, 0.2 µs a digit and 12 µs for 1e-300, and finds equal elements of
short lists pair by pair [measured]. Here each number takes about a microsecond, whatever it is, and a list no longer
than writing it does. They mean what they mean in JSON Schema: numbers are decimal and exact.
"""

from collections.abc import Callable, Hashable, Mapping
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any, Final

import jsonschema_rs

from app.capabilities.constraint.canonical import canonical

_PREFIX: Final = "portico:"
_MOST_DIGITS: Final = 20
"""More than a number of an answer has."""
_SHORT: Final = 15
"""Elements of the longest list whose elements the library compares pair by pair."""
_HASHING = jsonschema_rs.Draft202012Validator({"uniqueItems": True})
_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = MappingProxyType(
    {
        "minimum": (ge, "is less than the minimum of"),
        "maximum": (le, "is greater than the maximum of"),
        "exclusiveMinimum": (gt, "is less than or equal to the minimum of"),
        "exclusiveMaximum": (lt, "is greater than or equal to the maximum of"),
    }
)


def spare(subschemas: Mapping[Any, Any]) -> None:
    """Gives those keywords names of their own, in place; what a schema has under such a name means nothing."""
    for subschema in subschemas.values():
        if isinstance(subschema, dict):
            for keyword in [keyword for keyword in subschema if keyword.startswith(_PREFIX)]:
                del subschema[keyword]
            for keyword in [keyword for keyword, value in subschema.items() if is_spared(keyword, value)]:
                subschema[_PREFIX + keyword] = subschema.pop(keyword)


def is_spared(keyword: str, value: Any) -> bool:
    """Whether a keyword of that value is one of them."""
    if keyword == "uniqueItems":
        return value is True
    return (keyword in _BOUNDS or (keyword == "multipleOf" and value > 0)) and isinstance(value, float)


class _Bound:
    """A bound with a fraction."""

    def __init__(self, _schema: dict[str, Any], bound: float, path: list[str | int]) -> None:
        self._keeps, self._said = _BOUNDS[str(path[-1]).removeprefix(_PREFIX)]
        self._bound = bound

    def validate(self, instance: Any) -> None:
        if _is_number(instance) and not self._keeps(instance, self._bound):
            raise ValueError(f"the value {self._said} {self._bound}")


class _MultipleOf:
    """A divisor with a fraction, taken as the decimal number that was written."""

    def __init__(self, _schema: dict[str, Any], divisor: float, _path: list[str | int]) -> None:
        self._divisor = divisor
        self._digits, self._power = _decimal(divisor)

    def validate(self, instance: Any) -> None:
        if _is_number(instance) and not self._divides(*_decimal(instance)):
            raise ValueError(f"the value is not a multiple of {self._divisor}")

    def _divides(self, digits: int, power: int) -> bool:
        shift = power - self._power
        if shift >= 0:
            return digits * pow(10, shift, self._digits) % self._digits == 0
        return digits == 0 or (-shift < _MOST_DIGITS and digits % (self._digits * 10**-shift) == 0)


class _Unique:
    """No element twice."""

    def __init__(self, _schema: dict[str, Any], _unique: bool, _path: list[str | int]) -> None:  # noqa: FBT001 - as the library calls it
        return

    def validate(self, instance: Any) -> None:
        if isinstance(instance, list) and not _are_unique(instance):
            raise ValueError("the value has non-unique elements")


KEYWORDS: Mapping[str, type[Any]] = MappingProxyType(
    {
        **{_PREFIX + keyword: _Bound for keyword in _BOUNDS},
        _PREFIX + "multipleOf": _MultipleOf,
        _PREFIX + "uniqueItems": _Unique,
    }
)
"""What judges them, by their own names."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal(number: float) -> tuple[int, int]:
    """The number as its decimal digits and the power of ten that they are multiplied by."""
    mantissa, _, power = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    return int(whole + fraction), int(power or 0) - len(fraction)


def _are_unique(elements: list[Any]) -> bool:
    if len(elements) > _SHORT:
        return _HASHING.is_valid(elements)
    return len(set(map(_key, elements))) == len(elements)


def _key(element: Any) -> Hashable:
    """What elements share exactly when they are equal: 1 is 1.0, but true is not 1."""
    if isinstance(element, bool):
        return (element,)
    return canonical(element) if isinstance(element, dict | list) else element
