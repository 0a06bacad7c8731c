"""Asks for an answer that keeps a JSON Schema, and says when OpenAI's strict mode may be asked for.

Strict mode makes the schema certain, but it refuses every schema outside a subset of its own. Rewriting one to fit
would change what it means: an optional member would become required. So strict is asked for exactly when the schema
fits as it is; otherwise the model is asked to follow it, and whoever wanted it judges the answer. Bounds, patterns
and formats count as not fitting: OpenAI's newest models take them, its fine-tuned ones and Azure refuse the request.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAME: Final = "answer"
LEVELS: Final = 10
MEMBERS: Final = 100
VALUES: Final = 500
"""How deep a schema of strict mode is at most, and how many members and enumerated values it has in all."""
TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
SAYING = frozenset({"type", "anyOf", "$ref", "enum", "const"})
KEYWORDS = SAYING | {"$defs", "additionalProperties", "description", "items", "properties", "required", "title"}


def named_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as both APIs are given it."""
    return {"name": NAME, "schema": dict(schema), "strict": fits_strict(schema)}


def fits_strict(schema: Mapping[str, Any]) -> bool:
    """Whether strict mode takes the schema as it is."""
    nodes = list(_nodes(schema, LEVELS))
    return (
        schema.get("type") == "object"
        and "anyOf" not in schema
        and all(_fits(node) for node in nodes)
        and sum(len(node.get("properties", ())) for node in nodes) <= MEMBERS
        and sum(len(node.get("enum", ())) for node in nodes) <= VALUES
    )


def _nodes(node: Any, levels: int) -> Iterator[Any]:
    """The schema and all within it; None, which fits nowhere, for what lies deeper."""
    if levels == 0 or not isinstance(node, Mapping):
        yield None
        return
    yield node
    for child in _children(node):
        yield from _nodes(child, levels - 1)


def _children(node: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in ("properties", "$defs"):
        members = node.get(keyword)
        if isinstance(members, Mapping):
            yield from members.values()
    if isinstance(node.get("anyOf"), list):
        yield from node["anyOf"]
    if "items" in node:
        yield node["items"]


def _fits(node: Any) -> bool:
    if not isinstance(node, Mapping) or not node.keys() <= KEYWORDS or node.keys().isdisjoint(SAYING):
        return False
    if "$ref" in node:
        return len(node) == 1 and str(node["$ref"]).startswith("#")
    kinds = node.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return (
        all(isinstance(kind, str) and kind in TYPES for kind in kinds)
        and isinstance(node.get("anyOf", []), list)
        and isinstance(node.get("enum", []), list)
        and isinstance(node.get("$defs", {}), Mapping)
        and ("object" not in kinds or _is_closed(node))
        and ("array" not in kinds or "items" in node)
    )


def _is_closed(node: Mapping[str, Any]) -> bool:
    """Whether every member is named, and has to be there."""
    members, required = node.get("properties", {}), node.get("required", [])
    return (
        node.get("additionalProperties") is False
        and isinstance(members, Mapping)
        and isinstance(required, list)
        and sorted(map(str, required)) == sorted(members)
    )
