"""Parser of GBNF as llama.cpp reads it: returns symbols or raises an error with line and column.

    grammar    = lines { rule lines }
    rule       = name "::=" lines choice ( line end | end of the text )
    choice     = sequence { "|" lines sequence }
    sequence   = { element { repetition } }
    element    = literal | class | "." | name | "(" lines choice ")"
    repetition = "*" | "+" | "?" | "{" m "}" | "{" m "," "}" | "{" m "," n "}"

Blanks and comments may come between all of these, line ends only where the grammar says `lines` and in parentheses.

The engine decides in the end, so this parser follows its reader [llama.cpp, src/llama-grammar.cpp]: a name has letters,
digits and hyphens but no underscore; the last of several definitions of a name counts; `""`, `[]`, `[^]` and `x{0}` are
the empty text and cannot be repeated; `[z-a]` matches nothing; a line may end within a literal. Additionally refused is
everything that crashes or starves an engine, and the tokens of a vocabulary (`<think>`, `<[1000]>`), since a text has
characters only.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import ascii_letters, digits
from types import MappingProxyType

from portico.capabilities.output.grammar.symbols import (
    ANY,
    LINE_END,
    Alternation,
    CharacterSet,
    GrammarError,
    GrammarRules,
    GrammarSymbol,
    Repetition,
    character_bounds,
    grammar_error_at,
)

MAX_GRAMMAR_BYTES = 65_536
MAX_NESTING = 64
"""Of parentheses, and of repetitions within repetitions."""
MAX_REPETITIONS = 1_000
MAX_RULES = 1_000
MAX_GROUPS = 5_000
MAX_EXPANSION = 2_000
"""The greatest product of nested repetitions: llama.cpp accepts no more."""
MAX_COPIES = 200_000
"""Copies of characters, classes, names and groups in all repetitions together: llama.cpp writes them out."""


def parse_grammar(text: str) -> GrammarRules:
    """Parse the text of a grammar. Raises: GrammarError."""
    invalid = _NO_CHARACTER.search(text)
    if invalid:
        raise grammar_error_at("this character is not allowed in a grammar", text, invalid.start())
    if len(text) > MAX_GRAMMAR_BYTES or len(text.encode()) > MAX_GRAMMAR_BYTES:
        prefix = text.encode()[:MAX_GRAMMAR_BYTES].decode(errors="ignore")
        raise grammar_error_at(f"the grammar is longer than {MAX_GRAMMAR_BYTES} bytes", text, len(prefix))
    return _Parser(text).rules()


_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_BLANKS = re.compile(r"(?:[ \t]+|#[^\r\n\0]*)*")
_LINES = re.compile(r"(?:[ \t\r\n]+|#[^\r\n\0]*)*")
_NAME = re.compile(r"[A-Za-z0-9-]+")
_NUMBER = re.compile(r"(?=[0-9])0*([0-9]*)")
_PLAIN = re.compile(r'[^"\\\0]+')
_ESCAPES = MappingProxyType({"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"})
_HEX = MappingProxyType(
    {kind: re.compile(rf"[0-9A-Fa-f]{{{digits}}}") for kind, digits in zip("xuU", (2, 4, 8), strict=True)}
)
_SIGNS: Mapping[str, tuple[int, int | None]] = MappingProxyType({"*": (0, None), "+": (1, None), "?": (0, 1)})
_END = "\0"
"""Sentinel behind the text, so that there is always a current character."""


@dataclass(slots=True)
class _Sequence:
    """The part of one alternative that has been read."""

    blanks: re.Pattern[str]
    symbols: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    start: int = 0
    """Index at which the last element begins: a literal is several symbols, or none if it is empty."""
    weight: int = 1
    """Number of rules that llama.cpp makes of the last element."""
    stacked: int = 0
    """Number of stacked repetitions of the last element."""
    max_stacked: int = 0
    """The greatest number of stacked repetitions of any element."""

    def begin(self, weight: int = 1, stacked: int = 0) -> None:
        self.start = len(self.symbols)
        self.weight = weight
        self.stacked = stacked
        self.max_stacked = max(self.max_stacked, stacked)

    def add(self, symbol: int, place: int) -> None:
        self.symbols.append(symbol)
        self.places.append(place)


class _SymbolTable:
    """The symbols of a grammar, by number; equal character sets share one symbol."""

    def __init__(self) -> None:
        self.symbols: list[GrammarSymbol | None] = []
        """None for a rule that is used before its definition."""
        self.names: dict[str, int] = {}
        self.offsets: dict[int, int] = {}
        """Offset at which each name is defined, or else first used."""
        self._characters: dict[tuple[int, ...], int] = {}
        self._empty: int | None = None

    def add(self, symbol: GrammarSymbol | None) -> int:
        """Add a symbol and return its number."""
        self.symbols.append(symbol)
        return len(self.symbols) - 1

    def add_name(self, name: str, offset: int) -> int:
        """Add a rule without a definition and return its number."""
        symbol = self.names[name] = self.add(None)
        self.offsets[symbol] = offset
        return symbol

    def characters(self, bounds: tuple[int, ...]) -> int:
        """Return the symbol of these characters."""
        symbol = self._characters.get(bounds)
        if symbol is None:
            symbol = self._characters[bounds] = self.add(CharacterSet(bounds))
        return symbol

    def empty(self) -> int:
        """Return the only symbol of `()`."""
        if self._empty is None:
            self._empty = self.add(Alternation(((),), ((),)))
        return self._empty


class _Parser:
    """Recursive-descent parser; each rule of the grammar above is a method."""

    def __init__(self, text: str) -> None:
        self._text = text + _END
        self._at = 0
        self._table = _SymbolTable()
        self._defined = 0
        self._groups = 0
        self._depth = 0
        self._max_stacked = 0
        """Number of nested repetitions in the alternation that was read last."""
        self._llama_rules = 0
        """Number of rules that llama.cpp has so far: it makes some of each name, group and repetition."""
        self._copies = 0

    def rules(self) -> GrammarRules:
        self._skip(_LINES)
        while self._text[self._at] != _END:
            self._rule()
            self._skip(_LINES)
        if "root" not in self._table.names:
            raise self._error("there is no rule of the name root, which is the start of the grammar", 0)
        for symbol in self._table.names.values():
            if self._table.symbols[symbol] is None:
                raise self._error("there is no rule of this name", self._table.offsets[symbol])
        root = self._table.names["root"]
        symbols = tuple(symbol for symbol in self._table.symbols if symbol is not None)
        return GrammarRules(
            self._text[:-1], symbols, frozenset(self._table.names.values()), root, self._table.offsets[root]
        )

    def _rule(self) -> None:
        begin = self._at
        symbol = self._named("a rule's name was expected here; it has letters, digits and hyphens")
        if self._defined == MAX_RULES:
            raise self._error(f"there are more than {MAX_RULES} rules", begin)
        self._defined += 1
        self._table.offsets[symbol] = begin
        self._skip(_BLANKS)
        if not self._text.startswith("::=", self._at):
            raise self._error("::= was expected here, behind a rule's name of letters, digits and hyphens")
        self._at += len("::=")
        self._skip(_LINES)
        self._table.symbols[symbol] = self._choice(_BLANKS)
        ended = LINE_END.match(self._text, self._at)
        if ended:
            self._at = ended.end()
        elif self._text[self._at] != _END:
            raise self._error("unexpected here; the rule has to go on, or its line to end")

    def _choice(self, blanks: re.Pattern[str]) -> Alternation:
        alternatives, places = [], []
        max_stacked = 0
        while True:
            sequence = self._sequence(blanks)
            max_stacked = max(max_stacked, sequence.max_stacked)
            alternatives.append(tuple(sequence.symbols))
            places.append(tuple(sequence.places))
            if self._text[self._at] != "|":
                self._max_stacked = max_stacked
                return Alternation(tuple(alternatives), tuple(places))
            self._at += 1
            self._skip(_LINES)

    def _sequence(self, blanks: re.Pattern[str]) -> _Sequence:
        sequence = _Sequence(blanks)
        while read := _READERS.get(self._text[self._at]):
            read(self, sequence)
            self._skip(blanks)
        return sequence

    def _literal(self, sequence: _Sequence) -> None:
        begin = self._at
        sequence.begin()
        self._at += 1
        while self._text[self._at] != '"':
            plain = _PLAIN.match(self._text, self._at)
            if plain:
                self._at = plain.end()
                sequence.symbols += [self._table.characters((code, code + 1)) for code in map(ord, plain.group())]
            elif self._text[self._at] == _END:
                raise self._error("this literal is not closed", begin)
            else:
                code = self._code()
                sequence.symbols.append(self._table.characters(character_bounds([(code, code)], negated=False)))
        self._at += 1
        sequence.places += [begin] * (len(sequence.symbols) - len(sequence.places))

    def _class(self, sequence: _Sequence) -> None:
        begin = self._at
        self._at += 1
        negated = self._text[self._at] == "^"
        self._at += negated
        ranges = []
        while self._text[self._at] != "]":
            low = high = self._code()
            if self._text[self._at] == "-" and self._text[self._at + 1] != "]":
                self._at += 1
                high = self._code()
            if self._text[self._at] == _END:
                raise self._error("this class is not closed", begin)
            ranges.append((low, high))
        self._at += 1
        sequence.begin()
        if ranges:
            sequence.add(self._table.characters(character_bounds(ranges, negated=negated)), begin)

    def _code(self) -> int:
        """Read a character or escape and return its code point."""
        character = self._text[self._at]
        if character != "\\":
            self._at += character != _END
            return ord(character)
        kind = self._text[self._at + 1]
        if kind in _ESCAPES:
            self._at += 2
            return ord(_ESCAPES[kind])
        if kind not in _HEX:
            raise self._error(r"there is no such escape; there are \n \r \t \\ \" \[ \] \- \x \u \U")
        number = _HEX[kind].match(self._text, self._at + 2)
        if number is None:
            raise self._error(r"hexadecimal digits are missing: two behind \x, four behind \u, eight behind \U")
        self._at = number.end()
        return int(number.group(), 16)

    def _any(self, sequence: _Sequence) -> None:
        sequence.begin()
        sequence.add(self._table.characters(ANY), self._at)
        self._at += 1

    def _reference(self, sequence: _Sequence) -> None:
        begin = self._at
        sequence.begin()
        sequence.add(self._named("a name was expected here"), begin)

    def _group(self, sequence: _Sequence) -> None:
        begin = self._at
        if self._depth == MAX_NESTING:
            raise self._error(f"parentheses are nested more than {MAX_NESTING} deep")
        if self._groups == MAX_GROUPS:
            raise self._error(f"there are more than {MAX_GROUPS} groups")
        self._groups += 1
        llama_rules = self._llama_rules
        self._llama_rules += 1
        self._depth += 1
        self._at += 1
        self._skip(_LINES)
        choice = self._choice(_LINES)
        if self._text[self._at] != ")":
            opened = grammar_error_at("", self._text, begin)
            raise self._error(f"the group opened at line {opened.line}, column {opened.column} cannot go on like this")
        self._at += 1
        self._depth -= 1
        sequence.begin(self._llama_rules - llama_rules, self._max_stacked)
        if len(choice.alternatives) == 1 and choice.alternatives[0]:
            sequence.symbols += choice.alternatives[0]
            sequence.places += choice.offsets[0]
        else:
            sequence.add(self._table.add(choice) if any(choice.alternatives) else self._table.empty(), begin)

    def _token(self, sequence: _Sequence) -> None:
        raise self._error("tokens of a vocabulary are not allowed, only characters")

    def _sign(self, sequence: _Sequence) -> None:
        minimum, maximum = _SIGNS[self._text[self._at]]
        self._repeat(sequence, minimum, maximum, self._at)
        self._at += 1

    def _braces(self, sequence: _Sequence) -> None:
        mark = self._at
        self._at += 1
        self._skip(sequence.blanks)
        minimum = self._number()
        self._skip(sequence.blanks)
        maximum: int | None = minimum
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(sequence.blanks)
            maximum = None if self._text[self._at] == "}" else self._number()
            self._skip(sequence.blanks)
        if self._text[self._at] != "}":
            raise self._error("} was expected here")
        if maximum is not None and maximum < minimum:
            raise self._error("the maximum number of repetitions is less than the minimum", mark)
        self._repeat(sequence, minimum, maximum, mark)
        self._at += 1

    def _number(self) -> int:
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise self._error("a number was expected here")
        significant = number.group(1)
        if len(significant) > len(str(MAX_REPETITIONS)) or int(significant or 0) > MAX_REPETITIONS:
            raise self._error(f"more than {MAX_REPETITIONS} repetitions are asked for")
        self._at = number.end()
        return int(significant or 0)

    def _repeat(self, sequence: _Sequence, minimum: int, maximum: int | None, mark: int) -> None:
        if sequence.start == len(sequence.symbols):
            raise self._error("there is nothing here to repeat", mark)
        sequence.stacked += 1
        sequence.max_stacked = max(sequence.max_stacked, sequence.stacked)
        if sequence.stacked > MAX_NESTING:
            raise self._error(f"repetitions are nested more than {MAX_NESTING} deep", mark)
        sequence.weight *= maximum or minimum or 1
        if sequence.weight > MAX_EXPANSION:
            raise self._error(f"nested repetitions multiply to more than {MAX_EXPANSION}", mark)
        self._copies += (maximum or minimum or 1) * (len(sequence.symbols) - sequence.start)
        if self._copies > MAX_COPIES:
            raise self._error(f"all repetitions up to here ask for more than {MAX_COPIES} copies", mark)
        self._llama_rules += 1 if maximum is None else maximum - minimum
        place = sequence.places[sequence.start]
        item = self._one(sequence)
        if maximum != 0:
            sequence.add(self._table.add(Repetition(item, minimum, maximum, place, mark)), place)

    def _one(self, sequence: _Sequence) -> int:
        """Remove the last element from the sequence and return it as one symbol."""
        symbols, places = tuple(sequence.symbols[sequence.start :]), tuple(sequence.places[sequence.start :])
        del sequence.symbols[sequence.start :], sequence.places[sequence.start :]
        return symbols[0] if len(symbols) == 1 else self._table.add(Alternation((symbols,), (places,)))

    def _named(self, expected: str) -> int:
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise self._error(expected)
        symbol = self._table.names.get(name.group())
        if symbol is None:
            symbol = self._table.add_name(name.group(), self._at)
            self._llama_rules += 1
        self._at = name.end()
        return symbol

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()

    def _error(self, message: str, at: int | None = None) -> GrammarError:
        return grammar_error_at(message, self._text, self._at if at is None else at)


_READERS: Mapping[str, Callable[[_Parser, _Sequence], None]] = MappingProxyType(
    {
        '"': _Parser._literal,
        "[": _Parser._class,
        ".": _Parser._any,
        "(": _Parser._group,
        "<": _Parser._token,
        "!": _Parser._token,
        "{": _Parser._braces,
        **dict.fromkeys(_SIGNS, _Parser._sign),
        **dict.fromkeys(ascii_letters + digits + "-", _Parser._reference),
    }
)
"""Methods that read an element or a repetition, by its first character; other characters end a sequence."""
