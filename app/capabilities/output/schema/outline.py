"""The subschemas of a schema, and how often they are evaluated at one place of an answer.

jsonschema-rs evaluates a recursive subschema once for each place of an answer, but any other as often as it is referred
to: a chain of 25 definitions that each refer to the next one twice takes 0.4 s, and each further one doubles that
[measured], all of it while holding the interpreter's lock. So the evaluations are counted here, before compiling.

Two counts are kept for a subschema: evaluations at the place it is applied to, and the most at any one place below.
Subschemas that apply to the same place add up; of those that divide places among themselves, `properties` and
`prefixItems`, the most expensive counts. `unevaluated…` evaluates its neighbours again, which is a factor of 8 for each
level of nesting [measured].
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any, Final

from app.capabilities.output.schema.cost import character_cost, evaluation_cost, number_cost
from app.domain.json_path import format_path

JsonPointer = tuple[str | int, ...]
"""The steps of a JSON pointer [RFC 6901], unescaped."""


class SubschemaScope(Enum):
    """The place a subschema applies to, relative to its parent."""

    HERE = "here"
    BELOW = "below"
    BELOW_EXCLUSIVELY = "below, sharing places out with its siblings"
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
    dict.fromkeys(("allOf", "anyOf", "oneOf"), SubschemaScope.HERE) | {"prefixItems": SubschemaScope.BELOW_EXCLUSIVELY}
)
MAP_KEYWORDS: Mapping[str, SubschemaScope] = MappingProxyType(
    {
        "dependentSchemas": SubschemaScope.HERE,
        "properties": SubschemaScope.BELOW_EXCLUSIVELY,
        "patternProperties": SubschemaScope.BELOW,
        "$defs": SubschemaScope.NOWHERE,
    }
)
"""The keywords that hold one subschema, a list of subschemas, and subschemas by name."""
REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_REEVALUATING: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_REEVALUATION_FACTOR: Final = 8
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")


class SchemaOutlineError(ValueError):
    """The references of the schema are invalid; `path` is the place in the schema, as a JSON path."""

    def __init__(self, pointer: JsonPointer, message: str) -> None:
        super().__init__(message)
        self.path = format_path(pointer)


@dataclass(frozen=True, slots=True)
class SchemaOutline:
    """All subschemas by their pointers, the targets of their references, and the order in which loads add up."""

    subschemas: Mapping[JsonPointer, Any]
    references: Mapping[JsonPointer, tuple[JsonPointer, ...]]
    recursive: frozenset[JsonPointer]
    """The subschemas that lead back to themselves."""
    _edges: Mapping[JsonPointer, tuple["_Edge", ...]]

    def patterns(self) -> Iterator[tuple[JsonPointer, str]]:
        """Yield every regular expression and its pointer."""
        for pointer, subschema in self.subschemas.items():
            for keyword, pattern in _patterns(subschema):
                yield (*pointer, keyword), pattern

    def evaluations(self) -> int:
        """Return the most evaluations for one place of an answer."""
        return self._load(evaluation_cost)

    def character_matches(self) -> int:
        """Return the most evaluations for one character of an answer."""
        return self._load(character_cost)

    def number_comparisons(self) -> int:
        """Return the most evaluations for one number of an answer."""
        return self._load(number_cost)

    def _load(self, own: Callable[[Any], int]) -> int:
        loads: dict[JsonPointer, _Load] = {}
        for pointer, edges in self._edges.items():
            subschema = self.subschemas[pointer]
            factor = (
                _REEVALUATION_FACTOR if isinstance(subschema, dict) and not _REEVALUATING.isdisjoint(subschema) else 1
            )
            loads[pointer] = _Load.of(own(subschema), factor, [(edge.applies, edge.load(loads)) for edge in edges])
        repeated = sum(loads[pointer].here + loads[pointer].all_below for pointer in self.recursive)
        return repeated if () in self.recursive else repeated + max(loads[()].here, loads[()].below)


@dataclass(frozen=True, slots=True)
class _Load:
    """Evaluations: at the place a subschema is applied to, at the worst place below, and at one of each depth below.

    A recursive subschema is applied at every place anew, so its evaluations at all depths can meet at one place.
    """

    here: int
    below: int
    all_below: int

    @classmethod
    def of(cls, own: int, factor: int, applied: list[tuple[SubschemaScope, "_Load"]]) -> "_Load":
        """Return the load of a subschema with that cost of its own which applies these others."""
        here, below, all_below = own, 0, 0
        shared = all_shared = 0
        for applies, load in applied:
            there, all_there = max(load.here, load.below), load.here + load.all_below
            if applies is SubschemaScope.HERE:
                here, below, all_below = here + load.here, below + load.below, all_below + load.all_below
            elif applies is SubschemaScope.BELOW:
                below, all_below = below + there, all_below + all_there
            else:
                shared, all_shared = max(shared, there), max(all_shared, all_there)
        below, all_below = below + shared, all_below + all_shared
        return cls(factor * here, factor * below, factor * all_below)


@dataclass(frozen=True, slots=True)
class _Edge:
    """A subschema applied by another; `back` if it is being applied already."""

    applies: SubschemaScope
    target: JsonPointer
    back: bool

    def load(self, loads: Mapping[JsonPointer, _Load]) -> _Load:
        return _Load(1, 0, 0) if self.back else loads[self.target]


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
    edges, recursive = _post_order(subschemas, references)
    if recursive:
        _refuse_circles(edges)
    return SchemaOutline(subschemas, references, frozenset(recursive), edges)


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


def _post_order(
    subschemas: Mapping[JsonPointer, Any], references: Mapping[JsonPointer, tuple[JsonPointer, ...]]
) -> tuple[dict[JsonPointer, tuple[_Edge, ...]], set[JsonPointer]]:
    """Return the edges of each subschema, ordered so that it comes after those it applies; and the recursive ones."""
    finished: dict[JsonPointer, tuple[_Edge, ...]] = {}
    recursive: set[JsonPointer] = set()
    waiting: list[tuple[JsonPointer, list[_Edge], Iterator[tuple[SubschemaScope, JsonPointer]]]] = []
    within: set[JsonPointer] = set()

    def enter(pointer: JsonPointer) -> None:
        within.add(pointer)
        applied = [(applies, (*pointer, *steps)) for applies, steps, _ in child_subschemas(subschemas[pointer])]
        applied += [(SubschemaScope.HERE, target) for target in references.get(pointer, ())]
        waiting.append((pointer, [], iter(applied)))

    enter(())
    while waiting:
        pointer, edges, applied = waiting[-1]
        for applies, target in applied:
            if applies is SubschemaScope.NOWHERE:
                continue
            back = target in within
            edges.append(_Edge(applies, target, back))
            if back:
                recursive.add(target)
            elif target not in finished:
                enter(target)
                break
        else:
            within.discard(pointer)
            finished[pointer] = tuple(edges)
            waiting.pop()
    return finished, recursive


def _refuse_circles(edges: Mapping[JsonPointer, tuple[_Edge, ...]]) -> None:
    """Raise SchemaOutlineError if a subschema applies itself to the same value without end [JSON Schema 9.4.1]."""
    here = {
        pointer: [edge.target for edge in there if edge.applies is SubschemaScope.HERE]
        for pointer, there in edges.items()
    }
    try:
        TopologicalSorter(here).prepare()
    except CycleError as circle:
        raise SchemaOutlineError(circle.args[1][0], "it applies itself to the same value without end") from None


def _patterns(subschema: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(subschema, dict):
        return
    if isinstance(subschema.get("pattern"), str):
        yield "pattern", subschema["pattern"]
    if isinstance(subschema.get("patternProperties"), dict):
        yield from (("patternProperties", pattern) for pattern in subschema["patternProperties"])
