"""The cost of searching for a pattern, for each character of a text, in evaluations of about 10 ns.

The engine searches in linear time [regex, of Rust]. As long as a text leads it to few different combinations of places
in the pattern, it remembers them, and a character takes 2 ns. A text can keep leading it to new ones: then it follows
all places that it may be at, each of which takes up to 25 ns. So the cost depends on the number of places of the
pattern that the same number of characters can lead to: all of them if a match may begin anywhere, `.{1,255}`, but one
in `^.{1,255}$`.

A pattern is read only as far as that needs; the size in the engine's memory decides for one that is not understood.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from math import inf
from types import MappingProxyType
from typing import Final

from app.capabilities.output.schema.validators import pattern_bytes

_PLACE_COSTS: Final = 2.5
_WORD_COSTS: Final = 16
"""Word boundaries next to characters beyond ASCII are never remembered."""
_BYTES_OF_A_PLACE: Final = 64
"""The least memory of a place in the engine."""
_MAX_VISITS: Final = 2_048
"""Most places and repetitions that are visited."""
_MAX_NESTING: Final = 50
_GROUP = re.compile(r"\?:|\?P?<[A-Za-z_]\w*>|(?!\?)")
_TIMES = re.compile(r"([*+?])|\{(\d{1,6})(?:(,)(\d{0,6}))?\}")
_NO_TIMES: Final = MappingProxyType({"*": (0, None), "+": (1, None), "?": (0, 1)})
_CLOSE = re.compile(r"\)")
_CLASS = re.compile(r"\[\^?(?!\])(?:[^\]\[\\&]|\\.|&(?!&))*\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[pP](?:\{[^}]*\}|.)|[ux]\{[^}]*\}|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|c[A-Za-z]|.)", re.DOTALL)
_BETWEEN: Final = "bBAzZ"
"""Escapes that match between characters."""
_WORD_END = re.compile(r"\\[bB]")

Span = tuple[float, float]
"""The fewest and the most characters that can come before a place."""


@lru_cache(maxsize=256)
def pattern_cost(pattern: str) -> int:
    """Return the evaluations that searching one character for the pattern can take."""
    places = _most_places(pattern)
    if places is None:
        places = (pattern_bytes(pattern) or 0) // _BYTES_OF_A_PLACE
    words = len(_WORD_END.findall(pattern))
    return 1 + _WORD_COSTS * words + int(_PLACE_COSTS * places) * (2 if words else 1)


def _most_places(pattern: str) -> int | None:
    """Return the most places that the same number of characters can lead to; None if that cannot be found out."""
    reader, spans = _Reader(pattern), _Spans()
    try:
        part = reader.whole()
        part(spans, (0, 0) if reader.anchored else (0, inf))
    except _UnknownError:
        return None
    ends = sorted([(first, -1) for first, _ in spans.found] + [(last, 1) for _, last in spans.found])
    return max(accumulate((-end for _, end in ends), initial=0))


class _UnknownError(ValueError):
    """The pattern is not understood, or too large to be analysed."""


class _Spans:
    """The spans of the places of a pattern."""

    def __init__(self) -> None:
        self.found: list[Span] = []
        self._visits = 0

    def visit(self) -> None:
        """Count a visit. Raises: _UnknownError if there are too many."""
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise _UnknownError


Part = Callable[[_Spans, Span], Span]
"""A part of a pattern: called with the span at which it begins, it adds its places and returns the span behind it."""


def _one(spans: _Spans, begins: Span) -> Span:
    spans.visit()
    spans.found.append(begins)
    return begins[0] + 1, begins[1] + 1


def _none(_spans: _Spans, begins: Span) -> Span:
    return begins


def _sequence(parts: list[Part]) -> Part:
    def add(spans: _Spans, begins: Span) -> Span:
        for part in parts:
            begins = part(spans, begins)
        return begins

    return add


def _either(ways: list[Part]) -> Part:
    def add(spans: _Spans, begins: Span) -> Span:
        ends = [way(spans, begins) for way in ways]
        return min(first for first, _ in ends), max(last for _, last in ends)

    return add


def _repeated(part: Part, least: int, most: int | None) -> Part:
    def add(spans: _Spans, begins: Span) -> Span:
        first, ends = begins[0], begins
        for count in range(1, 1 + (max(least, 1) if most is None else most)):
            spans.visit()
            endless = most is None and count >= least
            ends = part(spans, (ends[0], inf) if endless else ends)
            if count == least:
                first = ends[0]
        return first, ends[1]

    return add


class _Reader:
    """A reader of a pattern, from its first character to its last.

    `anchored` is True if the pattern matches at the beginning of a text only.
    """

    def __init__(self, pattern: str) -> None:
        self.anchored = pattern.startswith("^")
        self._pattern = pattern
        self._at = 0

    def whole(self) -> Part:
        part = self._ways(0)
        if self._at < len(self._pattern):
            raise _UnknownError
        return part

    def _ways(self, nesting: int) -> Part:
        if nesting > _MAX_NESTING:
            raise _UnknownError
        ways: list[Part] = []
        parts: list[Part] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._pattern[self._at] == "|":
                self._at += 1
                ways.append(_sequence(parts))
                parts = []
                self.anchored = self.anchored and nesting > 0
            else:
                parts.append(self._times(self._atom(nesting)))
        return _either([*ways, _sequence(parts)]) if ways else _sequence(parts)

    def _atom(self, nesting: int) -> Part:
        match self._pattern[self._at]:
            case "(":
                self._at += 1
                self._found(_GROUP)
                inner = self._ways(nesting + 1)
                self._found(_CLOSE)
                return inner
            case "[":
                self._found(_CLASS)
                return _one
            case "\\":
                return _none if self._found(_ESCAPE)[1] in _BETWEEN else _one
            case character:
                self._at += 1
                return _none if character in "^$" else _one

    def _times(self, part: Part) -> Part:
        while (found := _TIMES.match(self._pattern, self._at)) is not None:
            if part is _none:
                raise _UnknownError
            self._at = found.end() + self._pattern.startswith("?", found.end())
            sign, least, comma, most = found.groups()
            few, many = _NO_TIMES[sign] if sign else (int(least), int(most) if most else None if comma else int(least))
            part = _repeated(part, few, many)
        return part

    def _found(self, what: re.Pattern[str]) -> str:
        found = what.match(self._pattern, self._at)
        if found is None:
            raise _UnknownError
        self._at = found.end()
        return found[0]
