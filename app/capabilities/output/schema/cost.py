"""The cost of single keywords, measured in evaluations of a plain subschema, of about 10 ns each.

Metered keywords count their cost as it arises.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from app.capabilities.output.schema.metered_keywords import is_metered
from app.capabilities.output.schema.pattern_cost import pattern_cost

_COSTS_EACH = MappingProxyType({"dependentRequired": 2, "patternProperties": 3})
_FORMAT_COSTS = MappingProxyType({"regex": 10})
"""Evaluations for each entry of these keywords and for these formats [measured]."""
_OPTION_COSTS, _CONTAINER_COSTS = 2, 16
_WHOLE_COSTS, _FRACTION_COSTS, _TINY_COSTS = 25, 400, 4_000
"""Evaluations for values that are compared with. Numbers take longest, and only if they are equal."""
_TINY: Final = 1e-60
_CHARACTER_COSTS = MappingProxyType({"minLength": 1, "maxLength": 1, "format": 1})
_EXPENSIVE_FORMATS = MappingProxyType({"idn-hostname": 10})
"""Evaluations for each character of a string."""
_NUMBER_COSTS = MappingProxyType(
    {"minimum": 10, "maximum": 10, "exclusiveMinimum": 10, "exclusiveMaximum": 10, "multipleOf": 140}
)
"""Evaluations for each number."""


def evaluation_cost(subschema: Any) -> int:
    """Return the cost of one evaluation of this subschema, without the subschemas it applies."""
    if not isinstance(subschema, dict):
        return 1
    cost = 1 + _comparison_cost(subschema.get("enum"))
    if "const" in subschema:
        cost += _comparison_cost([subschema["const"], None])
    cost += _format_cost(_FORMAT_COSTS, subschema)
    return cost + sum(cost * len(_mapping(subschema.get(keyword))) for keyword, cost in _COSTS_EACH.items())


def character_cost(subschema: Any) -> int:
    """Return its cost for each character of a string."""
    if not isinstance(subschema, dict):
        return 0
    known = sum(cost for keyword, cost in _CHARACTER_COSTS.items() if keyword in subschema)
    pattern = subschema.get("pattern")
    if isinstance(pattern, str) and not is_metered("pattern", pattern):
        known += pattern_cost(pattern)
    known += sum(map(pattern_cost, _mapping(subschema.get("patternProperties"))))
    return known + _format_cost(_EXPENSIVE_FORMATS, subschema)


def number_cost(subschema: Any) -> int:
    """Return its cost for each number."""
    if not isinstance(subschema, dict):
        return 0
    return sum(
        cost
        for keyword, cost in _NUMBER_COSTS.items()
        if keyword in subschema and not is_metered(keyword, subschema[keyword])
    )


def _comparison_cost(options: Any) -> int:
    """Return the cost of comparing with these options.

    Strings among themselves are looked up, and so are whole numbers; other options are compared one by one.
    """
    if not isinstance(options, list):
        return 0
    kinds = {type(option) for option in options}
    if kinds <= {str} or kinds <= {int}:
        return _OPTION_COSTS
    containers = [option for option in options if isinstance(option, dict | list)]
    scalars = [option for option in options if not isinstance(option, dict | list)]
    greatest = max(map(_equality_cost, scalars), default=0)
    within = sum(_CONTAINER_COSTS + max(map(_equality_cost, _leaves(option)), default=0) for option in containers)
    return greatest + _OPTION_COSTS * len(scalars) + within


def _equality_cost(value: Any) -> int:
    if isinstance(value, float):
        return _TINY_COSTS if 0 < abs(value) < _TINY else _FRACTION_COSTS
    return _WHOLE_COSTS if isinstance(value, int) else 0


def _leaves(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            waiting += inner.values() if isinstance(inner, dict) else inner
        else:
            yield inner


def _format_cost(costs: Mapping[str, int], subschema: Mapping[str, Any]) -> int:
    form = subschema.get("format")
    return costs.get(form, 0) if isinstance(form, str) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
