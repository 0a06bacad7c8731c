"""Checks of single rules against a value.

Patterns are searched by the engine of JSON Schema's `pattern`, in linear time; Python's own engine can take forever.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any, TypeAlias, assert_never

from portico.capabilities.output.canonical_json import canonical_json
from portico.capabilities.output.schema.validators import cached_pattern
from portico.domain import json_path
from portico.domain.contract.rules import Compare, Length, NotEmpty, OneOf, Operator, Regex

_ORDERS = MappingProxyType({"lt": lt, "le": le, "gt": gt, "ge": ge})
_IS = MappingProxyType({"eq": "", "ne": "not ", "lt": "below ", "le": "at most ", "gt": "above ", "ge": "at least "})

ValueCheck: TypeAlias = Callable[[Any], str | None]
"""Returns the reason why a value breaks the rule, None if it does not."""


def values_at(value: Any, path: tuple[json_path.PathStep, ...]) -> json_path.Matches:
    """Return all values at the path, each with its own place."""
    found: json_path.Matches = [((), value)]
    for step in path:
        found = json_path.children(found, step)
    return found


def value_check(rule: NotEmpty | Length | Regex | Compare | OneOf, answer_value: Any) -> ValueCheck:
    """Return the check that the rule makes of each value that it applies to, in an answer with this value."""
    match rule:
        case NotEmpty():
            return _empty_error
        case Length():
            return partial(_length_error, rule)
        case Regex():
            return partial(_regex_error, rule)
        case Compare():
            return _comparison(rule, answer_value)
        case OneOf():
            allowed = frozenset(map(canonical_json, rule.values))
            return partial(_option_error, allowed, stripped=rule.path is None)
        case _:
            assert_never(rule)


def _empty_error(value: Any) -> str | None:
    empty = not value.strip() if isinstance(value, str) else value is None or value in ([], {})
    return "is empty" if empty else None


def _length_error(rule: Length, value: Any) -> str | None:
    if not isinstance(value, str | list | dict):
        return "has no length"
    unit = "characters" if isinstance(value, str) else "entries"
    if rule.min is not None and len(value) < rule.min:
        return f"has fewer than {rule.min} {unit}"
    if rule.max is not None and len(value) > rule.max:
        return f"has more than {rule.max} {unit}"
    return None


def _regex_error(rule: Regex, value: Any) -> str | None:
    if not isinstance(value, str):
        return "is no text"
    if cached_pattern(rule.pattern).occurs_in(value) is not rule.negate:
        return None
    return "matches a pattern that it must not" if rule.negate else "does not match the pattern"


def _option_error(allowed: frozenset[bytes], value: Any, *, stripped: bool) -> str | None:
    known = canonical_json(value.strip() if stripped else value)
    return None if known in allowed else "is none of the values allowed"


def _comparison(rule: Compare, answer_value: Any) -> ValueCheck:
    others = [rule.value]
    if rule.other is not None:
        others = [found for _, found in values_at(answer_value, json_path.parse(rule.other))]
        if not others:
            return lambda _: f"cannot be compared: {rule.other} is missing"
    if rule.operator in _ORDERS:
        return partial(_order_error, rule, others)
    return partial(_equality_error, rule, frozenset(map(canonical_json, others)))


def _order_error(rule: Compare, others: Sequence[Any], value: Any) -> str | None:
    for other in others:
        holds = _ordered(rule.operator, value, other)
        if holds is None:
            return f"cannot be compared with {_compared_with(rule)}"
        if not holds:
            return _comparison_error(rule)
    return None


def _equality_error(rule: Compare, others: frozenset[bytes], value: Any) -> str | None:
    known = canonical_json(value)
    holds = others == {known} if rule.operator == "eq" else known not in others
    return None if holds else _comparison_error(rule)


def _compared_with(rule: Compare) -> str:
    return rule.other or "the value asked for"


def _comparison_error(rule: Compare) -> str:
    return f"must be {_IS[rule.operator]}{_compared_with(rule)}"


def _ordered(operator: Operator, value: Any, other: Any) -> bool | None:
    """Return if the comparison holds; None if values of these types have no order."""
    numbers = _is_number(value) and _is_number(other)
    texts = isinstance(value, str) and isinstance(other, str)
    return bool(_ORDERS[operator](value, other)) if numbers or texts else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
