"""Normalisation of enumerated values to the spelling in the schema.

Only the case of letters is ignored, and only if a single option matches: digits, spaces and signs have to match, and a
value that equals an option of any enumeration at its place is not changed. Options of alternatives count together.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import chain, islice
from typing import Any, Final

from portico.capabilities.output.repair import Repair, RepairAction
from portico.capabilities.output.schema.outline import JsonPointer, SchemaOutline, member_subschemas
from portico.capabilities.output.schema.validators import cached_pattern
from portico.domain.json_path import format_path
from portico.domain.value import replace, value

MAX_VISITS: Final = 10_000
"""Most pairs of a place and a subschema that are visited; the rest keeps its spelling."""
MAX_REPORTED_CHANGES: Final = 20
"""Changes that are reported with a place of their own."""
_ONE: Final = ("then", "else")
_LISTED: Final = ("allOf", "anyOf", "oneOf")

Folded = dict[str, set[str]]
"""Options by their text with case folded."""


def normalise_enums(outline: SchemaOutline, value: Any) -> tuple[Any, tuple[Repair, ...]]:
    """Return the value with its enumerated strings in the schema's spelling, and the changes by place."""
    enumerated = _enumerated(outline, value)
    spellings = {
        place: string.options.pop()
        for place, string in enumerated.items()
        if string.text not in string.options and len(string.options) == 1
    }
    return _with(value, spellings), _reported(list(spellings))


def _reported(places: Sequence[JsonPointer]) -> tuple[Repair, ...]:
    """Return the first changes one by one; the last of them counts those that follow."""
    reported = [Repair(RepairAction.ENUM_NORMALISED, format_path(place)) for place in places[:MAX_REPORTED_CHANGES]]
    if len(places) > MAX_REPORTED_CHANGES:
        reported[-1] = replace(reported[-1], times=len(places) - MAX_REPORTED_CHANGES + 1)
    return tuple(reported)


@value
class _Enumerated:
    """A string at a place with an enumeration, with those of its options that differ in case at most."""

    text: str
    folded: str
    options: set[str] = field(default_factory=set)


def _enumerated(outline: SchemaOutline, value: Any) -> dict[JsonPointer, _Enumerated]:
    """Return every such string by its place."""
    found: dict[JsonPointer, _Enumerated] = {}
    folded: dict[JsonPointer, Folded] = {}
    seen: set[tuple[JsonPointer, JsonPointer]] = set()
    waiting: deque[tuple[JsonPointer, Any, JsonPointer]] = deque([((), value, ())])
    tests = _Tests()
    while waiting:
        pointer, inner, place = waiting.popleft()
        subschema = outline.subschemas.get(pointer)
        if (pointer, place) in seen or not isinstance(subschema, dict):
            continue
        seen.add((pointer, place))
        if isinstance(inner, str) and ("enum" in subschema or "const" in subschema):
            if pointer not in folded:
                folded[pointer] = _folded(subschema)
            string = found.setdefault(place, _Enumerated(inner, inner.casefold()))
            string.options.update(folded[pointer].get(string.folded, ()))
        here = ((target, inner, place) for target in _here(outline, pointer))
        there = (
            ((*pointer, *steps), child, (*place, key))
            for steps, key, child in member_subschemas(subschema, inner, tests.occurs)
        )
        waiting.extend(islice(chain(here, there), max(0, MAX_VISITS - tests.made - len(seen) - len(waiting))))
    return found


class _Tests:
    """Tests of names against patterns, limited like the visits."""

    def __init__(self) -> None:
        self.made = 0

    def occurs(self, text: str, name: str) -> bool:
        self.made += 1
        return self.made < MAX_VISITS and cached_pattern(text).occurs_in(name)


def _folded(subschema: dict[str, Any]) -> Folded:
    folded: Folded = {}
    for option in [subschema["const"]] if "const" in subschema else subschema["enum"]:
        if isinstance(option, str):
            folded.setdefault(option.casefold(), set()).add(option)
    return folded


def _here(outline: SchemaOutline, pointer: JsonPointer) -> Iterator[JsonPointer]:
    """Yield the subschemas that apply to the same place."""
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


def _with(value: Any, texts: dict[JsonPointer, str]) -> Any:
    """Return a copy of the value with those texts at their places; only containers that change are copied."""
    holder: list[Any] = [value]
    copies: dict[JsonPointer, Any] = {}

    def holding(place: JsonPointer) -> tuple[Any, Any]:
        """Return a container that may be changed, and the key of that place in it."""
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
