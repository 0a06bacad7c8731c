"""A JSON Schema as Gemini takes it [schema sanitized for provider compatibility].

Gemini knows a part of JSON Schema only, the keywords that its reference lists under `responseJsonSchema`; what else a
schema holds it ignores at best, and at worst it refuses the request. So references and `allOf` are put in place,
`const`, `oneOf`, `nullable` and exclusive bounds are said in words that it knows, and the rest is left out. What comes
out allows whatever the schema allowed, and sometimes more: who asked judges the answer by the schema itself. Only a
node that has members, but no type, is taken for what it describes.

Definitions that are put in place make a schema grow, and one that leads back to itself has no end. Nodes are therefore
laid out breadth first, until about `LARGEST` bytes are said, `DEEPEST` levels are reached, or a definition stands
`UNROLLED` times within itself; below that a node says its type and no more. Gemini, where it follows references by
itself, unrolls them to a limited degree too, and takes them in optional members only.
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
JOINED: Final = 64
"""Most nodes that are read together as one: a node, what it refers to, and the members of its `allOf`."""
NODE_BYTES: Final = 64
"""What a node counts for beside its words, since it takes as long as so many of them."""
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
    """The schema as Gemini takes it; one that says nothing stays empty. The argument is left as it was."""
    return _Layout(schema).whole()


class _Place(NamedTuple):
    """Where a node belongs: `said` is filled in. `within` are the references that led here."""

    node: Any
    said: dict[str, Any]
    depth: int
    within: tuple[str, ...]


class _Below(NamedTuple):
    """A node right below another, the name that it has there, and where it is said."""

    name: str
    node: Any
    said: dict[str, Any]


class _Layout:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._left = MAX_BYTES

    def whole(self) -> dict[str, Any]:
        said: dict[str, Any] = {}
        waiting = deque([_Place(self._schema, said, 0, ())])
        while waiting:
            waiting.extend(self._say(waiting.popleft()))
        return said

    def _say(self, place: _Place) -> Iterator[_Place]:
        """Says one node, and gives the places of those below it."""
        node, within, followed = self._joined(place.node, place.within)
        types = _types(node)
        if self._left <= 0 or place.depth >= MAX_DEPTH or not followed:
            place.said.update(_type(types))
            return
        members = _alternatives(node)
        place.said.update(_own(node, [] if members else types))
        self._left -= len(orjson.dumps(place.said))
        for below in _one_of(members, types, place.said) if members else _below(node, types, place.said):
            self._left -= NODE_BYTES + len(below.name)
            yield _Place(below.node, below.said, place.depth + 1, within)

    def _joined(self, node: Any, within: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...], bool]:
        """The node with all that holds beside it, its own words first; the references followed until then; and
        whether none was left that should have been.
        """
        joined: dict[str, Any] = {}
        followed = True
        waiting: deque[Any] = deque([node])
        for _ in range(JOINED):
            if not waiting or self._left <= 0:
                break
            part = waiting.popleft()
            if not isinstance(part, Mapping):
                continue
            self._left -= _join(joined, part)
            waiting.extend(_listed(part.get("allOf"))[:JOINED])
            reference = part.get("$ref")
            target = self._target(reference) if isinstance(reference, str) else None
            if target is None:
                continue
            if len(within) < JOINED and within.count(str(reference)) < MAX_UNROLLED:
                within = (*within, str(reference))
                waiting.append(target)
            else:
                followed = False
                waiting.append({"type": target.get("type")})
        return joined, within, followed

    def _target(self, reference: str) -> Mapping[str, Any] | None:
        """The node that a reference within this schema names; None for any other reference."""
        self._left -= len(reference)
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


def _join(joined: dict[str, Any], part: Mapping[str, Any]) -> int:
    """Adds what another node says; where both speak, what was there stays. Returns how much there was to read."""
    for key, value in part.items():
        if key == "properties":
            known = joined.setdefault(key, {})
            for name, node in _mapped(value).items():
                known.setdefault(name, node)
        elif key == "required":
            joined.setdefault(key, []).extend(_listed(value))
        else:
            joined.setdefault(key, value)
    return len(part) + sum(len(value) for value in part.values() if isinstance(value, list | Mapping))


def _alternatives(node: Mapping[str, Any]) -> list[Any]:
    """Those of which one must hold, where a node leaves it to them to say what it is."""
    if "properties" in node or _values(node):
        return []
    return _listed(node.get("anyOf")) or _listed(node.get("oneOf"))


def _types(node: Mapping[str, Any]) -> list[str]:
    """The types that a node names, or that its values or members have; empty where it takes any."""
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
    """The only values that a node takes; empty where it does not say."""
    return [node["const"]] if "const" in node else _listed(node.get("enum"))


def _own(node: Mapping[str, Any], types: list[str]) -> dict[str, Any]:
    """What a node says by itself, without those below it."""
    said = {key: node[key] for key in ("title", "description") if isinstance(node.get(key), str)}
    said |= _type(types) | _enum(node)
    if isinstance(node.get("format"), str) and node["format"] in FORMATS:
        said["format"] = node["format"]
    for keyword, kinds in BOUNDS.items():
        bound = _bound(node, keyword)
        if bound is not None and kinds.intersection(types):
            said[keyword] = bound
    return said


def _enum(node: Mapping[str, Any]) -> dict[str, Any]:
    """The values where Gemini can be told all of them: it knows texts, which must not be empty, or numbers."""
    values = [value for value in _values(node) if value is not None]
    texts = all(isinstance(value, str) and value for value in values)
    return {"enum": values} if values and (texts or all(_is_number(value) for value in values)) else {}


def _bound(node: Mapping[str, Any], keyword: str) -> int | float | None:
    """A limit of numbers or of items. An exclusive one is moved to the next integer where only those are taken."""
    bound, exclusive = node.get(keyword), node.get(f"exclusive{keyword.capitalize()}")
    if bound is None and _is_number(exclusive):
        step = int(isinstance(exclusive, int) and node.get("type") == "integer")
        return exclusive + step if keyword == "minimum" else exclusive - step
    if not _is_number(bound) or (keyword.endswith("Items") and isinstance(bound, float)):
        return None
    return bound


def _is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is a number that can be sent: not infinite, and not above 63 bits."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < WORD_BITS


def _one_of(members: list[Any], types: list[str], said: dict[str, Any]) -> Iterator[_Below]:
    """The alternatives, each with the type that holds for all where it names none."""
    said["anyOf"] = [{} for _ in members]
    for member, place in zip(members, said["anyOf"], strict=True):
        yield _Below("", {"allOf": [member, _type(types)]} if types else member, place)


def _below(node: Mapping[str, Any], types: list[str], said: dict[str, Any]) -> Iterator[_Below]:
    """The nodes of members and items."""
    if "object" in types:
        yield from _members(node, said)
    if "array" in types:
        yield from _items(node, said)


def _members(node: Mapping[str, Any], said: dict[str, Any]) -> Iterator[_Below]:
    properties = _mapped(node.get("properties"))
    if "properties" in node:
        said["properties"] = {name: {} for name in properties}
        yield from (_Below(name, properties[name], place) for name, place in said["properties"].items())
    for keyword in ("required", "propertyOrdering"):
        names = _known(node.get(keyword), properties)
        if names:
            said[keyword] = names
    others = node.get("additionalProperties")
    if "patternProperties" in node:
        return
    if isinstance(others, Mapping):
        said["additionalProperties"] = {}
        yield _Below("", others, said["additionalProperties"])
    elif isinstance(others, bool):
        said["additionalProperties"] = others


def _known(names: Any, properties: Mapping[str, Any]) -> list[str]:
    """Names of members that are described: Gemini refuses to be asked for others."""
    return list(dict.fromkeys(name for name in _listed(names) if isinstance(name, str) and name in properties))


def _items(node: Mapping[str, Any], said: dict[str, Any]) -> Iterator[_Below]:
    items = node.get("items")
    first = items if isinstance(items, list) else _listed(node.get("prefixItems"))
    if first:
        said["prefixItems"] = [{} for _ in first]
        yield from (_Below("", item, place) for item, place in zip(first, said["prefixItems"], strict=True))
    if isinstance(items, Mapping):
        said["items"] = {}
        yield _Below("", items, said["items"])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapped(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
