"""Values that a plain text names: numbers, quoted texts, words of an enumeration, and what stands beside a name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

MAX_CHARACTERS: Final = 4000
"""Only the beginning of a text is read, so that no text takes long."""
_NUMBER: Final = re.compile(r"(?:(?<![\w)])-)?(?<![\d.])\d{1,15}(?:\.\d{1,15})?(?![\d])")
_QUOTED: Final = re.compile(r'"([^"]+)"|“([^“”]+)”|`([^`]+)`|(?<!\w)\'([^\']+)\'(?!\w)')
_WORD: Final = re.compile(r"[^\W\d_]+")
_ENDINGS: Final = ("ing", "es", "ed", "s", "e")
_FILLERS: Final = frozenset(
    {"a", "an", "and", "as", "by", "for", "in", "is", "it", "of", "on", "or", "the", "to", "with"}
)
_TIME_ZONE: Final = re.compile(r"\b(?:[A-Z][A-Za-z]+(?:/[A-Z][A-Za-z_+-]+\d{0,2}){1,2}|UTC|GMT)(?![\w/])")
_ARITHMETIC: Final = re.compile(r"[-+*/%().\d ]{3,200}")
_OPERATION: Final = re.compile(r"[\d)] ?(?:[+*/%]| - )")


def stems(text: str) -> frozenset[str]:
    """Return the words of a text without their endings, except those that mean nothing by themselves."""
    words = {word.lower() for word in _WORD.findall(text[:MAX_CHARACTERS].replace("_", " "))}
    return frozenset(_stem(word) for word in words - _FILLERS)


class TextValues:
    """The values of one text. A number or a quoted text is used once."""

    def __init__(self, text: str) -> None:
        self._text = text = text[:MAX_CHARACTERS]
        self._words = [word.lower() for word in re.findall(r"\w+", text)]
        self._numbers = [float(found) if "." in found else int(found) for found in _NUMBER.findall(text)]
        self._quoted = ["".join(groups) for groups in _QUOTED.findall(text)]

    def named(self, name: str, schema: Mapping[str, Any]) -> Any:
        """Return the value that the text names for a property, in any order of properties; None without one."""
        if isinstance(schema.get("enum"), list):
            return self.member(schema["enum"])
        labelled = self._labelled(name, schema.get("type"))
        if labelled is not None or schema.get("type") != "string":
            return labelled
        about = stems(f"{name} {schema.get('description', '')}")
        if about & {"zon", "timezon"}:
            found = _TIME_ZONE.search(self._text)
            return found[0] if found else None
        return self._expression() if "expression" in about else None

    def next_of(self, schema: Mapping[str, Any]) -> Any:
        """Return the next unused value of a type, in the order of the text; None without one."""
        match schema.get("type"):
            case "integer":
                return self._take(self._numbers, int)
            case "number":
                return self._take(self._numbers, (int, float))
            case "string":
                return self._take(self._quoted, str)
            case "array":
                items = schema.get("items")
                return list(self._all_of(items)) or None if isinstance(items, Mapping) else None
            case _:
                return None

    def member(self, members: Iterable[Any]) -> Any:
        """Return the first member of an enumeration that the text has as a word; None without one."""
        return next((member for member in members if member is not None and str(member).lower() in self._words), None)

    def _labelled(self, name: str, kind: Any) -> Any:
        """Return the value that stands beside the name of a property, as in `sides: 6`, `sides=6` or `6 sides`."""
        label = re.escape(name).replace("_", "[_ ]")
        found = re.search(rf'\b{label}\s*[:=]\s*(?:"([^"]+)"|([^\s,;")]+))', self._text, re.IGNORECASE)
        value = (found[1] or found[2]).rstrip(".") if found else ""
        if kind == "string":
            return value or None
        if kind == "boolean":
            return {"true": True, "false": False}.get(value.lower())
        if kind not in {"integer", "number"}:
            return None
        if not value:
            beside = re.search(rf"({_NUMBER.pattern})[ -]{label}\b", self._text, re.IGNORECASE)
            value = beside[1] if beside else ""
        number = next((each for each in self._numbers if str(each) == value), None)
        if number is None or (kind == "integer" and not isinstance(number, int)):
            return None
        self._numbers.remove(number)
        return number

    def _expression(self) -> str | None:
        candidates = (run[0].lstrip(" .+*/%)").rstrip(" .+*/%-(") for run in _ARITHMETIC.finditer(self._text))
        return next((each for each in candidates if _OPERATION.search(each)), None)

    def _all_of(self, items: Mapping[str, Any]) -> Iterator[Any]:
        while (value := self.next_of(items)) is not None:
            yield value

    @staticmethod
    def _take(values: list[Any], kind: type | tuple[type, ...]) -> Any:
        value = next((each for each in values if isinstance(each, kind)), None)
        if value is not None:
            values.remove(value)
        return value


def _stem(word: str) -> str:
    ending = next((ending for ending in _ENDINGS if word.endswith(ending) and len(word) > len(ending) + 2), "")
    return word.removesuffix(ending)
