"""The subschemas of a schema and the targets of its references, all of which lie within the schema."""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any, Final

from portico.domain.json_path import format_path
from portico.domain.value import value

JsonPointer = tuple[str | int, ...]
"""The steps of a JSON pointer [RFC 6901], unescaped."""


class SubschemaScope(Enum):
    """The place a subschema applies to, relative to its parent."""

    HERE = "here"
    BELOW = "below"
    NOWHERE = "only where it is referred to"


SINGLE_KEYWORDS: Mapping[str, SubschemaScope] = MappingProxyType(
    dict.fromkeys(("not", "if", "then", "else"), SubschemaScope.HERE)
    | dict.fromkeys(
        (
            "additionalProperties",
            "contains",
            "items",
            "propertyNames",
            "unevaluatedItems",
            "unevaluatedProperties",
        ),
        SubschemaScope.BELOW,
    )
)
LIST_KEYWORDS: Mapping[str, SubschemaScope] = MappingProxyType(
    dict.fromkeys(("allOf", "anyOf", "oneOf"), SubschemaScope.HERE) | {"prefixItems": SubschemaScope.BELOW}
)
MAP_KEYWORDS: Mapping[str, SubschemaScope] = MappingProxyType(
    {
        "dependentSchemas": SubschemaScope.HERE,
        "properties": SubschemaScope.BELOW,
        "patternProperties": SubschemaScope.BELOW,
        "$defs": SubschemaScope.NOWHERE,
    }
)
"""The keywords that hold one subschema, a list of subschemas, and subschemas by name."""
REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")


class SchemaOutlineError(ValueError):
    """The references of the schema are invalid; `path` is the place in the schema, as a JSON path."""

    def __init__(self, pointer: JsonPointer, message: str) -> None:
        super().__init__(message)
        self.path = format_path(pointer)


@value
class SchemaOutline:
    """All subschemas by their pointers, and the targets of their references."""

    subschemas: Mapping[JsonPointer, Any]
    references: Mapping[JsonPointer, tuple[JsonPointer, ...]]
    recursive: frozenset[JsonPointer]
    """The subschemas that lead back to themselves."""

    def patterns(self) -> Iterator[tuple[JsonPointer, str]]:
        """Yield every regular expression and its pointer."""
        for pointer, subschema in self.subschemas.items():
            for keyword, pattern in _patterns(subschema):
                yield (*pointer, keyword), pattern


def outline_schema(schema: Any) -> SchemaOutline:
    """Return the outline of the schema.

    Raises: SchemaOutlineError for references that lead out of it, nowhere, or round in a circle.
    """
    subschemas, places = _subschemas(schema)
    anchors = {
        subschema[keyword]: pointer
        for pointer, subschema in subschemas.items()
        for keyword in _ANCHORS
        if isinstance(subschema, dict) and isinstance(subschema.get(keyword), str)
    }
    references: dict[JsonPointer, tuple[JsonPointer, ...]] = {}
    for pointer, subschema in subschemas.items():
        found = tuple(_target(places, anchors, (*pointer, name), text) for name, text in _references(subschema))
        if found:
            references[pointer] = found
    same_value, recursive = _applications(subschemas, references)
    if recursive:
        _refuse_circles(same_value)
    return SchemaOutline(subschemas, references, frozenset(recursive))


def _subschemas(schema: Any) -> tuple[dict[JsonPointer, Any], dict[str, JsonPointer]]:
    """Return all subschemas, and the targets of references that name a place."""
    found: dict[JsonPointer, Any] = {}
    places: dict[str, JsonPointer] = {}
    waiting: list[tuple[JsonPointer, Any]] = [((), schema)]
    while waiting:
        pointer, subschema = waiting.pop()
        if pointer in found:
            continue
        found[pointer] = subschema
        if pointer and isinstance(subschema, dict) and "$id" in subschema:
            raise SchemaOutlineError((*pointer, "$id"), "only the whole schema can have an $id")
        waiting += [((*pointer, *steps), child) for _, steps, child in child_subschemas(subschema)]
        for name, text in _references(subschema):
            if text not in places and (text == "#" or text.startswith("#/")):
                target = _target_of(schema, text, (*pointer, name))
                places[text] = target[0]
                waiting.append(target)
    return found, places


def child_subschemas(subschema: Any) -> Iterator[tuple[SubschemaScope, JsonPointer, Any]]:
    """Yield the subschemas directly within one: the scope, the steps to it, and the subschema."""
    if not isinstance(subschema, dict):
        return
    for keyword, inner in subschema.items():
        if keyword in SINGLE_KEYWORDS:
            yield SINGLE_KEYWORDS[keyword], (keyword,), inner
        elif keyword in LIST_KEYWORDS and isinstance(inner, list):
            yield from ((LIST_KEYWORDS[keyword], (keyword, index), child) for index, child in enumerate(inner))
        elif keyword in MAP_KEYWORDS and isinstance(inner, dict):
            yield from ((MAP_KEYWORDS[keyword], (keyword, name), child) for name, child in inner.items())


def member_subschemas(
    subschema: Mapping[str, Any], value: Any, occurs: Callable[[str, str], bool]
) -> Iterator[tuple[JsonPointer, str | int, Any]]:
    """Yield the subschemas for members or elements of the value: steps to it, key or index, and the value there.

    `occurs` returns True if a pattern occurs in a name.
    """
    if isinstance(value, dict):
        yield from _of_members(subschema, value, occurs)
    elif isinstance(value, list):
        first = len(subschema.get("prefixItems", ()))
        yield from ((("prefixItems", index), index, child) for index, child in enumerate(value[:first]))
        if "items" in subschema:
            yield from ((("items",), index, child) for index, child in enumerate(value[first:], first))


def _of_members(
    subschema: Mapping[str, Any], value: Mapping[str, Any], occurs: Callable[[str, str], bool]
) -> Iterator[tuple[JsonPointer, str | int, Any]]:
    properties, patterns = subschema.get("properties", {}), subschema.get("patternProperties", {})
    for name, child in value.items():
        known = name in properties
        if known:
            yield ("properties", name), name, child
        for pattern in patterns:
            if occurs(pattern, name):
                known = True
                yield ("patternProperties", pattern), name, child
        if not known and "additionalProperties" in subschema:
            yield ("additionalProperties",), name, child


def _references(subschema: Any) -> Iterator[tuple[str, str]]:
    if isinstance(subschema, dict):
        for keyword in REFERENCE_KEYWORDS:
            if isinstance(subschema.get(keyword), str):
                yield keyword, subschema[keyword]


def _target(
    places: Mapping[str, JsonPointer], anchors: Mapping[str, JsonPointer], place: JsonPointer, text: str
) -> JsonPointer:
    if not text.startswith("#"):
        raise SchemaOutlineError(place, "a reference must lead to a place in this schema and begin with #")
    if text in places:
        return places[text]
    if text[1:] not in anchors:
        raise SchemaOutlineError(place, "the schema has no such anchor")
    return anchors[text[1:]]


def _target_of(schema: Any, text: str, place: JsonPointer) -> tuple[JsonPointer, Any]:
    """Return the target of a reference such as `#/$defs/name`, and the subschema there."""
    decoded = _ENCODED.sub(lambda code: bytes.fromhex(code[1].decode()), text[1:].encode()).decode(errors="replace")
    pointer: JsonPointer = ()
    found = schema
    for written_step in decoded.split("/")[1:]:
        step: str | int = written_step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and written_step.isdecimal() and int(written_step) < len(found):
            step = int(written_step)
        elif not isinstance(found, dict) or step not in found:
            raise SchemaOutlineError(place, "nothing stands where the reference leads")
        pointer, found = (*pointer, step), found[step]
    if not isinstance(found, dict | bool):
        raise SchemaOutlineError(place, "the reference leads to what is no schema")
    return pointer, found


def _applications(
    subschemas: Mapping[JsonPointer, Any], references: Mapping[JsonPointer, tuple[JsonPointer, ...]]
) -> tuple[dict[JsonPointer, list[JsonPointer]], set[JsonPointer]]:
    """Return what each subschema in use applies to the same value, and the subschemas that lead back to themselves."""
    same_value: dict[JsonPointer, list[JsonPointer]] = {}
    recursive: set[JsonPointer] = set()
    waiting: list[tuple[JsonPointer, Iterator[JsonPointer]]] = []
    within: set[JsonPointer] = set()

    def enter(pointer: JsonPointer) -> None:
        within.add(pointer)
        applied = [(scope, (*pointer, *steps)) for scope, steps, _ in child_subschemas(subschemas[pointer])]
        applied += [(SubschemaScope.HERE, target) for target in references.get(pointer, ())]
        same_value[pointer] = [target for scope, target in applied if scope is SubschemaScope.HERE]
        waiting.append((pointer, iter([target for scope, target in applied if scope is not SubschemaScope.NOWHERE])))

    enter(())
    while waiting:
        pointer, targets = waiting[-1]
        for target in targets:
            if target in within:
                recursive.add(target)
            elif target not in same_value:
                enter(target)
                break
        else:
            within.discard(pointer)
            waiting.pop()
    return same_value, recursive


def _refuse_circles(same_value: Mapping[JsonPointer, list[JsonPointer]]) -> None:
    """Raise SchemaOutlineError if a subschema applies itself to the same value without end [JSON Schema 9.4.1]."""
    try:
        TopologicalSorter(same_value).prepare()
    except CycleError as circle:
        raise SchemaOutlineError(circle.args[1][0], "it applies itself to the same value without end") from None


def _patterns(subschema: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(subschema, dict):
        return
    if isinstance(subschema.get("pattern"), str):
        yield "pattern", subschema["pattern"]
    if isinstance(subschema.get("patternProperties"), dict):
        yield from (("patternProperties", pattern) for pattern in subschema["patternProperties"])
