"""Compiled GBNF grammars: validated as llama.cpp would read them, and matched exactly.

A grammar is refused, with line and column, before any engine sees it, since a bad one crashes or starves an engine's
process. Refused are syntax errors and limits (`parser`) and left recursion: direct, through other rules, behind an
element that may be empty, or in an unbounded repetition of an element that may be empty. The last is `(x?)*`: llama.cpp
writes it as `many ::= x? many |`, which enters itself first; old versions of it never end there, current ones refuse
some of it. A grammar that no text follows is refused too, and for an answer one that only the empty text follows, since
no answer could ever be valid.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from string import ascii_lowercase, printable
from typing import NamedTuple

from portico.capabilities.output.grammar.parser import parse_grammar
from portico.capabilities.output.grammar.recogniser import GrammarPosition, Recogniser, TooAmbiguousError
from portico.capabilities.output.grammar.symbols import (
    Alternation,
    CharacterSet,
    GrammarError,
    GrammarRules,
    GrammarSymbol,
    Repetition,
    grammar_error_at,
)

MAX_SHORTEST = 65_536
"""Characters of the longest text that `Grammar.shortest` returns."""


class GrammarMatch(NamedTuple):
    """The result of a check: if the text follows the grammar, and how many of its first characters are viable.

    A position at the end of the text with `accepted` False means that the text is too short, not that it is wrong.
    """

    accepted: bool
    position: int


def is_grammar_text(text: str) -> bool:
    """Return True if a contract's `grammar` is the text of a grammar rather than the name of one."""
    return "::=" in text


_SMALL_CHARACTERS = 4_096
"""A longer grammar may hold a hundred thousand objects, which the garbage collector looks through."""


def cached_grammar(text: str) -> "Grammar":
    """Return the grammar of answers with that text, from the cache if it was compiled before.

    Raises: GrammarError, also if only the empty text follows it, which is no answer.
    """
    return _small(text) if len(text) <= _SMALL_CHARACTERS else _large(text)


@lru_cache(maxsize=32)
def _small(text: str) -> "Grammar":
    return _for_answers(text)


@lru_cache(maxsize=4)
def _large(text: str) -> "Grammar":
    return _for_answers(text)


def _for_answers(text: str) -> "Grammar":
    grammar = Grammar(text)
    grammar.require_characters()
    return grammar


class Grammar:
    """A valid grammar that is compiled once and checks any number of texts, in any number of threads.

    Raises: GrammarError (CONFIG_GRAMMAR_INVALID), with line and column.
    """

    __slots__ = ("_lengths", "_recogniser", "_rules")

    def __init__(self, text: str) -> None:
        self._rules = parse_grammar(text)
        symbols = self._rules.symbols
        self._lengths = _shortest_lengths(symbols)
        order = _callers_first(self._rules, self._lengths)
        for symbol in symbols:
            if isinstance(symbol, Repetition) and symbol.maximum is None and self._lengths[symbol.item] == 0:
                raise grammar_error_at(
                    "left recursion: what is repeated without end may be empty", text, symbol.repetition_offset
                )
        if self._lengths[self._rules.root] is None:
            raise self._error("no text can follow this rule: none of its alternatives comes to an end")
        self._recogniser = Recogniser(self._rules, self._lengths, order)

    def check(self, text: str) -> GrammarMatch:
        """Check if the whole text follows the grammar.

        Raises: GrammarError if the grammar gives the text more readings than can be followed.
        """
        try:
            return GrammarMatch(*self._recogniser.read(text))
        except TooAmbiguousError as cause:
            raise self._error("this rule gives a text too many readings to check it") from cause

    def require_characters(self) -> None:
        """Raise GrammarError if only the empty text follows the grammar."""
        if not _has_characters(self._rules, self._lengths):
            raise self._error("only the empty text follows this rule, which is no answer")

    def start(self) -> GrammarPosition:
        """Return the position before any character of a text that is still to be written.

        Raises: TooAmbiguousError.
        """
        return self._recogniser.start()

    def shortest(self) -> str:
        """Return the shortest text that follows the grammar; among several that of the first alternatives.

        Raises: GrammarError if it is longer than `MAX_SHORTEST`.
        """
        length = self._lengths[self._rules.root]
        if length is None or length > MAX_SHORTEST:
            raise self._error(f"each text that follows this rule is longer than {MAX_SHORTEST} characters")
        shortest = _Shortest(self._rules.symbols, self._lengths)
        return shortest.text(self._rules.root)

    def _error(self, message: str) -> GrammarError:
        return grammar_error_at(message, self._rules.text, self._rules.root_offset)


_MAX_LENGTH = 2**40
"""Greater lengths are not distinguished."""
_READABLE_FIRST = ascii_lowercase + printable


@dataclass(slots=True)
class _Sum:
    """The length of one path through a rule, as far as it is known."""

    rule: int
    total: int
    missing: int
    times: int = 1


def _shortest_lengths(symbols: Sequence[GrammarSymbol]) -> list[int | None]:
    """Return the length of each symbol's shortest text, None if it has none.

    Shorter texts are found first, so each result is final [Knuth's generalisation of Dijkstra's algorithm].
    """
    lengths = [1 if isinstance(symbol, CharacterSet) and symbol.bounds else None for symbol in symbols]
    waiting: dict[int, list[_Sum]] = {}
    found: list[tuple[int, int]] = []
    for rule, total, missing, times in _paths(symbols, lengths):
        path = _Sum(rule, total, len(missing), times)
        for symbol in missing:
            waiting.setdefault(symbol, []).append(path)
        if not missing:
            found.append((total, rule))
    heapify(found)
    while found:
        length, symbol = heappop(found)
        if lengths[symbol] is None:
            lengths[symbol] = length
            for path in waiting.get(symbol, ()):
                path.total = min(path.total + length * path.times, _MAX_LENGTH)
                path.missing -= 1
                if not path.missing:
                    heappush(found, (path.total, path.rule))
    return lengths


def _paths(
    symbols: Sequence[GrammarSymbol], lengths: Sequence[int | None]
) -> Iterator[tuple[int, int, list[int], int]]:
    """Yield each path through each rule: the rule, its characters, its other symbols, and how often they repeat."""
    for rule, symbol in enumerate(symbols):
        if isinstance(symbol, Alternation):
            for alternative in symbol.alternatives:
                missing = [part for part in alternative if lengths[part] is None]
                yield rule, len(alternative) - len(missing), missing, 1
        elif isinstance(symbol, Repetition):
            known = symbol.minimum == 0 or lengths[symbol.item] is not None
            yield rule, symbol.minimum if known else 0, [] if known else [symbol.item], symbol.minimum


def _has_characters(rules: GrammarRules, lengths: Sequence[int | None]) -> bool:
    """Return True if a text with characters follows the root, which some text follows."""
    seen, waiting = {rules.root}, [rules.root]
    while waiting:
        symbol = rules.symbols[waiting.pop()]
        if isinstance(symbol, CharacterSet):
            return True
        alternatives = symbol.alternatives if isinstance(symbol, Alternation) else [(symbol.item,)]
        possible = [parts for parts in alternatives if all(lengths[part] is not None for part in parts)]
        further = {part for parts in possible for part in parts} - seen
        seen |= further
        waiting += further
    return False


def _callers_first(rules: GrammarRules, lengths: Sequence[int | None]) -> list[int]:
    """Return a number for each symbol, lower than the numbers of all symbols it may enter before any character.

    Raises: GrammarError for left recursion, which leaves no such order.
    """
    order = [0] * len(rules.symbols)
    within = bytearray(len(rules.symbols))
    ended = 0
    for start in range(len(rules.symbols)):
        path = [] if order[start] else [(start, _corners(start, rules.symbols, lengths))]
        while path:
            rule, corners = path[-1]
            within[rule] = True
            for callee, offset in corners:
                if within[callee]:
                    raise grammar_error_at(
                        "left recursion: this leads back to itself before any character", rules.text, offset
                    )
                if not order[callee]:
                    path.append((callee, _corners(callee, rules.symbols, lengths)))
                    break
            else:
                ended -= 1
                order[rule] = ended
                within[rule] = False
                path.pop()
    return order


def _corners(rule: int, symbols: Sequence[GrammarSymbol], lengths: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Yield the rules that a rule may enter before any character, with their offsets."""
    symbol = symbols[rule]
    if isinstance(symbol, Repetition):
        if not isinstance(symbols[symbol.item], CharacterSet):
            yield symbol.item, symbol.offset
    elif isinstance(symbol, Alternation):
        for parts, places in zip(symbol.alternatives, symbol.offsets, strict=True):
            for part, offset in zip(parts, places, strict=True):
                if isinstance(symbols[part], CharacterSet):
                    break
                yield part, offset
                if lengths[part] != 0:
                    break


class _Shortest:
    """The writer of the shortest texts of symbols that have one."""

    def __init__(self, symbols: Sequence[GrammarSymbol], lengths: Sequence[int | None]) -> None:
        self._symbols = symbols
        self._lengths = lengths
        self._parts: dict[int, tuple[int, ...]] = {}

    def text(self, rule: int) -> str:
        written = []
        todo = [rule]
        while todo:
            part = todo.pop()
            symbol = self._symbols[part]
            if isinstance(symbol, CharacterSet):
                written.append(_most_readable(symbol.bounds))
            else:
                todo += reversed(self._expanded(part))
        return "".join(written)

    def _expanded(self, rule: int) -> tuple[int, ...]:
        """Return the parts of the rule, or of the only rule that it leads to, so that each step makes progress."""
        passed = []
        while rule not in self._parts:
            passed.append(rule)
            parts = self._chosen(self._symbols[rule], self._lengths[rule])
            if len(parts) == 1 and not isinstance(self._symbols[parts[0]], CharacterSet):
                rule = parts[0]
            else:
                self._parts[rule] = parts
        self._parts.update(dict.fromkeys(passed, self._parts[rule]))
        return self._parts[rule]

    def _chosen(self, symbol: GrammarSymbol, length: int | None) -> tuple[int, ...]:
        """Return the parts of the first shortest alternative, without empty ones."""
        if isinstance(symbol, Repetition):
            return (symbol.item,) * symbol.minimum if length else ()
        for alternative in symbol.alternatives if isinstance(symbol, Alternation) else ():
            lengths = [self._lengths[part] for part in alternative]
            if None not in lengths and sum(filter(None, lengths)) == length:
                return tuple(part for part in alternative if self._lengths[part])
        return ()


def _most_readable(bounds: tuple[int, ...]) -> str:
    """Return the character that is easiest to read, a letter if there is one."""
    plain = (character for character in _READABLE_FIRST if bisect_right(bounds, ord(character)) & 1)
    return next(plain, chr(bounds[0]))
