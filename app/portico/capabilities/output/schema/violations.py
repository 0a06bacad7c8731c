"""The reasons why a value does not fit its schema, for the model that wrote it and for the client.

The search goes from the whole value inwards: at each place the subschema's own assertions are checked, and every
subschema that applies to the same place or to one below is checked as a whole; those that do not fit are searched next.
Of several alternatives none of which fits, one is searched if it is the only one that can have been meant. So the
number of searches is that of the reasons, while the list of all errors that jsonschema-rs makes has one for each
alternative of each alternative. The search ends when it has checked so much JSON that it would take too long.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import orjson

from portico.capabilities.output.schema.outline import JsonPointer, SchemaOutline, member_subschemas
from portico.capabilities.output.schema.validators import cached_pattern, compile_validator
from portico.domain.json_path import format_path
from portico.domain.value import value

if TYPE_CHECKING:
    import jsonschema_rs

MAX_VIOLATIONS: Final = 20
MAX_MESSAGE_CHARACTERS: Final = 240
MAX_SEARCHES: Final = 200
_MAX_CHECKED_BYTES: Final = 4_000_000
"""JSON of all values that are checked in one search together, and of the assertions that are compiled for it."""
_LEAST_BYTES: Final = 200
"""Bytes that each check and each match of a name count at least."""
_ADDRESS: Final = "urn:answer"
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_ASSERTIONS: Final = frozenset(
    {"type", "enum", "const", "format", "pattern", "minLength", "maxLength", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "minItems", "maxItems"}
    | {"required", "dependentRequired", "minProperties", "maxProperties"}
)
_MESSAGES = MappingProxyType(
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


@value
class SchemaViolation:
    """One reason: the place in the answer, as a JSON path, and what is wrong there, without the value itself."""

    path: str
    message: str
    keyword: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the violation as clients and models see it."""
        return {"path": self.path, "message": self.message}


class ViolationFinder:
    """Finder of the violations of one schema. It checks every subschema by its number, through one compiled schema."""

    def __init__(self, document: Mapping[str, Any], outline: SchemaOutline) -> None:
        self.outline = outline
        self._names = {pointer: str(number) for number, pointer in enumerate(outline.subschemas)}
        self._references_by_name = {
            name: {"$ref": f"{_ADDRESS}#{_fragment(pointer)}"} for pointer, name in self._names.items()
        }
        self._document = document

    @cached_property
    def _validator(self) -> "jsonschema_rs.Draft202012Validator":
        return compile_validator({"properties": self._references_by_name}, resources={_ADDRESS: self._document})

    def fits(self, pointer: JsonPointer, value: Any) -> bool:
        """Return True if the value fits that subschema."""
        return self._validator.is_valid({self._names[pointer]: value})

    def find(self, value: Any) -> tuple[SchemaViolation, ...]:
        """Return the reasons why a value does not fit: at least one, at most `MAX_VIOLATIONS`."""
        return _Explanation(self).of(value)


class _Explanation:
    """The search for the violations of one value: the violations found, and the places still to be searched."""

    def __init__(self, finder: ViolationFinder) -> None:
        self._finder = finder
        self._subschemas = finder.outline.subschemas
        self._references = finder.outline.references
        self._bytes_left = _MAX_CHECKED_BYTES
        self._assertions: dict[JsonPointer, jsonschema_rs.Draft202012Validator] = {}
        self._seen: set[tuple[JsonPointer, JsonPointer]] = set()
        self._waiting: deque[tuple[JsonPointer, Any, JsonPointer]] = deque()
        self._found: list[SchemaViolation] = []
        self._is_explained = False

    def of(self, value: Any) -> tuple[SchemaViolation, ...]:
        self._enqueue((), value, ())
        for _ in range(MAX_SEARCHES):
            if not self._waiting or self._has_enough:
                break
            self._search(*self._waiting.popleft())
        if not self._found:
            self._add(self._waiting[0][2] if self._waiting else (), "does not fit the schema")
        return tuple(self._found[:MAX_VIOLATIONS])

    @property
    def _has_enough(self) -> bool:
        return len(self._found) >= MAX_VIOLATIONS or self._bytes_left < 0

    def _enqueue(self, pointer: JsonPointer, value: Any, place: JsonPointer) -> None:
        self._is_explained = True
        if (pointer, place) not in self._seen:
            self._seen.add((pointer, place))
            self._waiting.append((pointer, value, place))

    def _search(self, pointer: JsonPointer, value: Any, place: JsonPointer) -> None:
        """Find the violations at a place, or the places to search next."""
        self._is_explained = False
        subschema = self._subschemas[pointer]
        if not isinstance(subschema, dict):
            self._add(place, _MESSAGES["falseSchema"], "falseSchema")
            return
        self._check_assertions(pointer, subschema, value, place)
        applied = ((target, value, place) for target in self._applied(pointer, subschema, value))
        self._enqueue_unfit(applied)
        self._check_others(pointer, subschema, value, place)
        for keyword in _ALTERNATIVES:
            if isinstance(subschema.get(keyword), list):
                self._check_alternatives((*pointer, keyword), len(subschema[keyword]), value, place)
        children = member_subschemas(subschema, value, self._occurs)
        self._enqueue_unfit(((*pointer, *steps), child, (*place, key)) for steps, key, child in children)
        if not self._is_explained and self._bytes_left > 0:
            self._add(place, "has a part that the schema does not describe")

    def _fits(self, pointer: JsonPointer, value: Any) -> bool:
        """Return True if the value fits, or if too much was checked to find out."""
        self._spend(value)
        return self._bytes_left < 0 or self._finder.fits(pointer, value)

    def _spend(self, *checked: Any) -> None:
        """Count the JSON that is checked."""
        self._bytes_left -= _LEAST_BYTES + sum(len(orjson.dumps(each)) for each in checked)

    def _occurs(self, text: str, name: str) -> bool:
        self._spend()
        return self._bytes_left > 0 and cached_pattern(text).occurs_in(name)

    def _check_assertions(
        self, pointer: JsonPointer, subschema: Mapping[str, Any], value: Any, place: JsonPointer
    ) -> None:
        assertions = self._assertions.get(pointer) or self._compile_assertions(pointer, subschema)
        self._spend(value)
        for error in assertions.iter_errors(value) if self._bytes_left > 0 else ():
            self._add(place, error.message, error.kind.name)
            if self._has_enough:
                return

    def _compile_assertions(
        self, pointer: JsonPointer, subschema: Mapping[str, Any]
    ) -> "jsonschema_rs.Draft202012Validator":
        own = {keyword: inner for keyword, inner in subschema.items() if keyword in _ASSERTIONS}
        self._spend(own)
        self._assertions[pointer] = compile_validator(own)
        return self._assertions[pointer]

    def _applied(self, pointer: JsonPointer, subschema: Mapping[str, Any], value: Any) -> Iterable[JsonPointer]:
        """Yield the subschemas that the same value has to fit as well."""
        yield from self._references.get(pointer, ())
        yield from ((*pointer, "allOf", index) for index in range(len(subschema.get("allOf", ()))))
        if isinstance(value, dict):
            dependent = subschema.get("dependentSchemas", {})
            yield from ((*pointer, "dependentSchemas", name) for name in dependent if name in value)
        if "if" in subschema:
            branch = "then" if self._fits((*pointer, "if"), value) else "else"
            if branch in subschema:
                yield (*pointer, branch)

    def _enqueue_unfit(self, candidates: Iterable[tuple[JsonPointer, Any, JsonPointer]]) -> None:
        """Search the subschemas that do not fit, unless there are enough violations already."""
        for pointer, candidate, place in candidates:
            if self._subschemas[pointer] is False:
                self._add(place, _MESSAGES["falseSchema"], "falseSchema")
            elif not self._fits(pointer, candidate):
                self._enqueue(pointer, candidate, place)
            if self._has_enough or (self._is_explained and len(self._waiting) >= MAX_VIOLATIONS):
                return

    def _check_others(self, pointer: JsonPointer, subschema: Mapping[str, Any], value: Any, place: JsonPointer) -> None:
        """Check subschemas that cannot be searched."""
        if "not" in subschema and self._fits((*pointer, "not"), value):
            self._add(place, _MESSAGES["not"], "not")
        if "propertyNames" in subschema and isinstance(value, dict):
            self._check_names((*pointer, "propertyNames"), value, place)
        if "contains" in subschema and isinstance(value, list):
            self._check_elements((*pointer, "contains"), subschema, value, place)

    def _check_names(self, pointer: JsonPointer, value: Mapping[str, Any], place: JsonPointer) -> None:
        for name in value:
            if not self._fits(pointer, name):
                self._add(place, _MESSAGES["propertyNames"], "propertyNames")
                return

    def _check_elements(
        self, pointer: JsonPointer, subschema: Mapping[str, Any], value: list[Any], place: JsonPointer
    ) -> None:
        contained = 0
        for element in value:
            contained += self._fits(pointer, element)
        most = subschema.get("maxContains", len(value))
        if self._bytes_left > 0 and not subschema.get("minContains", 1) <= contained <= most:
            self._add(place, _MESSAGES["contains"], "contains")

    def _check_alternatives(self, pointer: JsonPointer, count: int, value: Any, place: JsonPointer) -> None:
        alternatives = [(*pointer, index) for index in range(count)]
        fitting = 0
        for alternative in alternatives:
            fitting += self._fits(alternative, value)
        if fitting > 1 and pointer[-1] == "oneOf":
            self._add(place, "fits more than one of the alternatives", "oneOf")
        if fitting:
            return
        of_type = [alternative for alternative in alternatives if self._has_type(alternative, value)]
        alike = [alternative for alternative in of_type if self._has_constants(alternative, value)]
        for likely in (of_type, alike):
            if len(likely) == 1:
                self._enqueue(likely[0], value, place)
                return
        only_options = all(_options(self._resolved(alternative)) for alternative in alternatives)
        self._add(place, f"fits none of {count} alternatives", "enum" if only_options else str(pointer[-1]))

    def _resolved(self, pointer: JsonPointer) -> Mapping[str, Any]:
        """Return the subschema that a reference leads to in the end."""
        for _ in range(MAX_SEARCHES):
            references = self._references.get(pointer)
            if not references:
                break
            pointer = references[0]
        subschema = self._subschemas[pointer]
        return subschema if isinstance(subschema, dict) else {}

    def _has_type(self, pointer: JsonPointer, value: Any) -> bool:
        types = self._resolved(pointer).get("type", list(_TYPES))
        return any(_is_of_type(value, name) for name in ([types] if isinstance(types, str) else types))

    def _has_constants(self, pointer: JsonPointer, value: Any) -> bool:
        """Return True if an object has the constants that distinguish its alternative."""
        properties = self._resolved(pointer).get("properties", {})
        if not isinstance(value, dict):
            return True
        named = {name: _options(subschema) for name, subschema in properties.items() if name in value}
        return all(value[name] in options for name, options in named.items() if options)

    def _add(self, place: JsonPointer, message: str, keyword: str = "") -> None:
        self._is_explained = True
        self._found.append(SchemaViolation(format_path(place), message[:MAX_MESSAGE_CHARACTERS], keyword))


def _options(subschema: Any) -> list[Any]:
    """Return the only values that a subschema allows; empty if it names none."""
    if not isinstance(subschema, dict):
        return []
    return [subschema["const"]] if "const" in subschema else subschema.get("enum", [])


def _is_of_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, ()))


_ENCODED = re.compile(r"[^A-Za-z0-9/~\-._]")


def _fragment(pointer: JsonPointer) -> str:
    """Return the pointer as the fragment of a URI."""
    text = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in pointer)
    return _ENCODED.sub(lambda character: "".join(f"%{byte:02X}" for byte in character[0].encode()), text)
