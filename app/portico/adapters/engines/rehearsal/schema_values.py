"""Values for a JSON Schema, from a text where it names them and by type where it does not.

The simple keywords are kept: `const`, `enum`, `default`, `examples`, `type`, `required`, `properties`, `items`, `$ref`,
`allOf`, the first alternative of `anyOf` and `oneOf`, `minimum`, `maximum`, and the limits of lengths and items. A
value for a schema with other keywords may be invalid, which its validation then reports.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from portico.adapters.engines.rehearsal.text_values import TextValues

MAX_DEPTH: Final = 32
MAX_ITEMS: Final = 100
MAX_PARTS: Final = 5_000
MAX_CHARACTERS: Final = 10_000
WORD: Final = "rehearsal"
_TYPES_BY_KEYWORD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("properties", "required"), "object"),
    **dict.fromkeys(("items", "minItems"), "array"),
    **dict.fromkeys(("minLength", "maxLength"), "string"),
    **dict.fromkeys(("minimum", "maximum"), "number"),
}


def fill(document: Mapping[str, Any], text: str) -> Any:
    """Return a value for a schema. The same schema and text give the same value."""
    return SchemaFiller(document, TextValues(text)).value(document, WORD)


class SchemaFiller:
    """One schema that is being filled with the values of one text."""

    def __init__(self, document: Mapping[str, Any], values: TextValues) -> None:
        self._document = document
        self._values = values
        self._remaining = MAX_PARTS

    def value(self, schema: Any, name: str, depth: int = 0) -> Any:
        """Return a value for a part of the schema. None ends a schema that is too deep or too large to be filled."""
        if depth > MAX_DEPTH or self._remaining < 0:
            return None
        rules = self.simplified(schema)
        if "const" in rules:
            return rules["const"]
        found = self._values.named(name, rules)
        if found is None and isinstance(rules.get("enum"), list) and rules["enum"]:
            return rules["enum"][0]
        if found is None:
            found = self._given(rules)
        return self._invented(rules, depth) if found is None else found

    def simplified(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """Return the keywords that hold at a place: references, `allOf` and first alternatives are merged."""
        self._remaining -= 1
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._remaining < 0:
            return {}
        rules = {key: value for key, value in schema.items() if key not in {"$ref", "allOf", "anyOf", "oneOf"}}
        for part in self._parts(schema):
            for key, value in self.simplified(part, depth + 1).items():
                rules[key] = _merged(key, rules.get(key), value)
        types = rules.get("type")
        if isinstance(types, list):
            rules["type"] = next((each for each in types if isinstance(each, str) and each != "null"), "null")
        elif not isinstance(types, str):
            rules["type"] = next((kind for key, kind in _TYPES_BY_KEYWORD.items() if key in rules), None)
        return rules

    def _parts(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        if isinstance(schema.get("$ref"), str):
            yield self._target(schema["$ref"])
        if isinstance(schema.get("allOf"), list):
            yield from schema["allOf"]
        for keyword in ("anyOf", "oneOf"):
            options = schema.get(keyword)
            if isinstance(options, list) and options:
                yield next((each for each in options if each != {"type": "null"}), options[0])

    def _target(self, reference: str) -> Any:
        """Return the part of the schema that a reference within it names; None for any other."""
        target: Any = self._document
        if not reference.startswith("#"):
            return None
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, Mapping) else None
        return target

    def _given(self, rules: Mapping[str, Any]) -> Any:
        """Return a value that the schema itself gives, else the next of the text; None without either."""
        if "default" in rules:
            return rules["default"]
        if isinstance(rules.get("examples"), list) and rules["examples"]:
            return rules["examples"][0]
        return self._values.next_of(rules)

    def _invented(self, rules: Mapping[str, Any], depth: int) -> Any:
        match rules.get("type"):
            case "object":
                properties = rules.get("properties")
                known = properties if isinstance(properties, Mapping) else {}
                return {name: self.value(known.get(name), name, depth + 1) for name in _names(rules.get("required"))}
            case "array":
                return self._array(rules, depth)
            case "string":
                return _string(rules)
            case "integer" | "number" as kind:
                return _number(rules, whole=kind == "integer")
            case kind:
                return {"boolean": True, "null": None}.get(str(kind), WORD)

    def _array(self, rules: Mapping[str, Any], depth: int) -> list[Any]:
        size = min(max(_limit(rules, "minItems", 1), 0), _limit(rules, "maxItems", MAX_ITEMS), MAX_ITEMS)
        return [self.value(rules.get("items"), "item", depth + 1) for _ in range(size)]


def _merged(key: str, known: Any, value: Any) -> Any:
    if key == "properties" and isinstance(known, Mapping) and isinstance(value, Mapping):
        return {**value, **known}
    if key == "required" and isinstance(known, list) and isinstance(value, list):
        return [*known, *value]
    return value if known is None else known


def _names(required: Any) -> list[str]:
    names = required if isinstance(required, list) else []
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _limit(rules: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = rules.get(key)
    return value if isinstance(value, int) else otherwise


def _string(rules: Mapping[str, Any]) -> str:
    return WORD[: max(_limit(rules, "maxLength", len(WORD)), 0)].ljust(
        min(_limit(rules, "minLength", 0), MAX_CHARACTERS), "."
    )


def _number(rules: Mapping[str, Any], *, whole: bool) -> int | float:
    number: int | float = 1
    if isinstance(rules.get("minimum"), int | float):
        number = max(number, rules["minimum"])
    if isinstance(rules.get("maximum"), int | float):
        number = min(number, rules["maximum"])
    return int(number) if whole and abs(number) < 2**63 else number
