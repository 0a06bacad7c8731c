"""Finds in a plain text which offered tool is meant, and with which arguments.

Theory of operation

1. A value stands out when it is beside its parameter's name (`sides: 6`, `6 sides`, `city = "Bonn"`) or a word of the
   parameter's description, or has an unmistakable form: an enumerated word, a time zone for a parameter about zones,
   a calculation for one about expressions.
2. What is required and does not stand out is taken in order: numbers for numbers, quoted texts for strings.
3. A tool can be called when all it requires was found, and is meant when the text has its words: each word of its name
   counts 2, each other word of its description 1, each value that stands out 2, and 2 are needed. A tool that
   requires nothing needs all words of its name, or one of them and a count of 3.
4. The highest count wins, the first offered among equals. Nothing here knows which tools there are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.tools import ToolDefinition

MOST_CHARACTERS = 4000
"""Only the beginning of a text is read: no text may take long."""

_PIECE = re.compile(r"(?P<number>(?:(?<![\w)])-)?(?<!\d)\d{1,15}(?:\.\d{1,15})?(?!\d))|(?P<word>[^\W\d_]+)|[,.;!?]")
_WORD = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r'"([^"]+)"|“([^“”]+)”|`([^`]+)`|(?<!\w)\'([^\']+)\'(?!\w)')
_ZONE = re.compile(r"\b(?:[A-Z][A-Za-z]+(?:/[A-Z][A-Za-z_+-]+\d{0,2}){1,2}|UTC|GMT)(?![\w/])")
_CALCULATION = re.compile(r"[-(.\d][-+*/%().\d\s]{0,200}[)\d]")
_OPERATOR = re.compile(r"[+*/%]|\s-\s")
_MINUS = re.compile("-")
_ENDINGS = ("ing", "es", "ed", "s", "e")
_IDLE = frozenset({"a", "an", "and", "as", "by", "for", "in", "is", "it", "of", "on", "or", "per", "the", "to", "with"})
_ABOUT_ZONES = frozenset({"timezon", "zon"})
_ABOUT_CALCULATIONS = frozenset({"expression", "formula", "arithmetic"})
_NUMERIC = frozenset({"integer", "number"})


@dataclass(frozen=True, slots=True)
class Meant:
    """A tool and the arguments found for it."""

    tool: ToolDefinition
    arguments: dict[str, Any]


def meant(tools: Sequence[ToolDefinition], text: str) -> Meant | None:
    """The tool that the text means, with all it requires."""
    words = _stems(text)
    best, highest = None, 0
    for tool in tools:
        reading = _Reading(tool.parameters, text)
        count = _count(tool, words, reading.standing_out)
        if count > highest and not reading.missing and _enough(tool, words, count):
            best, highest = Meant(tool, reading.arguments), count
    return best


def forced(tools: Sequence[ToolDefinition], text: str) -> Meant | None:
    """The tool that the text fits best, with what is missing made up by its type; None without tools."""
    if not tools:
        return None
    words = _stems(text)
    readings = [_Reading(tool.parameters, text) for tool in tools]
    counts = [_count(tool, words, reading.standing_out) for tool, reading in zip(tools, readings, strict=True)]
    best = counts.index(max(counts))
    reading = readings[best]
    made_up = {parameter.name: _made_up(parameter, text) for parameter in reading.missing}
    return Meant(tools[best], reading.arguments | made_up)


def _count(tool: ToolDefinition, words: frozenset[str], standing_out: int) -> int:
    name = _stems(tool.name)
    return 2 * len(name & words) + len((_stems(tool.description) - name) & words) + 2 * standing_out


def _enough(tool: ToolDefinition, words: frozenset[str], count: int) -> bool:
    if tool.parameters.get("required"):
        return count >= 2
    name = _stems(tool.name)
    return name <= words or (not name.isdisjoint(words) and count >= 3)


@dataclass(slots=True)
class _Number:
    """A number of the text and the stems beside it, empty where there is a mark or nothing."""

    value: int | float
    before: str
    after: str
    used: bool = False

    def use(self) -> int | float:
        self.used = True
        return self.value


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter by its simple schema; `named` and `about` are the stems of its name and of its description."""

    name: str
    schema: Mapping[str, Any]
    kind: str
    named: frozenset[str]
    about: frozenset[str]

    @classmethod
    def of(cls, name: str, schema: Mapping[str, Any]) -> "_Parameter":
        kind = "enum" if schema.get("enum") else str(schema.get("type"))
        return cls(name, schema, kind, _stems(name), _stems(schema.get("description", "")))


class _Reading:
    """What one text says about the parameters of one tool.

    `standing_out` counts the values that did, `missing` are the required ones that were not found.
    """

    def __init__(self, schema: Mapping[str, Any], text: str) -> None:
        properties = schema.get("properties", {})
        parameters = [_Parameter.of(name, _plain(each, schema)) for name, each in properties.items()]
        required = [each for each in parameters if each.name in schema.get("required", ())]
        self.arguments: dict[str, Any] = {}
        self._text = text[:MOST_CHARACTERS]
        self._numbers = _numbers(self._text)
        self._quoted = ["".join(groups) for groups in _QUOTED.findall(self._text)]
        for read in (self._beside_name, self._by_form, self._beside_description):
            self._take(parameters, read)
        self.standing_out = len(self.arguments)
        self._take(required, self._in_order)
        self.arguments = {name: self.arguments[name] for name in properties if name in self.arguments}
        self.missing = [each for each in required if each.name not in self.arguments]

    def _take(self, parameters: Sequence[_Parameter], read: Callable[[_Parameter], Any]) -> None:
        for parameter in parameters:
            if parameter.name not in self.arguments and (value := read(parameter)) is not None:
                self.arguments[parameter.name] = value

    def _beside_name(self, parameter: _Parameter) -> Any:
        if parameter.kind in _NUMERIC:
            return self._number_beside(parameter.named, parameter.kind)
        spoken = re.escape(parameter.name).replace("_", "[_ ]")
        written = re.search(rf"\b{spoken}\s*[:=]\s*(?:\"([^\"]+)\"|([^\s,;\"]+))", self._text, re.IGNORECASE)
        value = "" if written is None else written[1] or written[2]
        if parameter.kind == "boolean":
            return {"true": True, "false": False}.get(value.lower().rstrip("."))
        return (value or None) if parameter.kind == "string" else None

    def _by_form(self, parameter: _Parameter) -> Any:
        if parameter.kind == "enum":
            return _member(parameter.schema["enum"], self._text)
        about = parameter.named | parameter.about
        if parameter.kind == "string" and about & _ABOUT_ZONES:
            zone = _ZONE.search(self._text)
            return None if zone is None else zone[0]
        return self._calculation(parameter, _OPERATOR)

    def _beside_description(self, parameter: _Parameter) -> Any:
        return self._number_beside(parameter.about, parameter.kind) if parameter.kind in _NUMERIC else None

    def _in_order(self, parameter: _Parameter) -> Any:
        if parameter.kind in _NUMERIC:
            return next((number.use() for number in self._fitting(parameter.kind)), None)
        if parameter.kind == "array":
            return self._all(str(parameter.schema.get("items", {}).get("type"))) or None
        if parameter.kind != "string":
            return None
        return self._quoted.pop(0) if self._quoted else self._calculation(parameter, _MINUS)

    def _number_beside(self, stems: frozenset[str], kind: str) -> int | float | None:
        """A number before one of the words is preferred to one after it: `6 sides` to `sides 6`."""
        fitting = self._fitting(kind)
        beside = [number for number in fitting if number.after in stems]
        beside += [number for number in fitting if number.before in stems]
        return beside[0].use() if beside else None

    def _fitting(self, kind: str) -> list[_Number]:
        """The numbers of that kind that are left, in order."""
        return [each for each in self._numbers if not each.used and (kind == "number" or isinstance(each.value, int))]

    def _all(self, kind: str) -> list[Any]:
        if kind in _NUMERIC:
            return [number.use() for number in self._fitting(kind)]
        return self._quoted if kind == "string" else []

    def _calculation(self, parameter: _Parameter, operator: re.Pattern[str]) -> str | None:
        """The longest calculation of the text, for a string that is to be one."""
        if parameter.kind != "string" or _ABOUT_CALCULATIONS.isdisjoint(parameter.named | parameter.about):
            return None
        found = [each[0] for each in _CALCULATION.finditer(self._text) if operator.search(each[0], 1)]
        return max(found, key=len, default=None)


def _numbers(text: str) -> list[_Number]:
    pieces = list(_PIECE.finditer(text))
    stems = ["", *(_stem(piece["word"]) if piece["word"] else "" for piece in pieces), ""]
    return [
        _Number(_value(piece["number"]), stems[index], stems[index + 2])
        for index, piece in enumerate(pieces)
        if piece["number"]
    ]


def _value(digits: str) -> int | float:
    return float(digits) if "." in digits else int(digits)


def _member(members: Sequence[Any], text: str) -> Any:
    """The first member that stands in the text as a word of its own, in any case."""
    for member in members:
        if member is not None and re.search(rf"(?<!\w){re.escape(str(member))}(?!\w)", text, re.IGNORECASE):
            return member
    return None


def _plain(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind local references, alternatives with null and lists of types, as far as that is simple."""
    for _ in range(8):
        if not isinstance(schema, Mapping):
            return {}
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return {**schema, "type": next((kind for kind in kinds if kind != "null"), None)}
        alternatives = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        if "$ref" not in schema and not alternatives:
            return schema
        inner = _behind(schema["$ref"], root) if "$ref" in schema else alternatives[0]
        schema = {**{key: schema[key] for key in ("description", "default") if key in schema}, **inner}
    return {}


def _behind(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _made_up(parameter: _Parameter, text: str) -> Any:
    if "default" in parameter.schema:
        return parameter.schema["default"]
    least = parameter.schema.get("minimum", 1)
    by_kind: Mapping[str, Any] = {
        "enum": parameter.schema.get("enum", [None])[0],
        "integer": least,
        "number": least,
        "boolean": False,
        "array": [],
        "object": {},
    }
    return by_kind.get(parameter.kind, text)


def _stems(text: str) -> frozenset[str]:
    return frozenset(map(_stem, _WORD.findall(text[:MOST_CHARACTERS].lower()))) - _IDLE


def _stem(word: str) -> str:
    """The word without the ending that English gives it; short words stay as they are."""
    word = word.lower()
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    return word
