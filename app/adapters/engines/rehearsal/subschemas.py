"""What a schema asks of one place of a value: all subschemas that apply there, read as one.

A subschema applies with those it refers to and those of its `allOf`. Its alternatives (`anyOf`, `oneOf`, what `if`
leads to) are choices, of which one after another is settled. The height of a subschema is how many levels of a value
it needs at least, without end where it needs itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from app.adapters.engines.rehearsal.scalars import NumberRange, StringForm, exact
from app.capabilities.output.schema.outline import JsonPointer, SchemaOutline

KINDS: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
MOST_HEIGHT: Final = 60
_ABOUT: Final = (
    ("object", ("properties", "required", "minProperties", "patternProperties", "additionalProperties")),
    ("array", ("items", "prefixItems", "minItems", "uniqueItems", "contains")),
    ("string", ("minLength", "maxLength", "pattern", "format")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)
Pointers = tuple[JsonPointer, ...]


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """Alternatives, each of them the subschemas that apply if it is taken."""

    key: JsonPointer
    options: tuple[Pointers, ...]


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """All that applies at a place; `settled` are the choices that were made already."""

    outline: SchemaOutline
    pointers: Pointers
    settled: frozenset[JsonPointer]

    @classmethod
    def of(
        cls, outline: SchemaOutline, entries: Pointers, settled: frozenset[JsonPointer] = frozenset()
    ) -> "SchemaPlace":
        found: dict[JsonPointer, None] = {}
        waiting = list(reversed(entries))
        while waiting:
            pointer = waiting.pop()
            if pointer not in found:
                found[pointer] = None
                subschema = outline.subschemas[pointer]
                listed = subschema.get("allOf", ()) if isinstance(subschema, dict) else ()
                waiting += reversed([(*pointer, "allOf", index) for index in range(len(listed))])
                waiting += outline.references.get(pointer, ())
        return cls(outline, tuple(found), settled)

    def taking(self, choice: SchemaChoice, option: Pointers) -> "SchemaPlace":
        return SchemaPlace.of(self.outline, (*self.pointers, *option), self.settled | {choice.key})

    def also(self, pointers: Sequence[JsonPointer]) -> "SchemaPlace":
        return SchemaPlace.of(self.outline, (*self.pointers, *pointers), self.settled)

    @property
    def impossible(self) -> bool:
        return any(self.outline.subschemas[pointer] is False for pointer in self.pointers)

    def parts(self) -> Iterator[tuple[JsonPointer, Mapping[str, Any]]]:
        """The subschemas that say something."""
        for pointer in self.pointers:
            if isinstance(subschema := self.outline.subschemas[pointer], dict):
                yield pointer, subschema

    def all(self, keyword: str) -> list[Any]:
        """What each of them has for the keyword."""
        return [part[keyword] for _, part in self.parts() if keyword in part]

    def plain(self, keyword: str) -> Any:
        """The first of what they have for it."""
        return next(iter(self.all(keyword)), None)

    def choice(self) -> SchemaChoice | None:
        """The first choice that is not settled."""
        for pointer, part in self.parts():
            for keyword in ("anyOf", "oneOf"):
                if part.get(keyword) and (*pointer, keyword) not in self.settled:
                    options = tuple(((*pointer, keyword, index),) for index in range(len(part[keyword])))
                    return SchemaChoice((*pointer, keyword), options)
            if "if" in part and (*pointer, "if") not in self.settled:
                then = tuple((*pointer, keyword) for keyword in ("if", "then") if keyword in part)
                return SchemaChoice((*pointer, "if"), (then, tuple((*pointer, "else") for _ in range("else" in part))))
        return None

    def options(self) -> list[Any] | None:
        """The only values that are allowed, None where any are."""
        named = [[part["const"]] if "const" in part else part["enum"] for _, part in self.parts() if _names(part)]
        return min(named, key=len, default=None)

    def kinds(self) -> list[str]:
        """The types that are allowed, the likeliest first and null last."""
        listed = [[each] if isinstance(each, str) else list(each) for each in self.all("type")]
        allowed = listed[0] if listed else self._likely()
        for others in listed[1:]:
            whole = ["integer"] if "number" in allowed and "integer" in others else []
            kept = [kind for kind in allowed if kind in others or (kind == "integer" and "number" in others)]
            allowed = kept + [kind for kind in whole if kind not in kept]
        return sorted(allowed, key=lambda kind: kind == "null")

    def _likely(self) -> list[str]:
        about = [kind for kind, words in _ABOUT if any(word in part for _, part in self.parts() for word in words)]
        return [*about, *(kind for kind in ("string", "integer", *KINDS) if kind not in about)]

    def range(self, *, whole: bool) -> NumberRange:
        """The bounds of a number; the step of 1 of one that has to be `whole` among the others."""
        lower = [(exact(each), False) for each in self.all("minimum")]
        lower += [(exact(each), True) for each in self.all("exclusiveMinimum")]
        upper = [(exact(each), True) for each in self.all("maximum")]
        upper += [(exact(each), False) for each in self.all("exclusiveMaximum")]
        least, above = max(lower, default=(None, False))
        most, closed = min(upper, default=(None, True))
        steps = (*map(exact, self.all("multipleOf")), *((exact(1),) if whole else ()))
        return NumberRange(least, above, most, not closed, steps)

    def wording(self) -> StringForm:
        """The bounds of a string."""
        least, most = self.sizes("minLength", "maxLength")
        return StringForm(least, most, self.all("format"), self.all("pattern"))

    def sizes(self, least: str, most: str) -> tuple[int, int | None]:
        """The strictest of those bounds."""
        return int(max(self.all(least), default=0)), min(map(int, self.all(most)), default=None)

    def element(self, index: int) -> Pointers:
        """What applies to an element of an array."""
        found: list[JsonPointer] = []
        for pointer, part in self.parts():
            if index < len(part.get("prefixItems", ())):
                found.append((*pointer, "prefixItems", index))
            else:
                found += [(*pointer, each) for each in ("items", "unevaluatedItems") if each in part][:1]
        return tuple(found)


def _names(part: Mapping[str, Any]) -> bool:
    return "const" in part or "enum" in part


def heights(outline: SchemaOutline) -> dict[JsonPointer, float]:
    """The height of each subschema, infinite beyond `MOST_HEIGHT` levels."""
    needs = {pointer: _needs(outline, pointer) for pointer in outline.subschemas}
    found = dict.fromkeys(outline.subschemas, inf)
    order = list(outline.subschemas)
    for _ in range(MOST_HEIGHT):
        changed = False
        order.reverse()
        for pointer in order:
            if (all_of := needs[pointer]) is not None:
                height = max((min(found[each] + more for each, more in one_of) for one_of in all_of), default=0)
                changed = changed or height < found[pointer]
                found[pointer] = min(height, found[pointer])
        if not changed:
            break
    return found


def _needs(outline: SchemaOutline, pointer: JsonPointer) -> list[list[tuple[JsonPointer, int]]] | None:
    """Lists of subschemas of each of which one is needed, with the levels they lie below; None where nothing fits."""
    subschema = outline.subschemas[pointer]
    if not isinstance(subschema, dict):
        return [] if subschema else None
    found = [[(target, 0)] for target in outline.references.get(pointer, ())]
    found += [[((*pointer, "allOf", index), 0)] for index in range(len(subschema.get("allOf", ())))]
    for keyword in ("anyOf", "oneOf"):
        if subschema.get(keyword):
            found.append([((*pointer, keyword, index), 0) for index in range(len(subschema[keyword]))])
    if subschema.get("type") == "object":
        named = [name for name in subschema.get("required", ()) if name in subschema.get("properties", {})]
        found += [[((*pointer, "properties", name), 1)] for name in named]
    if subschema.get("type") == "array" and (least := int(subschema.get("minItems", 0))):
        first = len(subschema.get("prefixItems", ()))
        found += [[((*pointer, "prefixItems", index), 1)] for index in range(min(first, least))]
        found += [[((*pointer, "items"), 1)]] if least > first and "items" in subschema else []
    return found
