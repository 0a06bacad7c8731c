"""Gives values of an enumeration the spelling that the schema has for them.

Only letters' case is passed over, and only where a single option remains: digits, spaces and signs stay as they are,
and so does every value that some enumeration at its place already has. Options of alternatives count together.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from app.capabilities.constraint.repair import Action, Repair
from app.capabilities.constraint.schema_outline import Outline, Pointer
from app.domain.json_path import written

MOST_VISITS: Final = 10_000
"""Pairs of a place and a subschema that are looked at; what lies beyond keeps its spelling."""
_ONE: Final = ("then", "else")
_LISTED: Final = ("allOf", "anyOf", "oneOf")

Folded = dict[str, set[str]]
"""Options by what they are without regard to case."""


def normalise(outline: Outline, value: Any) -> tuple[Any, tuple[Repair, ...]]:
    """The value with its enumerated strings in the schema's spelling, and each that was changed, by its place."""
    spellings = {
        place: options.pop()
        for place, (text, options) in _enumerated(outline, value).items()
        if text not in options and len(options) == 1
    }
    repairs = tuple(Repair(Action.ENUM_NORMALISED, written(place)) for place in spellings)
    return _with(value, spellings), repairs


def _enumerated(outline: Outline, value: Any) -> dict[Pointer, tuple[str, set[str]]]:
    """Every string at whose place there is an enumeration, with those of its options that differ in case at most."""
    found: dict[Pointer, tuple[str, set[str]]] = {}
    folded: dict[Pointer, Folded] = {}
    seen: set[tuple[Pointer, Pointer]] = set()
    waiting: deque[tuple[Pointer, Any, Pointer]] = deque([((), value, ())])
    while waiting:
        pointer, inner, place = waiting.popleft()
        subschema = outline.subschemas.get(pointer)
        if (pointer, place) in seen or not isinstance(subschema, dict):
            continue
        seen.add((pointer, place))
        if isinstance(inner, str) and ("enum" in subschema or "const" in subschema):
            if pointer not in folded:
                folded[pointer] = _folded(subschema)
            options = found.setdefault(place, (inner, set()))[1]
            options |= folded[pointer].get(inner.casefold(), set())
        here = ((target, inner, place) for target in _here(outline, pointer))
        below = ((target, child, (*place, key)) for target, key, child in _below(outline, pointer, inner))
        waiting.extend(islice(chain(here, below), max(0, MOST_VISITS - len(seen) - len(waiting))))
    return found


def _folded(subschema: dict[str, Any]) -> Folded:
    folded: Folded = {}
    for option in [subschema["const"]] if "const" in subschema else subschema["enum"]:
        if isinstance(option, str):
            folded.setdefault(option.casefold(), set()).add(option)
    return folded


def _here(outline: Outline, pointer: Pointer) -> Iterator[Pointer]:
    """The subschemas that speak of the same place."""
    subschema = outline.subschemas[pointer]
    yield from outline.references.get(pointer, ())
    for keyword in _LISTED:
        if keyword in subschema:
            yield from ((*pointer, keyword, index) for index in range(len(subschema[keyword])))
    for keyword in _ONE:
        if keyword in subschema:
            yield (*pointer, keyword)
    if "dependentSchemas" in subschema:
        yield from ((*pointer, "dependentSchemas", name) for name in subschema["dependentSchemas"])


def _below(outline: Outline, pointer: Pointer, value: Any) -> Iterator[tuple[Pointer, str | int, Any]]:
    """The subschemas that speak of members or elements of the value."""
    subschema = outline.subschemas[pointer]
    if isinstance(value, dict):
        properties = subschema.get("properties", {})
        for name, child in value.items():
            known = name in properties
            yield (*pointer, *(("properties", name) if known else ("additionalProperties",))), name, child
    elif isinstance(value, list):
        first = len(subschema.get("prefixItems", ()))
        for index, child in enumerate(value):
            yield (*pointer, *(("prefixItems", index) if index < first else ("items",))), index, child


def _with(value: Any, texts: dict[Pointer, str]) -> Any:
    """The value with those texts at their places; it stays as it was, what changes is copied once."""
    holder: list[Any] = [value]
    copies: dict[Pointer, Any] = {}

    def holding(place: Pointer) -> tuple[Any, Any]:
        """A container that may be changed, and the key of that place in it."""
        if not place:
            return holder, 0
        if place[:-1] not in copies:
            outer, key = holding(place[:-1])
            outer[key] = copies[place[:-1]] = outer[key].copy()
        return copies[place[:-1]], place[-1]

    for place, text in texts.items():
        outer, key = holding(place)
        outer[key] = text
    return holder[0]
