"""What of a JSON Schema Ollama can take.

It turns the schema of an answer into a grammar, and that of a tool into types of its own, and refuses the whole request
for one keyword it cannot turn. What it would refuse is left out here: the answer is then freer than the schema, which
is validated behind the engine anyway. Where nothing is left to say, JSON mode is the fallback [flow runtime].
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

ANYTHING: Final = ("object", "array", "string", "number", "boolean", "null")
"""An empty subschema would be read as `object`."""
STRUCTURE: Final = frozenset(
    {"type", "properties", "additionalProperties", "items", "prefixItems", "anyOf", "oneOf", "allOf", "enum", "const"}
    | {"$ref"}
)
NAMED: Final = frozenset({"properties", "$defs", "definitions"})
LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
NESTED: Final = frozenset({"items", "additionalProperties"})
COUNTS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
MOST_REPETITIONS: Final = 500
"""Grammars that repeat a rule 2,000 times are refused, and an array's item takes several rules."""
SIMPLE_PATTERN: Final = re.compile(r"\^[^\\^$]*\$")
"""Anchored at both ends, and without escapes, look-around or anything named."""


def response_format(schema: Mapping[str, Any]) -> dict[str, Any] | Literal["json"]:
    """What `format` says for an answer of that schema: the schema as far as it is taken, else JSON mode."""
    taken = supported_schema(schema)
    return "json" if STRUCTURE.isdisjoint(taken) or _refers_elsewhere(schema) else taken


def supported_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without what is refused."""
    kept = {key: value for key, value in schema.items() if _is_taken(key, value)}
    return {key: _nested(key, value) for key, value in kept.items()}


def _is_taken(key: str, value: Any) -> bool:
    if key == "pattern":
        return isinstance(value, str) and bool(SIMPLE_PATTERN.fullmatch(value)) and "(?" not in value
    if key in COUNTS:
        return isinstance(value, int) and value <= MOST_REPETITIONS
    return key != "items" or value is not False


def _nested(key: str, value: Any) -> Any:
    if key in NAMED and isinstance(value, Mapping):
        return {name: _subschema(member) for name, member in value.items() if member is not False}
    if key in LISTED and isinstance(value, list):
        return [_subschema(member) for member in value if member is not False]
    if key in NESTED and not (key == "additionalProperties" and isinstance(value, bool)):
        return _subschema(value)
    return value


def _subschema(schema: Any) -> Any:
    if schema is True:
        return {"type": list(ANYTHING)}
    if not isinstance(schema, Mapping):
        return schema
    taken = supported_schema(schema)
    return taken | {"type": list(ANYTHING)} if STRUCTURE.isdisjoint(taken) else taken


def _refers_elsewhere(schema: Any) -> bool:
    """Whether a reference goes anywhere but to a definition in the schema itself."""
    if isinstance(schema, Mapping):
        target = schema.get("$ref")
        foreign = isinstance(target, str) and not target.startswith("#/")
        return foreign or "$dynamicRef" in schema or _any_refers_elsewhere(schema.values())
    return isinstance(schema, list) and _any_refers_elsewhere(schema)


def _any_refers_elsewhere(schemas: Iterable[Any]) -> bool:
    return any(map(_refers_elsewhere, schemas))
