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
5. Whoever asks may say which values fit a parameter; others are passed over. No number and no quoted text is taken
   twice in order.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.tools import ToolDefinition

MOST_CHARACTERS = 4000
"""Only the beginning of a text is read: no text may take long."""

_PIECE = re.compile(
    r"(?P<number>(?:(?<![\w)])-)?(?<!\d)\d{1,15}(?:\.\d{1,15})?(?!\d))|(?P<word>[^\W\d_]+)|[,.;!?]|\n\s*\n"
)
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
class ToolMatch:
    """A tool, the arguments found for it, and the names of required ones that were not."""

    tool: ToolDefinition
    arguments: dict[str, Any]
    missing: tuple[str, ...] = ()


def match_tool(tools: Sequence[ToolDefinition], text: str) -> ToolMatch | None:
    """The tool that the text means, with all it requires."""
    words = stems(text)
    best, highest = None, 0
    for tool in tools:
        found = _found(tool, text)
        count = _count(tool, words, found.standing_out)
        if count > highest and not found.missing and _enough(tool, words, count):
            best, highest = ToolMatch(tool, found.arguments), count
    return best


def closest_tool(tools: Sequence[ToolDefinition], text: str) -> ToolMatch | None:
    """The tool that the text fits best, be it enough or not; None without tools."""
    if not tools:
        return None
    words = stems(text)
    all_found = [_found(tool, text) for tool in tools]
    counts = [_count(tool, words, found.standing_out) for tool, found in zip(tools, all_found, strict=True)]
    best = counts.index(max(counts))
    return ToolMatch(tools[best], all_found[best].arguments, all_found[best].missing)


def _count(tool: ToolDefinition, words: frozenset[str], standing_out: int) -> int:
    name = stems(tool.name)
    return 2 * len(name & words) + len((stems(tool.description) - name) & words) + 2 * standing_out


def _enough(tool: ToolDefinition, words: frozenset[str], count: int) -> bool:
    if tool.parameters.get("required"):
        return count >= 2
    name = stems(tool.name)
    return name <= words or (not name.isdisjoint(words) and count >= 3)


@dataclass(frozen=True, slots=True)
class _Number:
    """A number of the text and the stems beside it, empty where there is a mark or nothing.

    `label` is the stem before it if only a colon or an equals sign is between them.
    """

    place: int
    value: int | float
    before: str
    after: str
    label: str


def _anything(_: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class WantedParameter:
    """What a value is looked for: by its simple schema, and by `named` and `about`, the stems of name and description.

    `fits` says of a value that was found whether it can be taken.
    """

    name: str
    schema: Mapping[str, Any]
    kind: str
    named: frozenset[str]
    about: frozenset[str]
    fits: Callable[[Any], bool] = _anything

    @classmethod
    def of(cls, name: str, schema: Mapping[str, Any], fits: Callable[[Any], bool] = _anything) -> "WantedParameter":
        kind = "enum" if schema.get("enum") else str(schema.get("type"))
        return cls(name, schema, kind, stems(name), stems(str(schema.get("description", ""))), fits)


@dataclass(frozen=True, slots=True)
class FoundArguments:
    """The values by name, how many of them stood out, and the names of required ones that were not found."""

    arguments: dict[str, Any]
    standing_out: int
    missing: tuple[str, ...]


def _found(tool: ToolDefinition, text: str) -> FoundArguments:
    properties = tool.parameters.get("properties", {})
    parameters = [WantedParameter.of(name, _plain(each, tool.parameters)) for name, each in properties.items()]
    return TextArguments(text).take(parameters, frozenset(tool.parameters.get("required", ())))


class TextArguments:
    """What one text says about parameters, and what of it was taken already."""

    def __init__(self, text: str) -> None:
        self._text = text[:MOST_CHARACTERS]
        self._numbers = _numbers(self._text)
        self._quoted = tuple("".join(groups) for groups in _QUOTED.findall(self._text))
        self.taken: frozenset[int | str] = frozenset()
        """The places of numbers and the quoted texts that were taken in order."""

    def take(self, parameters: Sequence[WantedParameter], required: frozenset[str]) -> FoundArguments:
        """The values for these parameters, in their order; of those not `required` only what stands out."""
        arguments: dict[str, Any] = {}
        needed = [each for each in parameters if each.name in required]
        for read in (self._beside_name, self._by_form, self._beside_description):
            self._read(parameters, read, arguments)
        standing_out = len(arguments)
        self._read(needed, self._in_order, arguments)
        found = {each.name: arguments[each.name] for each in parameters if each.name in arguments}
        return FoundArguments(found, standing_out, tuple(each.name for each in needed if each.name not in found))

    def _read(
        self, parameters: Sequence[WantedParameter], read: Callable[[WantedParameter], Any], arguments: dict[str, Any]
    ) -> None:
        for parameter in parameters:
            if parameter.name not in arguments and (value := read(parameter)) is not None:
                arguments[parameter.name] = value

    def _beside_name(self, parameter: WantedParameter) -> Any:
        if parameter.kind in _NUMERIC:
            labelled = [number for number in self._fitting(parameter) if number.label in parameter.named]
            return self._use(labelled[0]) if labelled else self._number_beside(parameter.named, parameter)
        if parameter.kind not in {"boolean", "string"}:
            return None
        spoken = re.escape(parameter.name).replace("_", "[_ ]")
        written = re.search(rf"\b{spoken}\s*[:=]\s*(?:\"([^\"]+)\"|([^\s,;\"]+))", self._text, re.IGNORECASE)
        value = "" if written is None else written[1] or written[2]
        if parameter.kind == "boolean":
            return {"true": True, "false": False}.get(value.lower().rstrip("."))
        return value if value and parameter.fits(value) else None

    def _by_form(self, parameter: WantedParameter) -> Any:
        if parameter.kind == "enum":
            return next(filter(parameter.fits, members(parameter.schema["enum"], self._text)), None)
        about = parameter.named | parameter.about
        if parameter.kind == "string" and about & _ABOUT_ZONES:
            zone = _ZONE.search(self._text)
            return zone[0] if zone is not None and parameter.fits(zone[0]) else None
        return self._calculation(parameter, _OPERATOR)

    def _beside_description(self, parameter: WantedParameter) -> Any:
        return self._number_beside(parameter.about, parameter) if parameter.kind in _NUMERIC else None

    def _in_order(self, parameter: WantedParameter) -> Any:
        if parameter.kind in _NUMERIC:
            return next((self._use(number) for number in self._fitting(parameter)), None)
        if parameter.kind == "array":
            return self._all(parameter.schema.get("items", {})) or None
        if parameter.kind != "string":
            return None
        quoted = next((each for each in self._quoted if each not in self.taken and parameter.fits(each)), None)
        if quoted is None:
            return self._calculation(parameter, _MINUS)
        self.taken |= {quoted}
        return quoted

    def _number_beside(self, words: frozenset[str], parameter: WantedParameter) -> int | float | None:
        """A number before one of the words is preferred to one after it: `6 sides` to `sides 6`."""
        fitting = self._fitting(parameter)
        beside = [number for number in fitting if number.after in words]
        beside += [number for number in fitting if number.before in words]
        return self._use(beside[0]) if beside else None

    def _fitting(self, parameter: WantedParameter) -> list[_Number]:
        """The numbers that are left and fit, in order."""
        return [number for number in self._left(parameter.kind) if parameter.fits(number.value)]

    def _left(self, kind: str) -> list[_Number]:
        """The numbers of that kind that are left, in order."""
        left = (each for each in self._numbers if each.place not in self.taken)
        return [each for each in left if kind == "number" or isinstance(each.value, int)]

    def _use(self, number: _Number) -> int | float:
        self.taken |= {number.place}
        return number.value

    def _all(self, items: Any) -> list[Any]:
        """All that is left of what an array's elements can be."""
        items = items if isinstance(items, Mapping) else {}
        if items.get("enum"):
            return list(members(items["enum"], self._text))
        kind = items.get("type")
        if kind in _NUMERIC:
            return [self._use(number) for number in self._left(str(kind))]
        quoted = [each for each in self._quoted if each not in self.taken] if kind == "string" else []
        self.taken |= set(quoted)
        return quoted

    def _calculation(self, parameter: WantedParameter, operator: re.Pattern[str]) -> str | None:
        """The longest calculation of the text, for a string that is to be one."""
        if parameter.kind != "string" or _ABOUT_CALCULATIONS.isdisjoint(parameter.named | parameter.about):
            return None
        found = [each[0] for each in _CALCULATION.finditer(self._text) if operator.search(each[0], 1)]
        return max(filter(parameter.fits, found), key=len, default=None)


def _numbers(text: str) -> list[_Number]:
    pieces = list(_PIECE.finditer(text))
    beside = ["", *(_stem(piece["word"]) if piece["word"] else "" for piece in pieces), ""]
    ends = [0, *(piece.end() for piece in pieces)]
    return [
        _Number(
            index,
            _value(piece["number"]),
            beside[index],
            beside[index + 2],
            beside[index] if text[ends[index] : piece.start()].strip() in {":", "="} else "",
        )
        for index, piece in enumerate(pieces)
        if piece["number"]
    ]


def _value(digits: str) -> int | float:
    return float(digits) if "." in digits else int(digits)


def members(options: Sequence[Any], text: str) -> Iterator[Any]:
    """The options that stand in the text as words of their own, in any case."""
    folded = text[:MOST_CHARACTERS].casefold()
    for option in options:
        if option is not None and str(option).casefold() in folded:
            spelled = rf"(?<!\w){re.escape(str(option))}(?!\w)"
            if re.search(spelled, text[:MOST_CHARACTERS], re.IGNORECASE):
                yield option


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


def stems(text: str) -> frozenset[str]:
    """The words of the text without their endings, those that say nothing left out."""
    return frozenset(map(_stem, _WORD.findall(text[:MOST_CHARACTERS].lower()))) - _IDLE


def _stem(word: str) -> str:
    """The word without the ending that English gives it; short words stay as they are."""
    word = word.lower()
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    return word
