"""Says why a value does not fit its schema, for the model that wrote it and for the client.

From the whole value inwards: at each place the subschema's own demands are checked, and every subschema that speaks of
the same place or of one below is asked whether it is fitted; what is not fitted is looked into next. Of alternatives
none of which is fitted, one is looked into if it is the only one that can have been meant. So there are as many looks
as there are reasons, while a list of all errors, as jsonschema-rs makes it, holds one for each alternative of each
alternative. What the looks cost is counted all the same, and the rest is left unsaid when it becomes too much.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import jsonschema_rs
import orjson

from app.capabilities.output.schema.metered_keywords import METERED_KEYWORDS, CheckBudget, metered_validators
from app.capabilities.output.schema.outline import JsonPointer, SchemaOutline, member_subschemas
from app.capabilities.output.schema.validators import cached_pattern, compile_validator
from app.domain.json_path import format_path

MAX_VIOLATIONS: Final = 20
MAX_MESSAGE_CHARACTERS: Final = 240
MAX_LOOKS: Final = 200
_STEPS: Final = 10_000_000
"""Evaluations that finding the reasons may take, beside what checking the whole value once does."""
_ASKING_COSTS, _MATCHING_COSTS, _MAKING_COSTS = 300, 100, 2
"""The same for asking once, for matching a name, and for each byte of demands that are made ready."""
_ADDRESS: Final = "urn:answer"
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_DEMANDS: Final = frozenset(
    {"type", "enum", "const", "format", "pattern", "minLength", "maxLength", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "minItems", "maxItems"}
    | {"required", "dependentRequired", "minProperties", "maxProperties"}
    | METERED_KEYWORDS
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
class SchemaViolation:
    """One reason: the place in the answer, as a JSON path, and what is wrong there, without the value itself."""

    path: str
    message: str
    keyword: str = ""

    def as_dict(self) -> dict[str, str]:
        """What clients and models are told."""
        return {"path": self.path, "message": self.message}


class ViolationFinder:
    """Explains what does not fit one schema. It asks about every subschema by its number, of one compiled schema.

    `cost` says how many evaluations checking a value can take, keywords aside that take from the `effort`.
    """

    def __init__(
        self, document: Mapping[str, Any], outline: SchemaOutline, cost: Callable[[Any], int], effort: CheckBudget
    ) -> None:
        self.outline = outline
        self.cost = cost
        self.effort = effort
        self._names = {pointer: str(number) for number, pointer in enumerate(outline.subschemas)}
        self._asked = {name: {"$ref": f"{_ADDRESS}#{_fragment(pointer)}"} for pointer, name in self._names.items()}
        self._document = document

    @cached_property
    def _validator(self) -> jsonschema_rs.Draft202012Validator:
        resources = {_ADDRESS: self._document}
        return compile_validator(
            {"properties": self._asked}, resources=resources, keywords=metered_validators(self.effort)
        )

    def fits(self, pointer: JsonPointer, value: Any) -> bool:
        """Whether the value fits that subschema."""
        return self._validator.is_valid({self._names[pointer]: value})

    def find(self, value: Any) -> tuple[SchemaViolation, ...]:
        """Why a value does not fit: at least one reason, at most `MOST_VIOLATIONS`."""
        return _Explanation(self).of(value)


@dataclass(frozen=True, slots=True)
class _Demands:
    """What a subschema itself demands, and the bytes of that."""

    validator: jsonschema_rs.Draft202012Validator
    size: int


class _Explanation:
    """One value being explained: what was found, and the places that are yet to be looked into."""

    def __init__(self, explainer: ViolationFinder) -> None:
        self._explainer = explainer
        self._subschemas = explainer.outline.subschemas
        self._references = explainer.outline.references
        self._steps = _STEPS
        self._demands: dict[JsonPointer, _Demands] = {}
        self._seen: set[tuple[JsonPointer, JsonPointer]] = set()
        self._waiting: deque[tuple[JsonPointer, Any, JsonPointer]] = deque()
        self._found: list[SchemaViolation] = []
        self._explained = False

    def of(self, value: Any) -> tuple[SchemaViolation, ...]:
        self._steps += self._explainer.cost(value)
        self._look_into((), value, ())
        for _ in range(MAX_LOOKS):
            if not self._waiting or self._enough:
                break
            self._look(*self._waiting.popleft())
        if not self._found:
            self._add(self._waiting[0][2] if self._waiting else (), "does not fit the schema")
        return tuple(self._found[:MAX_VIOLATIONS])

    @property
    def _enough(self) -> bool:
        return len(self._found) >= MAX_VIOLATIONS or self._steps < 0

    def _look_into(self, pointer: JsonPointer, value: Any, place: JsonPointer) -> None:
        self._explained = True
        if (pointer, place) not in self._seen:
            self._seen.add((pointer, place))
            self._waiting.append((pointer, value, place))

    def _look(self, pointer: JsonPointer, value: Any, place: JsonPointer) -> None:
        """Finds what is wrong at a place, or what to look into within it."""
        self._explained = False
        subschema = self._subschemas[pointer]
        if not isinstance(subschema, dict):
            self._add(place, _SAID["falseSchema"], "falseSchema")
            return
        self._look_at_demands(pointer, subschema, value, place)
        applied = ((target, value, place) for target in self._applied(pointer, subschema, value))
        self._look_at_all(applied)
        self._look_at_others(pointer, subschema, value, place)
        for keyword in _ALTERNATIVES:
            if isinstance(subschema.get(keyword), list):
                self._look_at_alternatives((*pointer, keyword), len(subschema[keyword]), value, place)
        children = member_subschemas(subschema, value, self._occurs)
        self._look_at_all(((*pointer, *steps), child, (*place, key)) for steps, key, child in children)
        if not self._explained and self._steps > 0:
            self._add(place, "has a part that the schema does not describe")

    def _fits(self, pointer: JsonPointer, value: Any) -> bool:
        """Whether it fits; True as well when no more can be spent on finding out."""
        self._take(_ASKING_COSTS + self._explainer.cost(value))
        fits = self._steps < 0 or self._explainer.fits(pointer, value)
        self._take_judged()
        return fits or self._steps < 0

    def _take(self, steps: int) -> None:
        """Counts what is about to be done; keywords of ours may take what is left then."""
        self._steps -= steps
        self._explainer.effort.remaining = self._steps

    def _take_judged(self) -> None:
        self._steps = self._explainer.effort.remaining

    def _occurs(self, text: str, name: str) -> bool:
        self._steps -= _MATCHING_COSTS
        return self._steps > 0 and cached_pattern(text).occurs_in(name)

    def _look_at_demands(
        self, pointer: JsonPointer, subschema: Mapping[str, Any], value: Any, place: JsonPointer
    ) -> None:
        demands = self._demands.get(pointer) or self._made(pointer, subschema)
        self._take(_ASKING_COSTS + demands.size + self._explainer.cost(value))
        errors = list(demands.validator.iter_errors(value)) if self._steps > 0 else []
        self._take_judged()
        for error in errors if self._steps > 0 else ():
            self._add(place, error.message, error.kind.name)
            if self._enough:
                return

    def _made(self, pointer: JsonPointer, subschema: Mapping[str, Any]) -> "_Demands":
        own = {keyword: inner for keyword, inner in subschema.items() if keyword in _DEMANDS}
        size = len(orjson.dumps(own))
        self._steps -= _MAKING_COSTS * size
        self._demands[pointer] = _Demands(
            compile_validator(own, keywords=metered_validators(self._explainer.effort)), size
        )
        return self._demands[pointer]

    def _applied(self, pointer: JsonPointer, subschema: Mapping[str, Any], value: Any) -> Iterable[JsonPointer]:
        """The subschemas that the same value has to fit as well."""
        yield from self._references.get(pointer, ())
        yield from ((*pointer, "allOf", index) for index in range(len(subschema.get("allOf", ()))))
        if isinstance(value, dict):
            dependent = subschema.get("dependentSchemas", {})
            yield from ((*pointer, "dependentSchemas", name) for name in dependent if name in value)
        if "if" in subschema:
            branch = "then" if self._fits((*pointer, "if"), value) else "else"
            if branch in subschema:
                yield (*pointer, branch)

    def _look_at_all(self, asked: Iterable[tuple[JsonPointer, Any, JsonPointer]]) -> None:
        """Looks into what does not fit, as far as there are not reasons enough already."""
        for pointer, value, place in asked:
            if self._subschemas[pointer] is False:
                self._add(place, _SAID["falseSchema"], "falseSchema")
            elif not self._fits(pointer, value):
                self._look_into(pointer, value, place)
            if self._enough or (self._explained and len(self._waiting) >= MAX_VIOLATIONS):
                return

    def _look_at_others(
        self, pointer: JsonPointer, subschema: Mapping[str, Any], value: Any, place: JsonPointer
    ) -> None:
        """Says of subschemas that nothing can be looked into for whether they are kept."""
        if "not" in subschema and self._fits((*pointer, "not"), value):
            self._add(place, _SAID["not"], "not")
        if "propertyNames" in subschema and isinstance(value, dict):
            self._look_at_names((*pointer, "propertyNames"), value, place)
        if "contains" in subschema and isinstance(value, list):
            self._look_at_elements((*pointer, "contains"), subschema, value, place)

    def _look_at_names(self, pointer: JsonPointer, value: Mapping[str, Any], place: JsonPointer) -> None:
        for name in value:
            if not self._fits(pointer, name):
                self._add(place, _SAID["propertyNames"], "propertyNames")
                return

    def _look_at_elements(
        self, pointer: JsonPointer, subschema: Mapping[str, Any], value: list[Any], place: JsonPointer
    ) -> None:
        contained = 0
        for element in value:
            contained += self._fits(pointer, element)
        most = subschema.get("maxContains", len(value))
        if self._steps > 0 and not subschema.get("minContains", 1) <= contained <= most:
            self._add(place, _SAID["contains"], "contains")

    def _look_at_alternatives(self, pointer: JsonPointer, count: int, value: Any, place: JsonPointer) -> None:
        alternatives = [(*pointer, index) for index in range(count)]
        fitting = 0
        for alternative in alternatives:
            fitting += self._fits(alternative, value)
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

    def _resolved(self, pointer: JsonPointer) -> Mapping[str, Any]:
        """What a subschema that only refers to another stands for."""
        for _ in range(MAX_LOOKS):
            references = self._references.get(pointer)
            if not references:
                break
            pointer = references[0]
        subschema = self._subschemas[pointer]
        return subschema if isinstance(subschema, dict) else {}

    def _has_type(self, pointer: JsonPointer, value: Any) -> bool:
        types = self._resolved(pointer).get("type", list(_TYPES))
        return any(_is_of(value, name) for name in ([types] if isinstance(types, str) else types))

    def _has_marks(self, pointer: JsonPointer, value: Any) -> bool:
        """Whether an object has the constants by which alternatives are told apart."""
        properties = self._resolved(pointer).get("properties", {})
        if not isinstance(value, dict):
            return True
        named = {name: _options(subschema) for name, subschema in properties.items() if name in value}
        return all(value[name] in options for name, options in named.items() if options)

    def _add(self, place: JsonPointer, message: str, keyword: str = "") -> None:
        self._explained = True
        self._found.append(SchemaViolation(format_path(place), message[:MAX_MESSAGE_CHARACTERS], keyword))


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


_ENCODED = re.compile(r"[^A-Za-z0-9/~\-._]")


def _fragment(pointer: JsonPointer) -> str:
    """The pointer as the fragment of an address."""
    text = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in pointer)
    return _ENCODED.sub(lambda character: "".join(f"%{byte:02X}" for byte in character[0].encode()), text)
