"""Decision which schemas and patterns are small and plain, so that using them takes no time worth counting.

A plain schema is small when its references are followed, is not recursive, and has only keywords that take about the
same time for every value; few of its subschemas apply to the same value. A plain pattern is short when its counted
repetitions are written out. What is not understood here is not plain, valid or not. These are sizes, not costs:
what is not plain is used in a worker process, whose time is limited.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_VISITS: Final = 300
"""Subschemas of a plain schema, each counted as often as references lead to it."""
MAX_DEPTH: Final = 16
MAX_SHARED: Final = 8
"""Subschemas that apply to the same value; one with a fraction as `multipleOf` counts as four."""
MAX_OPTIONS: Final = 32
"""Values of an enumeration that are not all texts."""
MAX_PATTERN_SIZE: Final = 200
"""Characters of all patterns of a contract together, with counted repetitions written out."""
_COSTLY: Final = frozenset(
    {"patternProperties", "propertyNames", "contains", "not", "if", "then", "else"}
    | {"dependentSchemas", "dependentRequired", "unevaluatedItems", "unevaluatedProperties", "dependencies"}
    | {"$dynamicRef", "$anchor", "$dynamicAnchor", "$recursiveRef", "contentSchema", "additionalItems"}
)
_ALTERNATIVES: Final = ("allOf", "anyOf", "oneOf")
_COSTLY_FORMATS: Final = frozenset({"idn-hostname", "idn-email", "iri", "iri-reference", "uri-template"})
_REPEATED = re.compile(r"\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}")
_COSTLY_PATTERN = re.compile(r"\\[pP]|[)}*+?]\{")
"""A large class, or a counted repetition of more than one character."""


def pattern_size(pattern: str) -> int | None:
    """Return the characters of the pattern with its counted repetitions written out; None if it is not plain."""
    if len(pattern) > MAX_PATTERN_SIZE or _COSTLY_PATTERN.search(pattern):
        return None
    return len(pattern) + sum(int(most or least) for least, most in _REPEATED.findall(pattern))


def schema_patterns_size(schema: Mapping[str, Any]) -> int | None:
    """Return the size of all patterns of a small and plain schema, as `pattern_size`; None if it is not one."""
    walk = _Walk(schema)
    try:
        walk.visit(schema, 0)
    except _NotPlainError:
        return None
    return walk.patterns_size


class _NotPlainError(Exception):
    """The schema is not small and plain."""


class _Walk:
    """A walk through a schema that follows its references, as far as it is small and plain."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.patterns_size = 0
        self._schema = schema
        self._visits = 0

    def visit(self, subschema: Any, depth: int) -> tuple[int, int]:
        """Return how many subschemas apply to the same value: here, and at most at one place below.

        Raises: _NotPlainError.
        """
        self._visits += 1
        _demand(self._visits <= MAX_VISITS and depth <= MAX_DEPTH)
        if isinstance(subschema, bool):
            return 1, 0
        _demand(isinstance(subschema, dict) and _COSTLY.isdisjoint(subschema) and _is_plain(subschema))
        self._count_pattern(subschema.get("pattern", ""))
        here, below = 4 if isinstance(subschema.get("multipleOf"), float) else 1, 0
        for same_value in self._same_value(subschema):
            here_too, below_too = self.visit(same_value, depth + 1)
            here, below = here + here_too, below + below_too
        inner = [max(self.visit(member, depth + 1)) for member in _members(subschema)]
        below += max(inner, default=0)
        _demand(max(here, below) <= MAX_SHARED)
        return here, below

    def _count_pattern(self, pattern: Any) -> None:
        size = pattern_size(pattern) if isinstance(pattern, str) else None
        _demand(size is not None)
        self.patterns_size += size or 0

    def _same_value(self, subschema: Mapping[str, Any]) -> Iterator[Any]:
        for keyword in _ALTERNATIVES:
            yield from _typed(subschema.get(keyword, []), list)
        if "$ref" in subschema:
            yield self._target(_typed(subschema["$ref"], str))

    def _target(self, reference: str) -> Any:
        found: Any = self._schema
        first, *steps = reference.split("/")
        _demand(first == "#" and "%" not in reference and "~" not in reference)
        for step in steps:
            _demand(isinstance(found, dict) and step in found)
            found = found[step]
        return found


def _members(subschema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the subschemas of members and elements, of which one at most applies to each."""
    yield from _typed(subschema.get("properties", {}), dict).values()
    yield from _typed(subschema.get("prefixItems", []), list)
    for keyword in ("additionalProperties", "items"):
        if keyword in subschema:
            yield subschema[keyword]


def _is_plain(subschema: Mapping[str, Any]) -> bool:
    """Return True if the assertions of the subschema itself take about the same time for every value."""
    options = subschema.get("enum", [])
    return (
        isinstance(options, list)
        and (len(options) <= MAX_OPTIONS or all(isinstance(option, str) for option in options))
        and not any(isinstance(option, float | list | dict) for option in (*options, subschema.get("const")))
        and _typed(subschema.get("format", ""), str) not in _COSTLY_FORMATS
    )


def _typed(value: Any, kind: type[Any]) -> Any:
    _demand(isinstance(value, kind))
    return value


def _demand(holds: bool) -> None:  # noqa: FBT001 - a condition
    if not holds:
        raise _NotPlainError
