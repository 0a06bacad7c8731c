"""Symbols of a parsed grammar, and the error of an invalid one."""

import re
import sys
from collections.abc import Iterable
from typing import TypeAlias

from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.value import value

_PAST = sys.maxunicode + 1
_HALVES = (0xD800, 0xDFFF)
"""The halves of surrogate pairs, which are not characters."""
LINE_END = re.compile(r"\r\n|\r|\n")


class GrammarError(ConfigurationFailure, ValueError):
    """An invalid grammar. `line` and `column` count from 1, the column in characters."""

    def __init__(self, message: str, line: int, column: int) -> None:
        position = {"line": line, "column": column}
        super().__init__(Code.CONFIG_GRAMMAR_INVALID, f"line {line}, column {column}: {message}", position)
        self.line = line
        self.column = column


def grammar_error_at(message: str, text: str, offset: int) -> GrammarError:
    """Return an error that gives the offset in the text as line and column."""
    ends = [end.end() for end in LINE_END.finditer(text, 0, offset)]
    return GrammarError(message, len(ends) + 1, offset - (ends[-1] if ends else 0) + 1)


@value
class CharacterSet:
    """One character of a set. `bounds` ascend: the first code point of a run, the first after it, and so on."""

    bounds: tuple[int, ...]


@value
class Alternation:
    """One of several sequences of symbols, by id; `offsets` are those of their elements in the text."""

    alternatives: tuple[tuple[int, ...], ...]
    offsets: tuple[tuple[int, ...], ...]


@value
class Repetition:
    """A symbol, by id, from `minimum` to `maximum` times; unbounded if `maximum` is None."""

    item: int
    minimum: int
    maximum: int | None
    offset: int
    """The offset of the item."""
    repetition_offset: int
    """The offset of the repetition sign behind the item."""


GrammarSymbol: TypeAlias = CharacterSet | Alternation | Repetition


@value
class GrammarRules:
    """A parsed grammar: all symbols, referred to by their index, the named ones, and the root.

    An alternation without a name is a group: it occurs at one position only.
    """

    text: str
    symbols: tuple[GrammarSymbol, ...]
    named: frozenset[int]
    root: int
    root_offset: int


def character_bounds(ranges: Iterable[tuple[int, int]], *, negated: bool) -> tuple[int, ...]:
    """Return the bounds of the characters in the ranges, or of all others. A reversed range has none."""
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
