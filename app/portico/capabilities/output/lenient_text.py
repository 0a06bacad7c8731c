"""Reading of strings that are almost JSON: other quotes, quotes within, a missing quote, wrong escapes.

A quote ends its string if the text behind it could follow a string there, for example a comma and the next member. Any
other quote should have been escaped. A string that runs into the next member's key lacks its closing quote.
"""

import re
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from portico.domain.strict_json import StrictJsonError
from portico.domain.value import value

_OPEN = "\u201c\u201d\u2018\u2019"
"""Typographic quotes."""
QUOTES = MappingProxyType(
    {
        '"': '"',
        "'": "'",
        _OPEN[0]: _OPEN[:2] + '"',
        _OPEN[1]: _OPEN[1] + '"',
        _OPEN[2]: _OPEN[2:] + "'",
        _OPEN[3]: _OPEN[3] + "'",
    }
)
"""The quotes that may end a string, by the quote that begins it."""
_UP_TO = MappingProxyType({opening: re.compile(rf"[^\\{ends}]*+") for opening, ends in QUOTES.items()})
_ESCAPE = re.compile(r"""\\(?:(?P<plain>["\\/bfnrt])|u(?P<code>[0-9a-fA-F]{4})|(?P<cut>u?[0-9a-fA-F]{0,3}\Z))""")
_CONTROL_ESCAPES = MappingProxyType({"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"})
_CONTROL = re.compile(r"[\x00-\x1f]")
_COLON = re.compile(r"\s*+:")
_CUT_PAIR = re.compile(r"[\ud800-\udbff]\Z")

_KEY_END = r"(?:\s*+:|\s*+\Z)"
_QUOTED_KEY = (
    rf"""(?:"(?:[^"\\\n]++|\\.)*+(?:"{_KEY_END}|\\?\Z)|'(?:[^'\\\n]++|\\.)*+(?:'{_KEY_END}|\\?\Z)"""
    rf"""|[\u201c\u201d][^\u201c\u201d\n]*+(?:[\u201c\u201d]{_KEY_END}|\Z))"""
)
_BARE_KEY = rf"[\w$][\w$.-]*+{_KEY_END}"
_OVER = r"[}\]]|\Z|//|/\*|\#(?:[\s!]|\Z)"
_ELEMENT = r"""(?:["'\u201c\u2018{\[\d-]|(?:true|false|null)\b|[tfn][a-z]{0,3}+\Z)"""


class StringPosition(Enum):
    """The position of a string, which decides what may follow it."""

    KEY = re.compile("")
    MEMBER = re.compile(rf"\s*+(?:{_OVER}|,\s*+(?:{_OVER}|{_QUOTED_KEY}|{_BARE_KEY})|{_QUOTED_KEY})|\s++{_BARE_KEY}")
    ELEMENT = re.compile(rf"\s*+(?:{_OVER}|:|,\s*+(?:{_OVER}|{_ELEMENT}))|\s++{_ELEMENT}")


@value
class LenientString:
    """A string as it was meant, the index behind it, and its defects."""

    text: str
    end: int
    is_closed: bool = True
    has_fixed_escapes: bool = False
    """True if escapes were wrong or missing, also those of quotes within the string."""
    lacks_closing_quote: bool = False
    """True if the closing quote is missing and the next member follows."""


def read_string(text: str, at: int, within: StringPosition) -> LenientString:
    """Return the string whose opening quote is at that index.

    Raises: StrictJsonError for lone surrogates, and for a key within a list.
    """
    up_to = _UP_TO[text[at]]
    parts: list[str] = []
    has_defects, next_key = False, None
    at += 1
    while True:
        plain = up_to.match(text, at)
        parts.append(plain[0] if plain else "")
        at += len(parts[-1])
        before, has_defects = has_defects, has_defects or _has_control(parts[-1])
        if at == len(text):
            return LenientString(_joined(parts, cut=True), at, is_closed=False, has_fixed_escapes=has_defects)
        if text[at] == "\\":
            part, length = _escaped(text, at)
            has_defects = has_defects or not length
        elif within.value.match(text, at + 1):
            return LenientString(_joined(parts), at + 1, has_fixed_escapes=has_defects)
        elif next_key is not None and _COLON.match(text, at + 1):
            return _run_on(text, parts, next_key)
        else:
            next_key = _mark(parts, at, has_defects=before)
            part, length, has_defects = text[at], 1, True
        parts.append(part)
        at += length or 1


class _Mark(NamedTuple):
    """A quote that may open the next key: the number of parts before it, its index, and if defects came before it."""

    parts: int
    at: int
    has_defects: bool


def _run_on(text: str, parts: list[str], mark: _Mark) -> LenientString:
    """Return the string before the next member's key, up to the comma between them if there is one."""
    text_before = _joined(parts[: mark.parts]).rstrip()
    end = mark.at
    while text[end - 1].isspace():
        end -= 1
    if text_before.endswith(","):
        text_before, end = text_before[:-1], end - 1
    return LenientString(text_before, end, has_fixed_escapes=mark.has_defects, lacks_closing_quote=True)


def _escaped(text: str, at: int) -> tuple[str, int]:
    """Return the character that an escape means and the escape's length; 0 for a backslash that stands for itself."""
    escape = _ESCAPE.match(text, at)
    if escape is None:
        return ("", 0) if text[at + 1] == "'" else ("\\", 0)
    if escape["code"]:
        return chr(int(escape["code"], 16)), 6
    if escape["plain"]:
        return _CONTROL_ESCAPES.get(escape["plain"], escape["plain"]), 2
    return "", len(escape[0])


def _joined(parts: list[str], *, cut: bool = False) -> str:
    """Return the parts as one string; halves of a character that were escaped one by one are joined."""
    joined = "".join(parts)
    if cut:
        joined = _CUT_PAIR.sub("", joined)
    try:
        return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise StrictJsonError("a string is not Unicode text") from None


def _mark(parts: list[str], at: int, *, has_defects: bool) -> _Mark | None:
    """Return the mark of a quote behind these parts if it may open the next member's key."""
    text_before = parts[-1].rstrip()
    if text_before.endswith(",") or "\n" in parts[-1][len(text_before) :]:
        return _Mark(len(parts), at, has_defects or _has_control(text_before))
    return None


def _has_control(part: str) -> bool:
    return _CONTROL.search(part) is not None
