"""Makes up single numbers and strings that fit what a schema asks of them.

Whoever asks takes the first that fits. `turn` gives others: at each choice it is told the number of options, None where
there is no end of them, and says which to take.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import ceil, floor, gcd, lcm
from sys import float_info
from types import MappingProxyType
from typing import Final

from app.adapters.engines.rehearsal.patterns import UnmakeableError, texts

Turn = Callable[[int | None], int]

MOST_CHARACTERS: Final = 65_536
"""No string is made longer."""
_WITHOUT_TEXT: Final = "rehearsal"
_MOST_TEXT: Final = 300
_FEW: Final = 16
_MOST_WORDS: Final = 100
_MARKS: Final = ".,;:!?\"'()[]{}<>`“”"
_LARGEST: Final = Fraction(float_info.max)
_FORMATS: Mapping[str, Callable[[int], str]] = MappingProxyType(
    {
        "date": lambda turn: f"{2024 + turn // 336 % 1000}-{turn // 28 % 12 + 1:02}-{turn % 28 + 1:02}",
        "time": lambda turn: f"{turn // 60 % 24:02}:{turn % 60:02}:00Z",
        "date-time": lambda turn: f"2024-01-{turn // 1440 % 28 + 1:02}T{turn // 60 % 24:02}:{turn % 60:02}:00Z",
        "duration": lambda turn: f"PT{turn + 1}M",
        "email": lambda turn: f"rehearsal{turn or ''}@example.com",
        "idn-email": lambda turn: f"rehearsal{turn or ''}@example.com",
        "hostname": lambda turn: f"rehearsal{turn or ''}.example.com",
        "idn-hostname": lambda turn: f"rehearsal{turn or ''}.example.com",
        "ipv4": lambda turn: f"192.0.2.{turn % 256}",
        "ipv6": lambda turn: f"2001:db8::{turn % 65_536:x}",
        "uri": lambda turn: f"https://example.com/{turn or ''}",
        "uri-reference": lambda turn: f"/{turn or ''}",
        "iri": lambda turn: f"https://example.com/{turn or ''}",
        "iri-reference": lambda turn: f"/{turn or ''}",
        "uri-template": lambda turn: f"https://example.com/{{name}}{turn or ''}",
        "uuid": lambda turn: f"00000000-0000-4000-8000-{turn:012x}",
        "json-pointer": lambda turn: f"/{turn}",
        "relative-json-pointer": lambda turn: f"{turn}",
        "regex": lambda turn: f"{'a' * (turn % _MOST_TEXT + 1)}",
    }
)
"""The formats of JSON Schema 2020-12 [its validation vocabulary, section 7.3], with names and addresses that are
reserved for examples [RFC 2606, 3849, 5737]."""


@dataclass(frozen=True, slots=True)
class NumberRange:
    """What a number has to keep to; `open_…` where it must not be the bound itself."""

    least: Fraction | None = None
    open_least: bool = False
    most: Fraction | None = None
    open_most: bool = False
    steps: tuple[Fraction, ...] = ()

    def holds(self, value: Fraction) -> bool:
        above = self.least is None or value > self.least or (value == self.least and not self.open_least)
        below = self.most is None or value < self.most or (value == self.most and not self.open_most)
        return above and below and all(value % step == 0 for step in self.steps)


@dataclass(frozen=True, slots=True)
class StringForm:
    """What a string has to keep to. Lengths are in characters."""

    least: int = 0
    most: int | None = None
    formats: Sequence[str] = ()
    patterns: Sequence[str] = ()


def exact(number: float) -> Fraction:
    """The number as it is written."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def numbers(kept: NumberRange, turn: Turn) -> Iterator[int | float]:
    """A few numbers of the range: those near its lower bound, else near 1, else near its upper bound."""
    if kept.steps:
        whole, parts = lcm(*(step.numerator for step in kept.steps)), gcd(*(step.denominator for step in kept.steps))
        points = _stepped(kept, Fraction(whole, parts), turn)
    else:
        points = islice(_points(kept), turn(None), None)
    yield from (_plain(each) for each in islice(points, 2 * _FEW) if kept.holds(each) and abs(each) <= _LARGEST)


def _stepped(kept: NumberRange, step: Fraction, turn: Turn) -> Iterator[Fraction]:
    lowest = None if kept.least is None else ceil(kept.least / step)
    highest = None if kept.most is None else floor(kept.most / step)
    if lowest is not None and kept.open_least and lowest * step == kept.least:
        lowest += 1
    if highest is not None and kept.open_most and highest * step == kept.most:
        highest -= 1
    begin = ceil(1 / step) if lowest is None else lowest
    if lowest is None and highest is not None and highest < begin:
        begin = highest
        return ((begin - turned) * step for turned in _from(turn(None)))
    count = None if highest is None else max(1, highest - begin + 1)
    return ((begin + turned) * step for turned in _from(turn(count)))


def _from(first: int) -> range:
    return range(first, first + _FEW)


def _points(kept: NumberRange) -> Iterator[Fraction]:
    """Whole steps from where it begins, then fractions of what the range holds."""
    if kept.least is not None:
        begin, sign = kept.least, 1
    else:
        begin, sign = (Fraction(1), 1) if kept.most is None or kept.holds(Fraction(1)) else (kept.most, -1)
    found = (begin + sign * count for count in range(MOST_CHARACTERS))
    yield from islice(filter(kept.holds, islice(found, _FEW)), 6)
    width = kept.most - kept.least if kept.most is not None and kept.least is not None else Fraction(1)
    for parts in range(1, 11):
        for part in range(1, 2**parts, 2):
            yield begin + sign * width * Fraction(part, 2**parts)
    yield from (kept.most,) if kept.most is not None else ()


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 and abs(value) < 2**63 else float(value)


def strings(kept: StringForm, text: str, turn: Turn) -> Iterator[str]:
    """A few strings: the text, its words where a form is asked for, then what is made up; not all of them fit."""
    turned = turn(None)
    base = text[:_MOST_TEXT].strip() or _WITHOUT_TEXT
    if not turned:
        yield _sized(base, "", kept)
        if kept.formats or kept.patterns:
            yield from (word for word in (each.strip(_MARKS) for each in text.split()[:_MOST_WORDS]) if word)
    for form in kept.formats:
        if form in _FORMATS:
            yield _FORMATS[form](turned)
    for pattern in kept.patterns:
        with suppress(UnmakeableError):
            yield from islice(texts(pattern, kept.least, kept.most, _Turns(turned).of), _FEW)
    counted, number = _counted(turned), f" {turned + 1}"
    if kept.most is None or kept.most >= 2 * len(number):
        yield _sized(base, number, kept)
    yield from (_sized("", each, kept) for each in (counted, number))


@dataclass(slots=True)
class _Turns:
    """A number that choices take their options from, each what the earlier ones leave of it."""

    left: int

    def of(self, options: int) -> int:
        self.left, taken = divmod(self.left, options)
        return taken


def _counted(turned: int) -> str:
    """The same number in as few characters as can be."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return letters[turned] if turned < len(letters) else _counted(turned // 26 - 1) + letters[turned % 26]


def _sized(base: str, ending: str, kept: StringForm) -> str:
    """Both together, the beginning cut or filled up to fit the lengths."""
    most = MOST_CHARACTERS if kept.most is None else min(kept.most, MOST_CHARACTERS)
    least = min(kept.least, most)
    beginning = base[: max(0, most - len(ending))]
    missing = max(0, least - len(beginning) - len(ending))
    return (beginning + "." * missing + ending)[:most] if beginning else (ending + "." * missing)[:most]
