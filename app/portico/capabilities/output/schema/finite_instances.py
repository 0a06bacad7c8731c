"""Search for a recursive subschema that requires itself without end, so that no finite answer can fit the schema.

A value of a subschema is known to end if each part that it must have is known to end. The parts that are known grow
until nothing is added, so what is unknown then needs itself. Every keyword that is not understood here counts as one
that a value can satisfy: a schema is refused only for `required`, `minProperties`, `minItems`, `contains`, and the
subschemas that apply to the same value.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeAlias

from portico.capabilities.output.schema.outline import JsonPointer, SchemaOutline

_ALL_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_CONTAINERS: Final = frozenset({"object", "array"})

_Place: TypeAlias = tuple[JsonPointer, frozenset[str]]
"""A subschema, and the types that are left for a value by the subschemas around it."""


def endless_subschema(outline: SchemaOutline) -> JsonPointer | None:
    """Return the place of a subschema that requires itself without end if the whole schema does, else None."""
    search = _Search(outline)
    if not outline.recursive or search.ends(((), _ALL_TYPES)):
        return None
    return next((pointer for pointer, _ in search.endless if pointer in outline.recursive), ())


class _Search:
    """The places that were met, those of them whose values are known to end, and who waits to know that."""

    def __init__(self, outline: SchemaOutline) -> None:
        self._outline = outline
        self._ended: set[_Place] = set()
        self._asked_by: dict[_Place, list[_Place]] = {}
        self._waiting: list[_Place] = []

    @property
    def endless(self) -> Iterator[_Place]:
        """The places whose values never end, in the order in which they were met."""
        return (place for place in self._asked_by if place not in self._ended)

    def ends(self, whole: _Place) -> bool:
        """Return True if a value at the place can end."""
        self._asked_by[whole] = []
        self._waiting.append(whole)
        while self._waiting:
            place = self._waiting.pop()
            if place not in self._ended and self._can_end(place):
                self._ended.add(place)
                self._waiting += self._asked_by[place]
        return whole in self._ended

    def _known(self, asking: _Place, pointer: JsonPointer, types: frozenset[str] = _ALL_TYPES) -> bool:
        """Return True if a value at that place is known to end; if not, look again once it is."""
        place = (pointer, types)
        if place not in self._asked_by:
            self._waiting.append(place)
        self._asked_by.setdefault(place, []).append(asking)
        return place in self._ended

    def _can_end(self, place: _Place) -> bool:
        pointer, types = place
        subschema = self._outline.subschemas[pointer]
        if not isinstance(subschema, dict) or "const" in subschema or "enum" in subschema:
            return True
        types &= _types(subschema)
        same_value = chain(
            self._outline.references.get(pointer, ()),
            ((*pointer, "allOf", index) for index in range(len(_items(subschema.get("allOf"))))),
        )
        return (
            all(self._known(place, target, types) for target in same_value)
            and all(self._one_ends(place, keyword, types) for keyword in ("anyOf", "oneOf") if subschema.get(keyword))
            and self._some_type_ends(place, subschema, types)
        )

    def _one_ends(self, place: _Place, keyword: str, types: frozenset[str]) -> bool:
        pointer = place[0]
        count = len(self._outline.subschemas[pointer][keyword])
        return any(self._known(place, (*pointer, keyword, index), types) for index in range(count))

    def _some_type_ends(self, place: _Place, subschema: Mapping[str, Any], types: frozenset[str]) -> bool:
        return (
            not types <= _CONTAINERS
            or ("object" in types and self._object_ends(place, subschema))
            or ("array" in types and self._list_ends(place, subschema))
        )

    def _object_ends(self, place: _Place, subschema: Mapping[str, Any]) -> bool:
        required = _items(subschema.get("required"))
        if not required and _count(subschema, "minProperties", 0):
            names = (*_mapping(subschema.get("properties")), None)
            return any(self._member_ends(place, subschema, name) for name in names)
        return all(self._member_ends(place, subschema, name) for name in required)

    def _member_ends(self, place: _Place, subschema: Mapping[str, Any], name: str | None) -> bool:
        """Return True if the member is known to end; None is a name that the schema does not list."""
        pointer = place[0]
        if name is not None and name in _mapping(subschema.get("properties")):
            return self._known(place, (*pointer, "properties", name))
        if subschema.get("patternProperties") or "additionalProperties" not in subschema:
            return True
        if subschema["additionalProperties"] is False:
            return name is not None
        return self._known(place, (*pointer, "additionalProperties"))

    def _list_ends(self, place: _Place, subschema: Mapping[str, Any]) -> bool:
        pointer = place[0]
        least, first = int(_count(subschema, "minItems", 0)), len(_items(subschema.get("prefixItems")))
        elements: list[JsonPointer] = [("prefixItems", index) for index in range(min(least, first))]
        if least > first and "items" in subschema:
            elements.append(("items",))
        if "contains" in subschema and _count(subschema, "minContains", 1):
            elements.append(("contains",))
        return all(self._known(place, (*pointer, *steps)) for steps in elements)


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
