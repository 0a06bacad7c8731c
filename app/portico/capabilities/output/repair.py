"""Repair of invalid JSON, with a record of every kind of change.

One pass over the text in linear time: valid JSON is read as `strict_json` does; a defect is repaired if its meaning is
plain, otherwise the whole text is refused. Nothing is invented: a key without a value is left out if the text was cut
off there, and refused elsewhere; NaN, duplicate keys and numbers beyond 64 bits are not repaired.

Refused: json-repair. It does not report most of its changes (commas, single quotes), invents values (`{"a":` becomes
`{"a": ""}`, `{"a"` becomes `["a"]`), accepts NaN and duplicate keys, and needs 0.4 s for 4,000 brackets.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from portico.capabilities.output.lenient_text import QUOTES, LenientString, StringPosition, read_string
from portico.domain.json_path import format_path
from portico.domain.strict_json import DEFAULT_MAX_DEPTH, StrictJsonError, dumps, raw_decode, unique_object
from portico.domain.value import value

MAX_CHARACTERS: Final = 131_072
"""Length of the longest text that is repaired."""


class RepairAction(StrEnum):
    """The kinds of change."""

    TRUNCATION_CLOSED = "truncation_closed"
    BRACKETS_CLOSED = "brackets_closed"
    COMMAS_REMOVED = "commas_removed"
    COMMAS_ADDED = "commas_added"
    QUOTES_REPLACED = "quotes_replaced"
    QUOTES_ADDED = "quotes_added"
    ESCAPES_FIXED = "escapes_fixed"
    COMMENTS_REMOVED = "comments_removed"
    LITERALS_RESPELLED = "literals_respelled"
    ENUM_NORMALISED = "enum_normalised"


@value
class Repair:
    """One kind of change: the JSON path of its first occurrence, and how often it occurred. It holds no text."""

    action: RepairAction
    path: str
    times: int = 1


@value
class RepairedValue:
    """A value, and the changes that were needed to read it; none if it was JSON already."""

    value: Any
    repairs: tuple[Repair, ...]


def repair(text: str) -> RepairedValue:
    """Return the value that begins with the text's first character; the text behind it is ignored.

    Raises: StrictJsonError.
    """
    if len(text) > MAX_CHARACTERS:
        raise StrictJsonError(f"it is longer than the {MAX_CHARACTERS} characters that are repaired")
    return _Reader(text).whole()


_NOTHING: Final = object()
"""Marks a text that ends before its value."""
_SKIP = re.compile(r"\s++|(?P<comment>//[^\n]*+|\#(?:[ \t!][^\n]*+|(?=\s)|\Z)|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z))")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?(?=[\s,}\]#]|/[/*]|\Z)", re.ASCII)
_BARE = re.compile(r'(?:(?!\s(?://|/\*|\#))[^,{}\[\]"\n])++')
_MEMBERS = re.compile(r"[^:]*+:[^,}\]]*+[,}\]]")
_COLON = re.compile(r"\s*+:")
_GOES_ON = re.compile(r"\s*+[,:\]}]")
_BARE_KEY = re.compile(r"[\w$][\w$.-]*+")
_LITERAL = re.compile(r"(?:true|false|null)(?![\w$.-])")
_LITERALS = MappingProxyType({"true": True, "false": False, "null": None})
_RESPELLED = MappingProxyType({"True": True, "TRUE": True, "False": False, "FALSE": False, "None": None, "NULL": None})
_NO_JSON = frozenset({"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "undefined"})


class _Reader:
    """A reader of one text; `at` is the current index, `path` the current place in the value."""

    __slots__ = ("_at", "_closing", "_done", "_path", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._path: list[str | int] = []
        self._closing: list[str] = []
        self._done: dict[RepairAction, tuple[str, int]] = {}

    def whole(self) -> RepairedValue:
        """Return the value that the text begins with."""
        value = self._value()
        if value is _NOTHING:
            raise StrictJsonError("there is nothing to repair")
        if RepairAction.BRACKETS_CLOSED in self._done and _GOES_ON.match(self._text, self._at):
            raise StrictJsonError("its brackets do not match")
        dumps(value, self._text)
        return RepairedValue(value, tuple(Repair(action, *done) for action, done in self._done.items()))

    def _value(self) -> Any:
        """Return the next value, `_NOTHING` if the text ends before a complete one."""
        first = self._peek()
        if first == "{":
            return unique_object(self._members())
        if first == "[":
            return self._elements()
        if first in QUOTES:
            return self._string(StringPosition.MEMBER if self._closing[-1:] == ["}"] else StringPosition.ELEMENT).text
        return self._bare() if first else _NOTHING

    def _elements(self) -> list[Any]:
        elements: list[Any] = []
        for _ in self._places("]"):
            self._path.append(len(elements))
            element = self._value()
            self._path.pop()
            if element is not _NOTHING:
                elements.append(element)
        return elements

    def _members(self) -> list[tuple[str, Any]]:
        members: list[tuple[str, Any]] = []
        for _ in self._places("}"):
            key = self._key()
            if key is None or not self._peek():
                continue
            if self._text[self._at] != ":":
                raise StrictJsonError("a key has no value")
            self._at += 1
            if self._peek() in {",", "}", "]"}:
                raise StrictJsonError("a key has no value")
            self._path.append(key)
            value = self._value()
            self._path.pop()
            if value is not _NOTHING:
                members.append((key, value))
        return members

    def _key(self) -> str | None:
        """Return a member's key; None if the text ends within it."""
        if self._peek() in QUOTES:
            key = self._string(StringPosition.KEY)
            if not key.is_closed and _MEMBERS.match(key.text):
                raise StrictJsonError("a key has no end")
            return key.text if key.is_closed else None
        bare = _BARE_KEY.match(self._text, self._at)
        if bare is None:
            raise StrictJsonError("an object holds what is no member")
        self._note(RepairAction.QUOTES_ADDED)
        self._at = bare.end()
        return bare[0]

    def _places(self, closing: str) -> Iterator[None]:
        """Yield before each element or member of the container that begins here; handle commas and brackets."""
        self._at += 1
        self._closing.append(closing)
        if len(self._closing) > DEFAULT_MAX_DEPTH:
            raise StrictJsonError(f"it is nested deeper than {DEFAULT_MAX_DEPTH}")
        after_comma, filled = True, False
        while (first := self._peek()) not in {"", "}", "]"}:
            if first == ",":
                if after_comma:
                    self._note(RepairAction.COMMAS_REMOVED)
                self._at += 1
            else:
                if not after_comma:
                    self._note(RepairAction.COMMAS_ADDED)
                yield
                filled = True
            after_comma = first == ","
        self._closing.pop()
        self._close(first, closing, after_comma=after_comma and filled)

    def _close(self, found: str, closing: str, *, after_comma: bool) -> None:
        if not found:
            self._note(RepairAction.TRUNCATION_CLOSED)
            return
        if after_comma:
            self._note(RepairAction.COMMAS_REMOVED)
        if found != closing:
            self._note(RepairAction.BRACKETS_CLOSED)
        if found == closing or found not in self._closing:
            self._at += 1

    def _peek(self) -> str:
        """Return the next character that is neither blank nor in a comment; an empty text at the end."""
        while skipped := _SKIP.match(self._text, self._at):
            if skipped["comment"]:
                self._note(RepairAction.COMMENTS_REMOVED)
            self._at = skipped.end()
        return self._text[self._at : self._at + 1]

    def _bare(self) -> Any:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            return raw_decode(number[0])[0]
        literal = _LITERAL.match(self._text, self._at)
        if literal is not None:
            self._at = literal.end()
            return _LITERALS[literal[0]]
        bare = _BARE.match(self._text, self._at)
        if bare is None or bare[0].startswith(":"):
            raise StrictJsonError("there is something that is no value")
        self._at = bare.end()
        word = bare[0].strip()
        if word in _NO_JSON:
            raise StrictJsonError(f"{word} is not JSON")
        if word in _RESPELLED:
            self._note(RepairAction.LITERALS_RESPELLED)
            return _RESPELLED[word]
        if self._at == len(self._text):
            return _NOTHING
        self._note(RepairAction.QUOTES_ADDED)
        if self._text[self._at] == '"':
            self._at += 1
        return word

    def _string(self, within: StringPosition) -> LenientString:
        if self._text[self._at] != '"':
            self._note(RepairAction.QUOTES_REPLACED)
        string = read_string(self._text, self._at, within)
        if within is StringPosition.ELEMENT and _COLON.match(self._text, string.end):
            raise StrictJsonError("a member stands in a list")
        if string.has_fixed_escapes:
            self._note(RepairAction.ESCAPES_FIXED)
        if string.lacks_closing_quote:
            self._note(RepairAction.QUOTES_ADDED)
        if not string.is_closed:
            self._note(RepairAction.TRUNCATION_CLOSED)
        self._at = string.end
        return string

    def _note(self, action: RepairAction) -> None:
        path, times = self._done.get(action) or (format_path(self._path), 0)
        self._done[action] = (path, times + 1)
