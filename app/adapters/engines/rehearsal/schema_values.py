"""Fills a JSON Schema: with what a text says, as arguments of tools are found in it, and else made up by type.

Theory of operation

1. A place is filled by trying candidates in turn, the first that fits all subschemas of the place is taken:
   what the text says, `default` and `examples`, then for each alternative and each type what can be made up.
2. Objects have what they require, what the text names, and what others depend on; arrays what the text lists, and as
   many elements as they need. To make elements differ, turns are counted: each choice takes its part of the number.
3. Where a place is met again within itself, the alternative that needs the fewest levels is tried first, and nothing
   that is optional is added. What needs itself without end is left out.
4. All that is tried is counted. When too much was, or nothing fits, the answer is what was tried last: it does not
   fit, and whoever checks it says so. The same schema and text give the same value.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, islice
from math import inf
from typing import Any, Final

import orjson

from app.adapters.engines.rehearsal.patterns import UnmakeableError, texts
from app.adapters.engines.rehearsal.scalars import numbers, strings
from app.adapters.engines.rehearsal.subschemas import MOST_HEIGHT, Pointers, SchemaChoice, SchemaPlace, heights
from app.adapters.engines.rehearsal.text_arguments import (
    TextArguments,
    ToolMatch,
    WantedParameter,
    closest_tool,
    members,
    stems,
)
from app.capabilities.output.schema.compiled import compile_schema
from app.capabilities.output.schema.metered_keywords import CheckBudget, rename_metered_keywords
from app.capabilities.output.schema.outline import JsonPointer, outline_schema
from app.capabilities.output.schema.validators import LinearPattern
from app.capabilities.output.schema.violations import ViolationFinder
from app.domain.failures import ConfigurationFailure
from app.domain.tools import ToolDefinition

_STEPS: Final = 12_000_000
"""What filling may take, in about 10 ns each."""
_VISIT_COSTS: Final = 6_000
_CHECK_COSTS: Final = 500
_PARAMETER_COSTS: Final = 20_000
_MOST_PARAMETERS: Final = 150
_MOST_ELEMENTS: Final = 2_000
_MOST_REENTRIES: Final = 3
_SPARE_TURNS: Final = 64
_UNSAID: Final = object()


def fill(document: Mapping[str, Any], text: str) -> Any:
    """A value that fits the schema as far as one was found; None for a schema that cannot be used."""
    try:
        compile_schema(document)
    except ConfigurationFailure:
        return None
    return _Filling(orjson.loads(orjson.dumps(dict(document))), text).whole()


def match_forced_tool(tools: Sequence[ToolDefinition], text: str) -> ToolMatch | None:
    """The tool that the text fits best, with what is missing made up; None without tools."""
    chosen = closest_tool(tools, text)
    if chosen is None or not chosen.missing:
        return chosen
    filled = fill(chosen.tool.parameters, text)
    made_up = {name: filled.get(name) for name in chosen.missing} if isinstance(filled, dict) else {}
    return ToolMatch(chosen.tool, chosen.arguments | made_up)


class _Filling:
    """One schema being filled: what of the text was taken, which places are open, how much more may be tried."""

    def __init__(self, document: Mapping[str, Any], text: str) -> None:
        self._outline = outline_schema(document)
        self._heights = heights(self._outline)
        self._text = text
        self._words = stems(text)
        self._reading = TextArguments(text)
        self._evaluations = self._outline.evaluations()
        self._matches = self._outline.character_matches()
        self._effort = CheckBudget()
        self._checker = self._checking({name: document[name] for name in document if name not in {"$id", "$schema"}})
        self._left = _STEPS
        self._open: Counter[JsonPointer] = Counter()
        self._levels = 0
        self._turn = 0

    def _checking(self, document: Mapping[str, Any]) -> ViolationFinder:
        """What checks values by the same schema, of which a copy is made ready for that."""
        copied = orjson.loads(orjson.dumps(document))
        parts = outline_schema(copied)
        rename_metered_keywords(parts.subschemas)
        return ViolationFinder(copied, parts, self._cost, self._effort)

    def whole(self) -> Any:
        """The value of the whole schema."""
        parameter = self._parameter(str(SchemaPlace.of(self._outline, ((),)).plain("title") or "answer"), ((),))
        found = self._reading.take([parameter], frozenset({parameter.name}))
        return self._value(((),), found.arguments.get(parameter.name, _UNSAID))

    def _value(self, entries: Pointers, said: Any = _UNSAID) -> Any:
        self._left -= _VISIT_COSTS
        place = SchemaPlace.of(self._outline, entries)
        again = max((self._open[pointer] for pointer in place.pointers), default=0)
        if self._left < 0 or self._levels > MOST_HEIGHT or again > _MOST_REENTRIES:
            return None
        found, taken, turn = None, self._reading.taken, self._turn
        for found in self._candidates(place, said):
            if self._left < 0 or self._fits(place.pointers, found):
                return found
            self._reading.taken, self._turn = taken, turn
        return found

    def _cost(self, value: Any) -> int:
        data = orjson.dumps(value)
        places = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
        return self._evaluations * places + self._matches * len(data)

    def _fits(self, pointers: Pointers, value: Any) -> bool:
        self._left -= _CHECK_COSTS * len(pointers) + self._cost(value)
        self._effort.remaining = self._left
        fits = self._left >= 0 and all(self._checker.fits(pointer, value) for pointer in pointers)
        self._left = self._effort.remaining
        return fits

    def _candidates(self, place: SchemaPlace, said: Any) -> Iterator[Any]:
        if not self._turn:
            yield from () if said is _UNSAID or isinstance(said, list) else (said,)
            yield from place.all("default")
            yield from (example for examples in place.all("examples") for example in examples)
        yield from self._made_up(place, said)

    def _made_up(self, place: SchemaPlace, said: Any) -> Iterator[Any]:
        choice = place.choice()
        if place.impossible or self._left < 0:
            return
        options = place.options()
        if options is not None:
            yield from self._of_options(options) if options else ()
        elif choice is not None:
            for option in self._ordered(place, choice):
                yield from self._candidates(place.taking(choice, option), said)
        else:
            yield from self._by_kind(place, said)

    def _of_options(self, options: Sequence[Any]) -> Iterator[Any]:
        first = self._take(len(options))
        if not first:
            yield from members(options, self._text)
        yield from options[first:]
        yield from options[:first]

    def _ordered(self, place: SchemaPlace, choice: SchemaChoice) -> list[Pointers]:
        """The alternatives: those named in the text first, within itself those of the fewest levels, null last."""
        again = self._again(place)

        def rank(option: Pointers) -> tuple[float, bool, bool]:
            height = max((self._heights[pointer] for pointer in option), default=0)
            settled = SchemaPlace.of(self._outline, option)
            null = settled.all("type") == ["null"]
            return height if again or height == inf else 0, null, not self._is_named(settled)

        return sorted(choice.options, key=rank)

    def _is_named(self, place: SchemaPlace) -> bool:
        """Whether the text names the alternative: its only value, or one by which it is told from the others."""
        properties = (inner for named in place.all("properties") for inner in named.values())
        constants = [inner["const"] for inner in properties if isinstance(inner, dict) and "const" in inner]
        named = [*(place.options() or ()), *(each for each in constants if isinstance(each, str))]
        self._left -= _CHECK_COSTS * len(named)
        return self._left >= 0 and next(members(named, self._text), None) is not None

    def _again(self, place: SchemaPlace) -> bool:
        return any(self._open[pointer] for pointer in place.pointers)

    def _by_kind(self, place: SchemaPlace, said: Any) -> Iterator[Any]:
        kinds = place.kinds()
        if self._again(place):
            kinds.sort(key=lambda kind: kind in {"object", "array"})
        endless = any(self._heights[pointer] == inf for pointer in place.pointers)
        for kind in kinds:
            match kind:
                case "object":
                    yield {} if endless else self._object(place)
                    yield from () if endless else (self._object(place, generous=True),)
                case "array":
                    yield [] if endless else self._array(place, said if isinstance(said, list) else [])
                case "string":
                    yield from strings(place.wording(), self._text, self._take)
                case "integer" | "number":
                    yield from numbers(place.range(whole=kind == "integer"), self._take)
                case "boolean":
                    first = self._take(2)
                    yield from (bool(first), not first)
                case _:
                    yield None

    def _take(self, options: int | None) -> int:
        """This choice's part of the turn: below the number of options, or all that is left of it."""
        if options is None:
            self._turn, taken = 0, self._turn
        else:
            self._turn, taken = divmod(self._turn, options)
        return taken

    @contextmanager
    def _within(self, place: SchemaPlace) -> Iterator[None]:
        self._open.update(place.pointers)
        self._levels += 1
        yield
        self._levels -= 1
        self._open.subtract(place.pointers)

    def _object(self, place: SchemaPlace, *, generous: bool = False) -> dict[str, Any]:
        """With what is required and named; `generous` with all properties that are described."""
        optional = not self._again(place)
        with self._within(place):
            known = dict.fromkeys(name for each in place.all("properties") for name in each)
            required = dict.fromkeys(name for each in place.all("required") for name in each)
            asked = dict.fromkeys((*(name for name in known if name in required), *required))
            asked |= dict.fromkeys(islice(known, _MOST_PARAMETERS)) if optional else {}
            said = self._said(place, list(asked), frozenset(required))
            named = [name for name in asked if name in said or self._names(name)]
            extra = [*(named if optional else ()), *(known if generous and optional else ())]
            most = place.sizes("minProperties", "maxProperties")[1]
            room = None if most is None else max(0, most - len(required))
            wanted = {*required, *islice((name for name in extra if self._can_be(place, name, required)), room)}
            names = [name for name in dict.fromkeys((*known, *required)) if name in wanted]
            names, place = self._with_dependents(place, names)
            names = self._enough(place, names, known)
            return {name: self._value(self._member(place, name), said.get(name, _UNSAID)) for name in names}

    def _said(self, place: SchemaPlace, names: list[str], required: frozenset[str]) -> dict[str, Any]:
        """What the text says for the members of these names."""
        if self._turn:
            return {}
        parameters: list[WantedParameter] = []
        for name in names[:_MOST_PARAMETERS]:
            self._left -= _PARAMETER_COSTS
            if self._left > 0:
                parameters.append(self._parameter(name, self._member(place, name)))
        return self._reading.take(parameters, required).arguments

    def _names(self, name: str) -> bool:
        words = stems(name.replace("_", " "))
        return bool(words) and words <= self._words

    def _can_be(self, place: SchemaPlace, name: str, required: Collection[str]) -> bool:
        """Whether the optional member of that name can have a value at all."""
        pointers = SchemaPlace.of(self._outline, self._member(place, name)).pointers
        return name not in required and all(self._heights[pointer] < inf for pointer in pointers)

    def _with_dependents(self, place: SchemaPlace, names: list[str]) -> tuple[list[str], SchemaPlace]:
        """The names with those that they bring along, and the place with what applies because of them."""
        done: set[str] = set()
        while waiting := [name for name in names if name not in done]:
            done.update(waiting)
            found = [
                (*pointer, "dependentSchemas", name)
                for pointer, part in place.parts()
                for name in waiting
                if name in part.get("dependentSchemas", {})
            ]
            place = place.also(found) if found else place
            brought = [
                more for each in place.all("dependentRequired") for name in waiting for more in each.get(name, ())
            ]
            needed = (name for each in place.all("required") for name in each)
            names = list(dict.fromkeys((*names, *brought, *needed)))
        return names, place

    def _enough(self, place: SchemaPlace, names: list[str], known: Mapping[str, None]) -> list[str]:
        """As many names as there have to be: those described first, then some that are made up."""
        least, _ = place.sizes("minProperties", "maxProperties")
        spare = (name for name in known if name not in names and self._can_be(place, name, ()))
        names = [*names, *islice(spare, max(0, least - len(names)))]
        for made_up in islice(self._new_names(place), min(least, _MOST_ELEMENTS) + _SPARE_TURNS):
            if len(names) >= min(least, _MOST_ELEMENTS) or self._left < 0:
                break
            names += [made_up] if made_up not in names and self._can_be(place, made_up, ()) else []
        return names

    def _new_names(self, place: SchemaPlace) -> Iterator[str]:
        asked = tuple((*pointer, "propertyNames") for pointer, part in place.parts() if "propertyNames" in part)
        patterns = [pattern for each in place.all("patternProperties") for pattern in each]
        for turn in count():
            if asked:
                outer, self._turn = self._turn, turn
                name = self._value(asked)
                self._turn = outer
                yield str(name)
            elif patterns:
                name = _matching(patterns[turn % len(patterns)], turn // len(patterns))
                yield from (name, f"{name}{turn + 1}")
            else:
                yield f"property_{turn + 1}"

    def _member(self, place: SchemaPlace, name: str) -> Pointers:
        """What applies to the member of that name."""
        found: list[JsonPointer] = []
        for pointer, part in place.parts():
            here: list[JsonPointer] = [(*pointer, "properties", name)] if name in part.get("properties", {}) else []
            for pattern in part.get("patternProperties", ()):
                self._left -= _VISIT_COSTS
                if self._left > 0 and LinearPattern(pattern).occurs_in(name):
                    here.append((*pointer, "patternProperties", pattern))
            others = [(*pointer, each) for each in ("additionalProperties", "unevaluatedProperties") if each in part]
            found += here or (others[:1] if others and self._is_open(place, others[0], name) else [])
        return tuple(found)

    def _is_open(self, place: SchemaPlace, others: JsonPointer, name: str) -> bool:
        """Whether it is that keyword which speaks of the name: what others evaluated is not unevaluated."""
        return others[-1] == "additionalProperties" or not any(name in each for each in place.all("properties"))

    def _array(self, place: SchemaPlace, said: list[Any]) -> list[Any]:
        least, most = place.sizes("minItems", "maxItems")
        contains = [((*pointer, "contains"), part) for pointer, part in place.parts() if "contains" in part]
        contained = max((int(part.get("minContains", 1)) for _, part in contains), default=0)
        with self._within(place):
            found = self._listed(place, said, _MOST_ELEMENTS if most is None else most)
            size = min(max(least, contained, len(found)), _MOST_ELEMENTS)
            first = self._take(None) if any(place.all("uniqueItems")) or self._turn else None
            seen = {_canonical(each) for each in found}
            turns = count(first) if first is not None else None
            fresh = any(place.all("uniqueItems"))
            while len(found) < size and self._left > 0:
                extra = tuple(pointer for pointer, _ in contains) if len(found) >= size - contained else ()
                found.append(self._element((*place.element(len(found)), *extra), seen, turns, fresh=fresh))
        return found

    def _listed(self, place: SchemaPlace, said: list[Any], most: int) -> list[Any]:
        """The elements that the text lists, as far as they fit."""
        found: list[Any] = []
        unique = any(place.all("uniqueItems"))
        for each in said:
            fits = self._fits(SchemaPlace.of(self._outline, place.element(len(found))).pointers, each)
            if fits and len(found) < most and not (unique and _canonical(each) in map(_canonical, found)):
                found.append(each)
        return found

    def _element(self, entries: Pointers, seen: set[bytes], turns: Iterator[int] | None, *, fresh: bool) -> Any:
        """The next element; where they have to differ, one that is not among those `seen`."""
        element = None
        for turn in islice(turns, _SPARE_TURNS) if turns is not None else (0,):
            self._turn = turn
            element = self._value(entries)
            self._turn = 0
            if not fresh or _canonical(element) not in seen:
                break
        seen.add(_canonical(element))
        return element

    def _parameter(self, name: str, entries: Pointers) -> WantedParameter:
        """The place as something the text can speak of: the first of its alternatives, where it has some."""
        place = self._simple(entries)
        options, elements = place.options(), place.element(0)
        schema: dict[str, Any] = {"description": place.plain("description"), "type": next(iter(place.kinds()), None)}
        if options is not None:
            schema["enum"] = options
        if schema["type"] == "array" and elements:
            element = self._simple(elements)
            schema["items"] = {"type": next(iter(element.kinds()), None), "enum": element.options()}
        pointers = SchemaPlace.of(self._outline, entries).pointers
        return WantedParameter.of(name, schema, lambda value: self._fits(pointers, value))

    def _simple(self, entries: Pointers) -> SchemaPlace:
        place = SchemaPlace.of(self._outline, entries)
        for _ in range(_MOST_REENTRIES):
            choice = place.choice()
            if choice is None:
                break
            place = place.taking(choice, self._ordered(place, choice)[0])
        return place


def _matching(pattern: str, turn: int) -> str:
    def take(options: int) -> int:
        nonlocal turn
        turn, taken = divmod(turn, options)
        return taken

    try:
        return next(texts(pattern, 0, None, take), "")
    except UnmakeableError:
        return f"property_{turn + 1}"


def _canonical(value: Any) -> bytes:
    """The same for values that are equal as JSON."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        value = int(value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
