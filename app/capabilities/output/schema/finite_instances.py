"""Search for a recursive subschema that requires itself without end, so that no finite answer can fit the schema.

A value of a subschema is known to end if each part that it must have is known to end. The parts that are known grow
until nothing is added, so what is unknown then needs itself. Every keyword that is not understood here counts as one
that a value can satisfy: a schema is refused only for `required`, `minProperties`, `minItems`, `contains`, and the
subschemas that apply to the same value.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeAlias

from app.capabilities.output.schema.outline import JsonPointer, SchemaOutline

_ALL_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_CONTAINERS: Final = frozenset({"object", "array"})

_Place: TypeAlias = tuple[JsonPointer, frozenset[str]]
"""A subschema, and the types that are left for a value by the subschemas around it."""


def endless_subschema(outline: SchemaOutline) -> JsonPointer | None:
    """Return the place of a subschema that requires itself without end if the whole schema does, else None."""
    if not outline.is_recursive:
        return None
    search = _Search(outline)
    whole = ((), _ALL_TYPES)
    return None if search.ends(whole) else next(pointer for pointer, _ in search.endless if pointer in outline.recursive)


class _Search:
    """The places that were met, and those of them whose values are known to end."""

    def __init__(self, outline: SchemaOutline) -> None:
        self._outline = outline
        self._met: dict[_Place, None] = {}
        self._ended: set[_Place] = set()

    @property
    def endless(self) -> Iterator[_Place]:
        """The places whose values never end, in the order in which they were met."""
        return (place for place in self._met if place not in self._ended)

    def ends(self, place: _Place) -> bool:
        """Return True if a value at the place can end."""
        self._met[place] = None
        grew = True
        while grew:
            before = len(self._met), len(self._ended)
            for met in list(self._met):
                if met not in self._ended and self._can_end(*met):
                    self._ended.add(met)
            grew = before != (len(self._met), len(self._ended))
        return place in self._ended

    def _known(self, pointer: JsonPointer, types: frozenset[str] = _ALL_TYPES) -> bool:
        place = (pointer, types)
        self._met.setdefault(place)
        return place in self._ended

    def _can_end(self, pointer: JsonPointer, types: frozenset[str]) -> bool:
        subschema = self._outline.subschemas[pointer]
        if not isinstance(subschema, dict) or "const" in subschema or "enum" in subschema:
            return True
        types &= _types(subschema)
        same_value = chain(
            self._outline.references.get(pointer, ()),
            ((*pointer, "allOf", index) for index in range(len(_items(subschema.get("allOf"))))),
        )
        required = [self._known(target, types) for target in same_value]
        for keyword in ("anyOf", "oneOf"):
            alternatives = _items(subschema.get(keyword))
            if alternatives:
                known = [self._known((*pointer, keyword, index), types) for index in range(len(alternatives))]
                required.append(any(known))
        return all(required) and self._some_type_ends(pointer, subschema, types)

    def _some_type_ends(self, pointer: JsonPointer, subschema: Mapping[str, Any], types: frozenset[str]) -> bool:
        return (
            not types <= _CONTAINERS
            or ("object" in types and self._object_ends(pointer, subschema))
            or ("array" in types and self._list_ends(pointer, subschema))
        )

    def _object_ends(self, pointer: JsonPointer, subschema: Mapping[str, Any]) -> bool:
        required = [self._member_ends(pointer, subschema, name) for name in _items(subschema.get("required"))]
        if not required and _count(subschema, "minProperties", 0):
            names = [name for name in _mapping(subschema.get("properties")) if isinstance(name, str)]
            return any([self._member_ends(pointer, subschema, name) for name in (*names, None)])
        return all(required)

    def _member_ends(self, pointer: JsonPointer, subschema: Mapping[str, Any], name: object) -> bool:
        """Return True if the member can end; None is a name that the schema does not list."""
        if name is not None and name in _mapping(subschema.get("properties")):
            return self._known((*pointer, "properties", str(name)))
        if subschema.get("patternProperties") or "additionalProperties" not in subschema:
            return True
        if subschema["additionalProperties"] is False:
            return name is not None
        return self._known((*pointer, "additionalProperties"))

    def _list_ends(self, pointer: JsonPointer, subschema: Mapping[str, Any]) -> bool:
        least, first = _count(subschema, "minItems", 0), len(_items(subschema.get("prefixItems")))
        elements = [self._known((*pointer, "prefixItems", index)) for index in range(min(least, first))]
        if least > first and "items" in subschema:
            elements.append(self._known((*pointer, "items")))
        if "contains" in subschema and _count(subschema, "minContains", 1):
            elements.append(self._known((*pointer, "contains")))
        return all(elements)


def _types(subschema: Mapping[str, Any]) -> frozenset[str]:
    named = subschema.get("type", _ALL_TYPES)
    names = frozenset((named,) if isinstance(named, str) else named if isinstance(named, list | frozenset) else ())
    return names | {"integer"} if "number" in names else names


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(subschema: Mapping[str, Any], keyword: str, default: int) -> float:
    value = subschema.get(keyword, default)
    return value if isinstance(value, int | float) else default
