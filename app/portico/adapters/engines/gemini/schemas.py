"""JSON Schemas as Gemini takes them [schema sanitized for provider compatibility].

Gemini knows a part of JSON Schema, the keywords that its reference lists under `responseJsonSchema`; it ignores others
at best, and refuses the request at worst. So references and `allOf` are inlined, `const`, `oneOf`, `nullable` and
exclusive bounds are expressed by keywords that it knows, and the rest is left out. The result allows everything that
the schema allows, and sometimes more: the answer is validated by the schema itself. Only a node that has members, but
no type, is taken for what it describes.

Inlined definitions make a schema grow, and one that leads back to itself has no end. Nodes are therefore laid out
breadth first, until about `MAX_BYTES` bytes are written, `MAX_DEPTH` levels are reached, or a definition occurs
`MAX_UNROLLED` times within itself; below that a node has its type only. Gemini unrolls references to a limited degree
too, and takes them in optional members only.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import unquote

import orjson

MAX_BYTES: Final = 2**17
MAX_DEPTH: Final = 32
MAX_UNROLLED: Final = 3
MAX_MERGED: Final = 64
"""The most nodes that are merged into one: a node, its reference, and the members of its `allOf`."""
NODE_BYTES: Final = 64
"""The cost of a node beside its text, since it takes as long as so many bytes."""
WORD_BITS: Final = 64

TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
NAMES: Final = frozenset(TYPES.values())
FORMATS: Final = frozenset({"date-time", "date", "time", "int32", "int64", "float", "double"})
BOUNDS: Final[Mapping[str, frozenset[str]]] = {
    "minimum": frozenset({"integer", "number"}),
    "maximum": frozenset({"integer", "number"}),
    "minItems": frozenset({"array"}),
    "maxItems": frozenset({"array"}),
}
DESCRIBED_BY: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset({"properties", "additionalProperties", "required"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems"}),
}


def sanitize_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema as Gemini takes it; an empty one stays empty. The argument is not changed."""
    return _Layout(schema).whole()


class _Node(NamedTuple):
    """A node to be laid out into `said`; `within` are the references that led to it."""

    node: Any
    output: dict[str, Any]
    depth: int
    within: tuple[str, ...]


class _Child(NamedTuple):
    """A child node, its name, and the object that it is laid out into."""

    name: str
    node: Any
    output: dict[str, Any]


class _Layout:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._remaining = MAX_BYTES

    def whole(self) -> dict[str, Any]:
        output: dict[str, Any] = {}
        waiting = deque([_Node(self._schema, output, 0, ())])
        while waiting:
            waiting.extend(self._lay_out(waiting.popleft()))
        return output

    def _lay_out(self, target_node: _Node) -> Iterator[_Node]:
        """Lay out one node, and yield its children."""
        node, within, is_complete = self._merged(target_node.node, target_node.within)
        types = _types(node)
        if self._remaining <= 0 or target_node.depth >= MAX_DEPTH or not is_complete:
            target_node.output.update(_type(types))
            return
        members = _alternatives(node)
        target_node.output.update(_own_keywords(node, [] if members else types))
        self._remaining -= len(orjson.dumps(target_node.output))
        for child in (
            _one_of(members, types, target_node.output) if members else _children(node, types, target_node.output)
        ):
            self._remaining -= NODE_BYTES + len(child.name)
            yield _Node(child.node, child.output, target_node.depth + 1, within)

    def _merged(self, node: Any, within: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...], bool]:
        """Return the merged keywords of a node, the references followed so far, and whether all could be followed."""
        merged: dict[str, Any] = {}
        is_complete = True
        waiting: deque[Any] = deque([node])
        for _ in range(MAX_MERGED):
            if not waiting or self._remaining <= 0:
                break
            part = waiting.popleft()
            if not isinstance(part, Mapping):
                continue
            self._remaining -= _merge(merged, part)
            waiting.extend(_listed(part.get("allOf"))[:MAX_MERGED])
            reference = part.get("$ref")
            target = self._target(reference) if isinstance(reference, str) else None
            if target is None:
                continue
            if len(within) < MAX_MERGED and within.count(str(reference)) < MAX_UNROLLED:
                within = (*within, str(reference))
                waiting.append(target)
            else:
                is_complete = False
                waiting.append({"type": target.get("type")})
        return merged, within, is_complete

    def _target(self, reference: str) -> Mapping[str, Any] | None:
        """Return the node that a reference within this schema names; None for any other reference."""
        self._remaining -= len(reference)
        if not reference.startswith("#"):
            return None
        found: Any = self._schema
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = _mapped(found).get(key)
        return found if isinstance(found, Mapping) else None


def _merge(merged: dict[str, Any], part: Mapping[str, Any]) -> int:
    """Merge the keywords of another node; where both have one, the first stays. Return the amount of text read."""
    for key, value in part.items():
        if key == "properties":
            known = merged.setdefault(key, {})
            for name, node in _mapped(value).items():
                known.setdefault(name, node)
        elif key == "required":
            merged.setdefault(key, []).extend(_listed(value))
        else:
            merged.setdefault(key, value)
    return len(part) + sum(len(value) for value in part.values() if isinstance(value, list | Mapping))


def _alternatives(node: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of which one must hold, where a node has no content of its own."""
    if "properties" in node or _values(node):
        return []
    return _listed(node.get("anyOf")) or _listed(node.get("oneOf"))


def _types(node: Mapping[str, Any]) -> list[str]:
    """Return the types of a node by its name, its values or its members; empty where it takes any."""
    named, values = node.get("type"), _values(node)
    types = [
        name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str) and name in NAMES
    ]
    if not types and values:
        types = [TYPES.get(type(value), "object") for value in values]
    if not types and not _alternatives(node):
        types = [name for name, keywords in DESCRIBED_BY.items() if not keywords.isdisjoint(node)][:1]
    if types and (node.get("nullable") is True or None in values):
        types.append("null")
    return list(dict.fromkeys(types))


def _type(types: list[str]) -> dict[str, Any]:
    if not types:
        return {}
    return {"type": types[0] if len(types) == 1 else types}


def _values(node: Mapping[str, Any]) -> list[Any]:
    """Return the only values that a node takes; empty where it takes any."""
    return [node["const"]] if "const" in node else _listed(node.get("enum"))


def _own_keywords(node: Mapping[str, Any], types: list[str]) -> dict[str, Any]:
    """Return a node's own keywords, without its children."""
    output = {key: node[key] for key in ("title", "description") if isinstance(node.get(key), str)}
    output |= _type(types) | _enum(node)
    if isinstance(node.get("format"), str) and node["format"] in FORMATS:
        output["format"] = node["format"]
    for keyword, kinds in BOUNDS.items():
        bound = _bound(node, keyword)
        if bound is not None and kinds.intersection(types):
            output[keyword] = bound
    return output


def _enum(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values where Gemini can take all of them: texts that are not empty, or numbers."""
    values = [value for value in _values(node) if value is not None]
    texts = all(isinstance(value, str) and value for value in values)
    return {"enum": values} if values and (texts or all(_is_number(value) for value in values)) else {}


def _bound(node: Mapping[str, Any], keyword: str) -> int | float | None:
    """Return a limit of numbers or of items. An exclusive one is moved to the next integer."""
    bound, exclusive = node.get(keyword), node.get(f"exclusive{keyword.capitalize()}")
    if bound is None and _is_number(exclusive):
        step = int(isinstance(exclusive, int) and node.get("type") == "integer")
        return exclusive + step if keyword == "minimum" else exclusive - step
    if not _is_number(bound) or (keyword.endswith("Items") and isinstance(bound, float)):
        return None
    return bound


def _is_number(value: Any) -> TypeGuard[int | float]:
    """Tell whether a value is a number that can be sent: finite, and within 63 bits."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < WORD_BITS


def _one_of(members: list[Any], types: list[str], output: dict[str, Any]) -> Iterator[_Child]:
    """Yield the alternatives, each with the type that holds for all where it names none."""
    output["anyOf"] = [{} for _ in members]
    for member, target_node in zip(members, output["anyOf"], strict=True):
        yield _Child("", {"allOf": [member, _type(types)]} if types else member, target_node)


def _children(node: Mapping[str, Any], types: list[str], output: dict[str, Any]) -> Iterator[_Child]:
    """Yield the nodes of members and items."""
    if "object" in types:
        yield from _members(node, output)
    if "array" in types:
        yield from _items(node, output)


def _members(node: Mapping[str, Any], output: dict[str, Any]) -> Iterator[_Child]:
    properties = _mapped(node.get("properties"))
    if "properties" in node:
        output["properties"] = {name: {} for name in properties}
        yield from (_Child(name, properties[name], target_node) for name, target_node in output["properties"].items())
    for keyword in ("required", "propertyOrdering"):
        names = _known_names(node.get(keyword), properties)
        if names:
            output[keyword] = names
    others = node.get("additionalProperties")
    if "patternProperties" in node:
        return
    if isinstance(others, Mapping):
        output["additionalProperties"] = {}
        yield _Child("", others, output["additionalProperties"])
    elif isinstance(others, bool):
        output["additionalProperties"] = others


def _known_names(names: Any, properties: Mapping[str, Any]) -> list[str]:
    """Return the names of described members: Gemini refuses others."""
    return list(dict.fromkeys(name for name in _listed(names) if isinstance(name, str) and name in properties))


def _items(node: Mapping[str, Any], output: dict[str, Any]) -> Iterator[_Child]:
    items = node.get("items")
    first = items if isinstance(items, list) else _listed(node.get("prefixItems"))
    if first:
        output["prefixItems"] = [{} for _ in first]
        yield from (
            _Child("", item, target_node) for item, target_node in zip(first, output["prefixItems"], strict=True)
        )
    if isinstance(items, Mapping):
        output["items"] = {}
        yield _Child("", items, output["items"])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapped(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
