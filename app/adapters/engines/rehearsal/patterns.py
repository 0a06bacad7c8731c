"""Makes texts that a simple regular expression finds: characters, classes, groups, alternatives, repetitions.

Anchors and word boundaries are passed over, so whoever asks has to check what was made. Look-around, back-references
and flags are not understood.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase, digits
from types import MappingProxyType
from typing import Final

MOST_CHARACTERS: Final = 10_000
MOST_NESTING: Final = 50
_MOST_OF_A_RANGE: Final = 100
_PLAIN: Final = ascii_lowercase + digits + ascii_uppercase + " -_.,:;/@#+*=!?'\"()[]{}<>%&$~^|\\`\t\n"
_WORDS: Final = ascii_lowercase + digits + ascii_uppercase + "_"
_SPACES: Final = " \t\n"
_ESCAPES = MappingProxyType(
    {
        "d": digits,
        "w": _WORDS,
        "s": _SPACES,
        "D": "".join(each for each in _PLAIN if each not in digits),
        "W": "".join(each for each in _PLAIN if each not in _WORDS),
        "S": "".join(each for each in _PLAIN if each not in _SPACES),
        "t": "\t",
        "n": "\n",
        "r": "\r",
        "f": "\f",
        "v": "\v",
    }
)
_PROPERTIES = MappingProxyType(
    {
        "L": ascii_lowercase + ascii_uppercase,
        "Letter": ascii_lowercase + ascii_uppercase,
        "Alphabetic": ascii_lowercase + ascii_uppercase,
        "Lu": ascii_uppercase,
        "Ll": ascii_lowercase,
        "N": digits,
        "Nd": digits,
        "P": "-_.,:;",
        "Z": " ",
        "Zs": " ",
    }
)
_PROPERTY = re.compile(r"\{(\w+)\}|(\w)")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|[xu]\{([0-9A-Fa-f]{1,6})\}")
_TIMES = re.compile(r"([*+?])|\{(\d{1,6})(?:(,)(\d{0,6}))?\}")
_GROUP = re.compile(r"\?:|\?P?<[A-Za-z_]\w*>|(?!\?)")
_NO_TIMES: Final = MappingProxyType({"*": (0, None), "+": (1, None), "?": (0, 1)})


class UnmakeableError(ValueError):
    """The pattern is beyond what is understood here, or its texts are too long."""


@dataclass(frozen=True, slots=True)
class _Class:
    """One of these characters, the plainest first."""

    characters: str


@dataclass(frozen=True, slots=True)
class _Ways:
    """One of these sequences."""

    ways: tuple[tuple["_Part", ...], ...]


@dataclass(frozen=True, slots=True)
class _Repeated:
    part: "_Part"
    least: int
    most: int | None


_Part = _Class | _Ways | _Repeated


def texts(pattern: str, least: int, most: int | None, turn: Callable[[int], int]) -> Iterator[str]:
    """A few texts of the pattern with a length in those bounds, the shortest first.

    `turn` is asked at each choice, with the number of its options, for the one to take.

    Raises: UnmakeableError.
    """
    root = _Reader(pattern).whole()
    shortest = _written(root, 0, turn)
    missing = max(0, least - len(shortest))
    lengths = dict.fromkeys((0, *range(1, 9), missing, *(missing // parts + 1 for parts in range(2, 9))))
    for more in sorted(lengths):
        text = _written(root, more, lambda _: 0) if more else shortest
        if least <= len(text) and (most is None or len(text) <= most):
            yield text


def _written(root: _Part, more: int, turn: Callable[[int], int]) -> str:
    """The text in which everything is repeated `more` times than it has to be, as far as it may."""
    written: list[str] = []
    steps = 0
    todo: list[_Part] = [root]
    while todo:
        steps += 1
        part = todo.pop()
        match part:
            case _Class(characters):
                written.append(characters[turn(len(characters))])
            case _Ways(ways):
                todo += reversed(ways[turn(len(ways))])
            case _Repeated(inner, least, most):
                times = least + more if most is None else min(least + more, most)
                if times + len(todo) > MOST_CHARACTERS:
                    raise UnmakeableError("its texts are too long")
                todo += [inner] * times
        if steps > 4 * MOST_CHARACTERS:
            raise UnmakeableError("its texts are too long")
    return "".join(written)


class _Reader:
    """Reads a pattern once, from its first character to its last."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> _Part:
        read = self._ways(0)
        if self._at < len(self._pattern):
            raise UnmakeableError("a bracket is closed that was not opened")
        return read

    def _ways(self, nesting: int) -> _Part:
        if nesting > MOST_NESTING:
            raise UnmakeableError("it is nested too deeply")
        ways: list[tuple[_Part, ...]] = []
        parts: list[_Part] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            character = self._next()
            if character == "|":
                ways.append(tuple(parts))
                parts = []
            elif character not in "^$":
                parts += self._repeated(self._atom(character, nesting))
        return _Ways((*ways, tuple(parts)))

    def _atom(self, character: str, nesting: int) -> _Part:
        if character == "(":
            self._found(_GROUP)
            inner = self._ways(nesting + 1)
            self._next()
            return inner
        if character == "[":
            return _Class(self._class())
        if character == "\\":
            return self._escaped() or _Ways(((),))
        return _Class(_PLAIN.replace("\n", "") if character == "." else character)

    def _repeated(self, part: _Part) -> list[_Part]:
        found = _TIMES.match(self._pattern, self._at)
        if found is None:
            return [part]
        self._at = found.end()
        if self._pattern[self._at : self._at + 1] in {"?", "+"}:
            self._at += 1
        sign, least, comma, most = found.groups()
        if sign:
            return [_Repeated(part, *_NO_TIMES[sign])]
        return [_Repeated(part, int(least), (int(most) if most else None) if comma else int(least))]

    def _escaped(self) -> _Class | None:
        """The characters that an escape stands for; None for one that stands for a place."""
        kind = self._next()
        if kind in "bBAzZ":
            return None
        return _Class(self._escape(kind))

    def _escape(self, kind: str) -> str:
        if kind == "p":
            found = self._found(_PROPERTY)
            known = _PROPERTIES.get(found[1] or found[2])
            if known is None:
                raise UnmakeableError("it has a property of characters that is not known here")
            return known
        if kind in "xu":
            self._at -= 1
            found = self._found(_CODE)
            return chr(int(found[1] or found[2] or found[3], 16))
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind.isalnum():
            raise UnmakeableError("it has an escape that is not known here")
        return kind

    def _class(self) -> str:
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        found: list[str] = []
        while (character := self._next()) != "]" or not found:
            if character == "[" or self._pattern.startswith("&&", self._at):
                raise UnmakeableError("it has a class within a class")
            first = self._escape(self._next()) if character == "\\" else character
            ranged = self._pattern.startswith("-", self._at) and not self._pattern.startswith("-]", self._at)
            found.append(self._range(first) if ranged and len(first) == 1 else first)
        members = frozenset("".join(found))
        plain = "".join(each for each in _PLAIN if (each in members) != negated)
        if not plain and negated:
            raise UnmakeableError("nothing plain is in one of its classes")
        return plain or "".join(sorted(members))

    def _range(self, first: str) -> str:
        self._at += 1
        character = self._next()
        last = self._escape(self._next()) if character == "\\" else character
        if len(last) != 1 or last < first:
            raise UnmakeableError("it has a range without an end")
        few = min(ord(last), ord(first) + _MOST_OF_A_RANGE)
        plain = "".join(each for each in _PLAIN if first <= each <= last)
        return plain + "".join(chr(code) for code in range(ord(first), few + 1) if not 0xD800 <= code < 0xE000)

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise UnmakeableError("it ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _found(self, what: re.Pattern[str]) -> re.Match[str]:
        found = what.match(self._pattern, self._at)
        if found is None:
            raise UnmakeableError("it has a group, an escape or a class that is not known here")
        self._at = found.end()
        return found
