"""Equal JSON values, and their comparison, as JSON Schema defines equality."""

from typing import Any

SPELLED_TWICE: list[tuple[Any, Any]] = [
    ({"a": 1, "b": [1, {"c": 2, "d": 3}]}, {"b": [1, {"d": 3, "c": 2}], "a": 1}),
    (1, 1.0),
    (0, -0.0),
    ([{"a": 1e3}], [{"a": 1000}]),
    (10**16, 1e16),
    (2**63, float(2**63)),
    (-(2**63), -float(2**63)),
]
"""Pairs of equal values: with keys in another order, or with numbers written in another way."""


def equal_json(one: Any, other: Any) -> bool:
    """Compare two values as JSON Schema does."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
