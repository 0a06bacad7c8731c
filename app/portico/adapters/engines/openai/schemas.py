"""JSON Schemas for OpenAI's APIs, and the condition for their strict mode.

Strict mode guarantees the schema but refuses every schema outside a subset. Rewriting a schema to fit would change its
meaning: an optional member would become required. So strict mode is requested exactly when the schema fits as it is;
otherwise the model is asked to follow the schema, and the answer is validated afterwards. Bounds, patterns and formats
do not fit: OpenAI's newest models take them, but its fine-tuned ones and Azure refuse the request.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAME: Final = "answer"
MAX_DEPTH: Final = 10
MAX_MEMBERS: Final = 100
MAX_ENUM_VALUES: Final = 500
"""The limits of strict mode: the depth of a schema, and its members and enumerated values in all."""
TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
TYPE_KEYWORDS = frozenset({"type", "anyOf", "$ref", "enum", "const"})
KEYWORDS = TYPE_KEYWORDS | {"$defs", "additionalProperties", "description", "items", "properties", "required", "title"}


def named_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema in the form that both APIs take."""
    return {"name": NAME, "schema": dict(schema), "strict": fits_strict(schema)}


def fits_strict(schema: Mapping[str, Any]) -> bool:
    """Tell whether strict mode takes the schema as it is."""
    nodes = list(_nodes(schema, MAX_DEPTH))
    return (
        schema.get("type") == "object"
        and "anyOf" not in schema
        and all(_node_fits(node) for node in nodes)
        and sum(len(node.get("properties", ())) for node in nodes) <= MAX_MEMBERS
        and sum(len(node.get("enum", ())) for node in nodes) <= MAX_ENUM_VALUES
    )


def _nodes(node: Any, levels: int) -> Iterator[Any]:
    """Yield the schema and all schemas within it; None, which fits nowhere, for what is too deep."""
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


def _node_fits(node: Any) -> bool:
    if not isinstance(node, Mapping) or not node.keys() <= KEYWORDS or node.keys().isdisjoint(TYPE_KEYWORDS):
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
    """Tell whether every member is named and required."""
    members, required = node.get("properties", {}), node.get("required", [])
    return (
        node.get("additionalProperties") is False
        and isinstance(members, Mapping)
        and isinstance(required, list)
        and sorted(map(str, required)) == sorted(members)
    )
