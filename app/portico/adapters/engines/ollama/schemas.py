"""JSON Schemas as Ollama takes them.

It turns the schema of an answer into a grammar, and that of a tool into types of its own, and refuses the whole request
for one keyword that it cannot turn. Such keywords are left out: the answer is then freer than the schema, and is
validated anyway. Where nothing is left, JSON mode is the fallback [flow runtime].
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

ALL_TYPES: Final = ("object", "array", "string", "number", "boolean", "null")
"""The types of an empty subschema, which would be read as `object`."""
STRUCTURAL_KEYWORDS: Final = frozenset(
    {"type", "properties", "additionalProperties", "items", "prefixItems", "anyOf", "oneOf", "allOf", "enum", "const"}
    | {"$ref"}
)
SCHEMAS_BY_NAME: Final = frozenset({"properties", "$defs", "definitions"})
SCHEMA_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
NESTED_SCHEMAS: Final = frozenset({"items", "additionalProperties"})
COUNT_KEYWORDS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
MAX_REPETITIONS: Final = 500
"""Grammars that repeat a rule 2,000 times are refused, and an array's item takes several rules."""
SIMPLE_PATTERN: Final = re.compile(r"\^[^\\^$]*\$")
"""Anchored at both ends, and without escapes, look-around or anything named."""


def response_format(schema: Mapping[str, Any]) -> dict[str, Any] | Literal["json"]:
    """Return `format` for an answer of a schema: the supported part of the schema, else JSON mode."""
    supported = supported_schema(schema)
    return "json" if STRUCTURAL_KEYWORDS.isdisjoint(supported) or _refers_elsewhere(schema) else supported


def supported_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without the keywords that are refused."""
    remaining = {key: value for key, value in schema.items() if _is_supported(key, value)}
    return {key: _nested(key, value) for key, value in remaining.items()}


def _is_supported(key: str, value: Any) -> bool:
    if key == "pattern":
        return isinstance(value, str) and bool(SIMPLE_PATTERN.fullmatch(value)) and "(?" not in value
    if key in COUNT_KEYWORDS:
        return isinstance(value, int) and value <= MAX_REPETITIONS
    return key != "items" or value is not False


def _nested(key: str, value: Any) -> Any:
    if key in SCHEMAS_BY_NAME and isinstance(value, Mapping):
        return {name: _subschema(member) for name, member in value.items() if member is not False}
    if key in SCHEMA_LISTS and isinstance(value, list):
        return [_subschema(member) for member in value if member is not False]
    if key in NESTED_SCHEMAS and not (key == "additionalProperties" and isinstance(value, bool)):
        return _subschema(value)
    return value


def _subschema(schema: Any) -> Any:
    if schema is True:
        return {"type": list(ALL_TYPES)}
    if not isinstance(schema, Mapping):
        return schema
    supported = supported_schema(schema)
    return supported | {"type": list(ALL_TYPES)} if STRUCTURAL_KEYWORDS.isdisjoint(supported) else supported


def _refers_elsewhere(schema: Any) -> bool:
    """Tell whether a reference leads to anything but a definition in the schema itself."""
    if isinstance(schema, Mapping):
        target = schema.get("$ref")
        foreign = isinstance(target, str) and not target.startswith("#/")
        return foreign or "$dynamicRef" in schema or _any_refers_elsewhere(schema.values())
    return isinstance(schema, list) and _any_refers_elsewhere(schema)


def _any_refers_elsewhere(schemas: Iterable[Any]) -> bool:
    return any(map(_refers_elsewhere, schemas))
