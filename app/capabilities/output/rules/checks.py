"""What single rules ask of a value, within bounds of effort.

Patterns are searched for by the engine of JSON Schema's `pattern`, in linear time; Python's own can take forever.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any, Final, TypeAlias, assert_never

import orjson

from app.capabilities.output.canonical_json import canonical_json
from app.capabilities.output.schema.pattern_cost import pattern_cost
from app.capabilities.output.schema.validators import cached_pattern
from app.domain import json_path
from app.domain.contract.rules import Compare, Length, NotEmpty, OneOf, Operator, Regex

MAX_COST: Final = 10_000_000
MAX_SEARCH_COST: Final = 2_000_000
"""What all rules of an answer may take together, and a single search, in about 10 ns each."""
_PLACE_COSTS, _COMPARING_COSTS = 60, 30
_FORM_COSTS, _BYTE_COSTS, _FRACTION_COSTS = 200, 1, 15
"""What a place takes, comparing it once, bringing it into one form, and each byte of a list or object for that."""
_ORDERS = MappingProxyType({"lt": lt, "le": le, "gt": gt, "ge": ge})
_IS = MappingProxyType({"eq": "", "ne": "not ", "lt": "below ", "le": "at most ", "gt": "above ", "ge": "at least "})

ValueCheck: TypeAlias = Callable[[Any], str | None]
"""Says what is wrong with a value, None where nothing is."""


class RuleBudgetExceededError(Exception):
    """The rules would take more effort than they may."""


class RuleBudget:
    """What judging an answer takes, all rules together."""

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, steps: int) -> None:
        """Raises: TooMuchError."""
        self._spent += steps
        if self._spent > MAX_COST:
            raise RuleBudgetExceededError

    def values_at(self, value: Any, path: tuple[json_path.PathStep, ...]) -> json_path.Matches:
        """Everything that stands at the path, each with its own place. Raises: TooMuchError."""
        found: json_path.Matches = [((), value)]
        self.spend(0)
        for step in path:
            found = json_path.children(found, step)
            self.spend(_PLACE_COSTS * len(found))
        return found

    def canonical(self, value: Any) -> bytes:
        """The value in the form that all equal ones have. Raises: TooMuchError."""
        self.spend(_FORM_COSTS)
        if isinstance(value, dict | list):
            data = orjson.dumps(value)
            self.spend(len(data) * (_FRACTION_COSTS if b".0" in data or b"e+" in data else _BYTE_COSTS))
        return canonical_json(value)

    def canonical_set(self, values: Iterable[Any]) -> frozenset[bytes]:
        """All values in that form. Raises: TooMuchError."""
        known = set()
        for value in values:
            known.add(self.canonical(value))
        return frozenset(known)


def value_check(rule: NotEmpty | Length | Regex | Compare | OneOf, whole: Any, effort: RuleBudget) -> ValueCheck:
    """What the rule asks of each value that it speaks of, in an answer that has this value as a whole.

    Both raise: TooMuchError.
    """
    match rule:
        case NotEmpty():
            return _emptiness
        case Length():
            return partial(_length_fault, rule)
        case Regex():
            return partial(_regex_fault, rule.pattern, effort)
        case Compare():
            return _comparison(rule, whole, effort)
        case OneOf():
            allowed = effort.canonical_set(rule.values)
            return partial(_option_fault, allowed, effort, stripped=rule.path is None)
        case _:
            assert_never(rule)


def _emptiness(value: Any) -> str | None:
    empty = not value.strip() if isinstance(value, str) else value is None or value in ([], {})
    return "is empty" if empty else None


def _length_fault(rule: Length, value: Any) -> str | None:
    if not isinstance(value, str | list | dict):
        return "has no length"
    unit = "characters" if isinstance(value, str) else "entries"
    if rule.min is not None and len(value) < rule.min:
        return f"has fewer than {rule.min} {unit}"
    if rule.max is not None and len(value) > rule.max:
        return f"has more than {rule.max} {unit}"
    return None


def _regex_fault(text: str, effort: RuleBudget, value: Any) -> str | None:
    if not isinstance(value, str):
        return "is no text"
    cost = pattern_cost(text) * len(value)
    if cost > MAX_SEARCH_COST:
        return "is too long to be searched for the pattern"
    effort.spend(cost)
    return None if cached_pattern(text).occurs_in(value) else "does not match the pattern"


def _option_fault(allowed: frozenset[bytes], effort: RuleBudget, value: Any, *, stripped: bool) -> str | None:
    known = effort.canonical(value.strip() if stripped else value)
    return None if known in allowed else "is none of the values allowed"


def _comparison(rule: Compare, whole: Any, effort: RuleBudget) -> ValueCheck:
    others = [rule.value]
    if rule.other is not None:
        others = [found for _, found in effort.values_at(whole, json_path.parse(rule.other))]
        if not others:
            return lambda _: f"cannot be compared: {rule.other} is missing"
    if rule.operator in _ORDERS:
        return partial(_order_fault, rule, others, effort)
    return partial(_equality_fault, rule, effort.canonical_set(others), effort)


def _order_fault(rule: Compare, others: Sequence[Any], effort: RuleBudget, value: Any) -> str | None:
    effort.spend(_COMPARING_COSTS * len(others))
    for other in others:
        holds = _ordered(rule.operator, value, other)
        if holds is None:
            return f"cannot be compared with {_than(rule)}"
        if not holds:
            return _unlike(rule)
    return None


def _equality_fault(rule: Compare, others: frozenset[bytes], effort: RuleBudget, value: Any) -> str | None:
    known = effort.canonical(value)
    holds = others == {known} if rule.operator == "eq" else known not in others
    return None if holds else _unlike(rule)


def _than(rule: Compare) -> str:
    return rule.other or "the value asked for"


def _unlike(rule: Compare) -> str:
    return f"must be {_IS[rule.operator]}{_than(rule)}"


def _ordered(operator: Operator, value: Any, other: Any) -> bool | None:
    """Whether it holds; None where values of these kinds have no order."""
    numbers = _is_number(value) and _is_number(other)
    texts = isinstance(value, str) and isinstance(other, str)
    return bool(_ORDERS[operator](value, other)) if numbers or texts else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
