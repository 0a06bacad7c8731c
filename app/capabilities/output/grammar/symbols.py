"""What a grammar is made of once it is read, and the error that says where it cannot be."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from app.domain.failures import Code, ConfigurationFailure

_PAST = sys.maxunicode + 1
_HALVES = (0xD800, 0xDFFF)
"""The halves of surrogate pairs, which are no characters."""
LINE_END = re.compile(r"\r\n|\r|\n")


class GrammarError(ConfigurationFailure, ValueError):
    """A grammar that cannot be used. `line` and `column` count from 1, the column in characters."""

    def __init__(self, what: str, line: int, column: int) -> None:
        place = {"line": line, "column": column}
        super().__init__(Code.CONFIG_GRAMMAR_INVALID, f"line {line}, column {column}: {what}", place)
        self.line = line
        self.column = column


def grammar_error_at(what: str, text: str, offset: int) -> GrammarError:
    """The error that shows that offset of the text as line and column."""
    ends = [end.end() for end in LINE_END.finditer(text, 0, offset)]
    return GrammarError(what, len(ends) + 1, offset - (ends[-1] if ends else 0) + 1)


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """One character. `bounds` ascend: the first of a run of matching code points, the first after it, and so on."""

    bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of several sequences of symbols, by id; `places` are the offsets at which their elements stand."""

    alternatives: tuple[tuple[int, ...], ...]
    offsets: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A symbol, by id, from `least` to `most` times; without end when `most` is None."""

    item: int
    minimum: int
    maximum: int | None
    offset: int
    """The offset of the item."""
    repetition_offset: int
    """The offset of the repetition behind it."""


GrammarSymbol: TypeAlias = CharacterSet | Alternation | Repetition


@dataclass(frozen=True, slots=True)
class GrammarRules:
    """A grammar as read: all symbols, referred to by their index, those that have a name, and the one to begin with.

    A choice without a name is a group: it stands at one place only.
    """

    text: str
    symbols: tuple[GrammarSymbol, ...]
    named: frozenset[int]
    root: int
    root_offset: int


def character_bounds(ranges: Iterable[tuple[int, int]], *, negated: bool) -> tuple[int, ...]:
    """The bounds of the characters in the ranges, or of all others. A reversed range has none."""
    others = _others(ranges)
    return others if negated else _others((low, end - 1) for low, end in zip(others[::2], others[1::2], strict=True))


def _others(ranges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    bounds = [0]
    for low, high in sorted([*ranges, _HALVES]):
        if bounds[-1] < low <= high:
            bounds += (low, high + 1)
        else:
            bounds[-1] = max(bounds[-1], high + 1 if low <= high else 0)
    return (*bounds, _PAST) if bounds[-1] < _PAST else tuple(bounds[:-1])


ANY = character_bounds((), negated=True)
"""The bounds of all characters."""
