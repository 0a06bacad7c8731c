"""Replacements of the few keywords for which jsonschema-rs can take a thousand times longer than for others.

It compares fractions as ratios of large integers, 0.2 µs a digit and 12 µs for 1e-300, and finds equal elements of
short lists pair by pair [measured]. Here every number takes about a microsecond, and a list no longer than writing it.
The cost of searching for a pattern depends on the pattern and the text. The cost is counted as it arises. The keywords
mean the same as in JSON Schema: numbers are decimal and exact.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from operator import ge, gt, le, lt
from threading import local
from types import MappingProxyType
from typing import Any, Final

import jsonschema_rs
import orjson

from app.capabilities.output.canonical_json import canonical_json
from app.capabilities.output.schema.pattern_cost import pattern_cost
from app.capabilities.output.schema.validators import cached_pattern

_PREFIX: Final = "portico:"
_CHEAP_PATTERN_COST: Final = 8
"""Cost per character up to which jsonschema-rs itself searches for a pattern."""
_BOUND_COSTS, _DIVISION_COSTS, _SEARCH_COSTS, _FORM_COSTS, _BYTE_COSTS = 60, 250, 100, 150, 10
"""Evaluations for a comparison, a division, a search, making an element canonical, and each byte of that."""
_MOST_DIGITS: Final = 20
"""More digits than a number of an answer has."""
_SHORT_LIST_LENGTH: Final = 15
"""Elements of the longest list whose elements jsonschema-rs compares pair by pair."""
_HASHING = jsonschema_rs.Draft202012Validator({"uniqueItems": True})
_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = MappingProxyType(
    {
        "minimum": (ge, "is less than the minimum of"),
        "maximum": (le, "is greater than the maximum of"),
        "exclusiveMinimum": (gt, "is less than or equal to the minimum of"),
        "exclusiveMaximum": (lt, "is greater than or equal to the maximum of"),
    }
)


def rename_metered_keywords(subschemas: Mapping[Any, Any]) -> None:
    """Rename those keywords in place; schema entries that have such a name already are removed."""
    for subschema in subschemas.values():
        if isinstance(subschema, dict):
            for keyword in [keyword for keyword in subschema if keyword.startswith(_PREFIX)]:
                del subschema[keyword]
            for keyword in [keyword for keyword, value in subschema.items() if is_metered(keyword, value)]:
                subschema[_PREFIX + keyword] = subschema.pop(keyword)


def is_metered(keyword: str, value: Any) -> bool:
    """Return True if a keyword of that value is metered."""
    match keyword:
        case "uniqueItems":
            return value is True
        case "pattern":
            return isinstance(value, str) and pattern_cost(value) > _CHEAP_PATTERN_COST
        case "multipleOf":
            return isinstance(value, float) and value > 0
        case _:
            return isinstance(value, float) and keyword in _BOUNDS


class CheckBudget(local):
    """Evaluations that these keywords may still take in the check of this thread; below 0 if they were too few."""

    def __init__(self, remaining: int = 0) -> None:
        self.remaining = remaining


class _KeywordValidator:
    """Validator of one keyword, as jsonschema-rs calls it. It spends its cost and accepts nothing beyond the budget."""

    def __init__(self, budget: CheckBudget) -> None:
        self._budget = budget

    def _spend(self, evaluations: int) -> None:
        self._budget.remaining -= evaluations
        if self._budget.remaining < 0:
            raise ValueError("the value is too large")


class _Bound(_KeywordValidator):
    """A bound with a fraction."""

    def __init__(self, budget: CheckBudget, _schema: object, bound: float, path: list[str | int]) -> None:
        super().__init__(budget)
        self._holds, self._message = _BOUNDS[str(path[-1]).removeprefix(_PREFIX)]
        self._bound = bound

    def validate(self, instance: Any) -> None:
        self._spend(_BOUND_COSTS)
        if _is_number(instance) and not self._holds(instance, self._bound):
            raise ValueError(f"the value {self._message} {self._bound}")


class _MultipleOf(_KeywordValidator):
    """A divisor with a fraction, taken as the decimal number that was written."""

    def __init__(self, budget: CheckBudget, _schema: object, divisor: float, _path: object) -> None:
        super().__init__(budget)
        self._divisor = divisor
        self._digits, self._power = _decimal(divisor)

    def validate(self, instance: Any) -> None:
        self._spend(_DIVISION_COSTS)
        if _is_number(instance) and not self._divides(*_decimal(instance)):
            raise ValueError(f"the value is not a multiple of {self._divisor}")

    def _divides(self, digits: int, power: int) -> bool:
        shift = power - self._power
        if shift >= 0:
            return digits * pow(10, shift, self._digits) % self._digits == 0
        return digits == 0 or (-shift < _MOST_DIGITS and digits % (self._digits * 10**-shift) == 0)


class _Unique(_KeywordValidator):
    """Uniqueness of all elements."""

    def __init__(self, budget: CheckBudget, _schema: object, _unique: object, _path: object) -> None:
        super().__init__(budget)

    def validate(self, instance: Any) -> None:
        self._spend(_BOUND_COSTS)
        if isinstance(instance, list) and not self._are_unique(instance):
            raise ValueError("the value has non-unique elements")

    def _are_unique(self, elements: list[Any]) -> bool:
        if len(elements) > _SHORT_LIST_LENGTH:
            self._spend(_BYTE_COSTS * len(orjson.dumps(elements)))
            return _HASHING.is_valid(elements)
        return len(set(map(self._key, elements))) == len(elements)

    def _key(self, element: Any) -> Hashable:
        """Return a key that elements share exactly if they are equal: 1 is 1.0, but true is not 1."""
        if isinstance(element, bool):
            return (element,)
        known: Hashable = element
        if isinstance(element, dict | list):
            known = canonical_json(element)
            self._spend(_FORM_COSTS + _BYTE_COSTS * len(known))
        return known


class _Pattern(_KeywordValidator):
    """A pattern that may take long to search for."""

    def __init__(self, budget: CheckBudget, _schema: object, text: str, _path: object) -> None:
        super().__init__(budget)
        self._text = text
        self._pattern = cached_pattern(text)
        self._cost = pattern_cost(text)

    def validate(self, instance: Any) -> None:
        if isinstance(instance, str):
            self._spend(_SEARCH_COSTS + self._cost * len(instance))
            if not self._pattern.occurs_in(instance):
                raise ValueError(f'the value does not match "{self._text}"')


_VALIDATORS: Mapping[str, type[_KeywordValidator]] = MappingProxyType(
    {
        **dict.fromkeys(_BOUNDS, _Bound),
        "multipleOf": _MultipleOf,
        "uniqueItems": _Unique,
        "pattern": _Pattern,
    }
)
METERED_KEYWORDS: Final = frozenset(_PREFIX + keyword for keyword in _VALIDATORS)
"""The names of the metered keywords."""


def metered_validators(budget: CheckBudget) -> Mapping[str, Callable[..., _KeywordValidator]]:
    """Return the validators of these keywords by name, which spend from that budget.

    They are no classes: a class refers to itself, and would be left to the garbage collector.
    """
    return {_PREFIX + keyword: partial(validator_type, budget) for keyword, validator_type in _VALIDATORS.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal(number: float) -> tuple[int, int]:
    """Return the decimal digits of the number, and the power of ten that they are multiplied by."""
    mantissa, _, power = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    return int(whole + fraction), int(power or 0) - len(fraction)
