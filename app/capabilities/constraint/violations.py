"""Says why a value does not fit its schema, for the model that wrote it and for the client.

From the whole value inwards: at each place the subschema's own demands are checked, with a mark in place of every
subschema within it that answers only whether it is fitted; what is not fitted is looked into next. Of alternatives
none of which is fitted, one is looked into if it is the only one that can have been meant. So there are as many looks
as there are reasons, while a list of all errors, as jsonschema-rs makes it, holds one for each alternative of each
alternative. What the looks cost is counted all the same, and the rest is left unsaid when it becomes too much.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import jsonschema_rs

from app.capabilities.constraint.schema_outline import LISTED, NAMED, ONE, Outline, Pointer
from app.capabilities.constraint.validators import validator
from app.domain.json_path import written

MOST_VIOLATIONS: Final = 20
MOST_MESSAGE_CHARACTERS: Final = 240
MOST_LOOKS: Final = 200
_STEPS, _CHECKS = 2_000_000, 2
"""Evaluations that finding the reasons may take: so many, and as many as this many checks of the whole value."""
_ASKING_COSTS: Final = 500
_ADDRESS: Final = "urn:answer"
_MARK: Final = "portico:fits"
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_SEEN_APART: Final = frozenset({*_ALTERNATIVES, "unevaluatedItems", "unevaluatedProperties", "$defs"})
_DEMANDS: Final = frozenset(
    {"type", "enum", "const", "format", "pattern", "minLength", "maxLength", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "minItems", "maxItems"}
    | {"minContains", "maxContains", "required", "dependentRequired", "minProperties", "maxProperties"}
)
_SAID = MappingProxyType(
    {
        "falseSchema": "is not allowed here",
        "not": "is what the schema rules out",
        "propertyNames": "has a property whose name is not allowed",
        "contains": "has too few or too many elements of the kind that the schema asks for",
    }
)
_TYPES: Mapping[str, type | tuple[type, ...]] = MappingProxyType(
    {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "number": (int, float),
        "integer": (int, float),
    }
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason: the place in the answer, as a JSON path, and what is wrong there, without the value itself."""

    path: str
    message: str
    keyword: str = ""

    def told(self) -> dict[str, str]:
        """What clients and models are told."""
        return {"path": self.path, "message": self.message}


class Explainer:
    """Explains what does not fit one schema. It asks about every subschema by its number, of one compiled schema.

    `cost` says how many evaluations checking a value can take.
    """

    def __init__(self, document: Mapping[str, Any], outline: Outline, cost: Callable[[Any], int]) -> None:
        self.outline = outline
        self.cost = cost
        self._names = {pointer: str(number) for number, pointer in enumerate(outline.subschemas)}
        asked = {name: {"$ref": f"{_ADDRESS}#{_fragment(pointer)}"} for pointer, name in self._names.items()}
        self._validator = validator({"properties": asked}, resources={_ADDRESS: document})

    def fits(self, pointer: Pointer, value: Any) -> bool:
        """Whether the value fits that subschema."""
        return self._validator.is_valid({self._names[pointer]: value})

    def explain(self, value: Any) -> tuple[Violation, ...]:
        """Why a value does not fit: at least one reason, at most `MOST_VIOLATIONS`."""
        return _Explanation(self).of(value)


class _Explanation:
    """One value being explained: what was found, and the places that are yet to be looked into."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._subschemas = explainer.outline.subschemas
        self._references = explainer.outline.references
        self._steps = _STEPS
        self._seen: set[tuple[Pointer, Pointer]] = set()
        self._waiting: deque[tuple[Pointer, Any, Pointer]] = deque()
        self._found: list[Violation] = []
        self._explained = False

    def of(self, value: Any) -> tuple[Violation, ...]:
        self._steps += _CHECKS * self._explainer.cost(value)
        self._look_into((), value, ())
        for _ in range(MOST_LOOKS):
            if not self._waiting or len(self._found) >= MOST_VIOLATIONS or self._steps < 0:
                break
            self._look(*self._waiting.popleft())
        if not self._found:
            self._add(self._waiting[0][2] if self._waiting else (), "does not fit the schema")
        return tuple(self._found[:MOST_VIOLATIONS])

    def _look_into(self, pointer: Pointer, value: Any, place: Pointer) -> None:
        self._explained = True
        if (pointer, place) not in self._seen:
            self._seen.add((pointer, place))
            self._waiting.append((pointer, value, place))

    def _look(self, pointer: Pointer, value: Any, place: Pointer) -> None:
        """Finds what is wrong at a place, or what to look into within it."""
        self._explained = False
        subschema = self._subschemas[pointer]
        if not isinstance(subschema, dict):
            self._add(place, _SAID["falseSchema"], "falseSchema")
            return
        for target in self._references.get(pointer, ()):
            if not self._fits(target, value):
                self._look_into(target, value, place)
        self._look_at_demands(pointer, subschema, value, place)
        for keyword in _ALTERNATIVES:
            if isinstance(subschema.get(keyword), list):
                self._look_at_alternatives((*pointer, keyword), len(subschema[keyword]), value, place)
        if not self._explained and self._steps > 0:
            self._add(place, "has a part that the schema does not describe")

    def _fits(self, pointer: Pointer, value: Any) -> bool:
        """Whether it fits; True as well when no more can be spent on finding out."""
        self._steps -= _ASKING_COSTS + self._explainer.cost(value)
        return self._steps < 0 or self._explainer.fits(pointer, value)

    def _look_at_demands(self, pointer: Pointer, subschema: Mapping[str, Any], value: Any, place: Pointer) -> None:
        numbered: list[Pointer] = []
        fits = self._fits

        class Mark:
            """Stands for a subschema, by its number: a value passes that fits it."""

            def __init__(self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]) -> None:
                self._number = int(value)

            def validate(self, instance: Any) -> None:
                if not fits(numbered[self._number], instance):
                    raise ValueError(str(self._number))

        demands = dict(_marked(pointer, subschema, numbered))
        if not demands:
            return
        for error in validator(demands, keywords={_MARK: Mark}).iter_errors(value):
            there = (*place, *error.instance_path)
            if error.kind.name == _MARK:
                self._look_into(numbered[int(error.message)], _at(value, error.instance_path), there)
            elif isinstance(error.kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
                for name in error.kind.unexpected[:MOST_VIOLATIONS]:
                    self._add((*there, name), _SAID["falseSchema"], "additionalProperties")
            else:
                self._add(there, _SAID.get(error.kind.name, error.message), error.kind.name)
            if len(self._found) >= MOST_VIOLATIONS:
                return

    def _look_at_alternatives(self, pointer: Pointer, count: int, value: Any, place: Pointer) -> None:
        alternatives = [(*pointer, index) for index in range(count)]
        fitting = sum(self._fits(alternative, value) for alternative in alternatives)
        if fitting > 1 and pointer[-1] == "oneOf":
            self._add(place, "fits more than one of the alternatives", "oneOf")
        if fitting:
            return
        of_type = [alternative for alternative in alternatives if self._has_type(alternative, value)]
        alike = [alternative for alternative in of_type if self._has_marks(alternative, value)]
        for meant in (of_type, alike):
            if len(meant) == 1:
                self._look_into(meant[0], value, place)
                return
        only_options = all(_options(self._resolved(alternative)) for alternative in alternatives)
        self._add(place, f"fits none of {count} alternatives", "enum" if only_options else str(pointer[-1]))

    def _resolved(self, pointer: Pointer) -> Mapping[str, Any]:
        """What a subschema that only refers to another stands for."""
        for _ in range(MOST_LOOKS):
            references = self._references.get(pointer)
            if not references:
                break
            pointer = references[0]
        subschema = self._subschemas[pointer]
        return subschema if isinstance(subschema, dict) else {}

    def _has_type(self, pointer: Pointer, value: Any) -> bool:
        types = self._resolved(pointer).get("type", list(_TYPES))
        return any(_is_of(value, name) for name in ([types] if isinstance(types, str) else types))

    def _has_marks(self, pointer: Pointer, value: Any) -> bool:
        """Whether an object has the constants by which alternatives are told apart."""
        properties = self._resolved(pointer).get("properties", {})
        if not isinstance(value, dict):
            return True
        named = {name: _options(subschema) for name, subschema in properties.items() if name in value}
        return all(value[name] in options for name, options in named.items() if options)

    def _add(self, place: Pointer, message: str, keyword: str = "") -> None:
        self._explained = True
        self._found.append(Violation(written(place), message[:MOST_MESSAGE_CHARACTERS], keyword))


def _options(subschema: Any) -> list[Any]:
    """The only values that a subschema names; empty where it names none."""
    if not isinstance(subschema, dict):
        return []
    return [subschema["const"]] if "const" in subschema else subschema.get("enum", [])


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, ()))


def _marked(pointer: Pointer, subschema: Mapping[str, Any], numbered: list[Pointer]) -> Iterator[tuple[str, Any]]:
    """The subschema's own demands, and marks for what is within it, whose pointers are added to `numbered`."""

    def mark(steps: Pointer, inner: Any) -> Any:
        if isinstance(inner, bool):
            return inner
        numbered.append((*pointer, *steps))
        return {_MARK: len(numbered) - 1}

    for keyword, inner in subschema.items():
        if keyword in _DEMANDS:
            yield keyword, inner
        elif keyword in _SEEN_APART:
            continue
        elif keyword in ONE:
            yield keyword, mark((keyword,), inner)
        elif keyword in LISTED:
            yield keyword, [mark((keyword, index), child) for index, child in enumerate(inner)]
        elif keyword in NAMED:
            yield keyword, {name: mark((keyword, name), child) for name, child in inner.items()}


def _at(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _fragment(pointer: Pointer) -> str:
    """The pointer as the fragment of an address."""
    text = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in pointer)
    return "".join(
        character if character.isascii() and (character.isalnum() or character in "/~-._") else _encoded(character)
        for character in text
    )


def _encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())
