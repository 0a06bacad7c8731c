"""What single keywords take, measured in evaluations of a plain subschema, of about 10 ns each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_COSTS = MappingProxyType({"multipleOf": 250, "uniqueItems": 16})
_COSTS_EACH = MappingProxyType({"dependentRequired": 2, "patternProperties": 3})
_OPTION_COSTS = MappingProxyType({float: 160, dict: 16, list: 16})
_OTHER_OPTION_COSTS: Final = 2
"""Evaluations that these keywords, and each of their entries or options, take the time of [measured]."""
_CHARACTER_COSTS = MappingProxyType({"minLength": 1, "maxLength": 1, "format": 1})
_DEAR_FORMATS = MappingProxyType({"idn-hostname": 10})
"""The same for each character of a string."""


def effort(subschema: Any) -> int:
    """How many evaluations one of this subschema takes the time of, what it applies aside."""
    if not isinstance(subschema, dict):
        return 1
    return (
        1
        + sum(cost for keyword, cost in _COSTS.items() if keyword in subschema)
        + sum(cost * len(_mapping(subschema.get(keyword))) for keyword, cost in _COSTS_EACH.items())
        + _comparing_effort(subschema.get("enum"))
        + _comparing_effort([subschema["const"]] if "const" in subschema else None)
    )


def _comparing_effort(options: Any) -> int:
    """Strings among themselves are looked up, and so are whole numbers; anything else is compared one by one."""
    kinds = {type(option) for option in options} if isinstance(options, list) else set()
    if kinds <= {str} or kinds <= {int}:
        return 0
    return sum(_OPTION_COSTS.get(type(option), _OTHER_OPTION_COSTS) for option in options)


def character_effort(subschema: Any) -> int:
    """The same for each character of a string, patterns aside."""
    if not isinstance(subschema, dict):
        return 0
    known = sum(cost for keyword, cost in _CHARACTER_COSTS.items() if keyword in subschema)
    form = subschema.get("format")
    return known + (_DEAR_FORMATS.get(form, 0) if isinstance(form, str) else 0)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
