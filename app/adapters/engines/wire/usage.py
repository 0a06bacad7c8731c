"""Counts the tokens of a reply as its pieces tell them: at its beginning, at its end, or again and again."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from app.domain.contract.response import NO_USAGE, TokenUsage

ONES: Final = bytes(ord("1") if byte in b"0123456789" else byte for byte in range(256))
NUMBERS: Final = re.compile(rb'{(?:[^1\\]++|(?:(?<=":)|(?<=": ))1(?=[],}]))*+')
"""An object of which all digits are numbers, where each number is a 1."""


class TokenCounts(NamedTuple):
    """Tokens, as `TokenUsage` has them, before they are an answer's."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    total_tokens: int = 0


class RepeatedUsage:
    """Counts that chunks tell in one form, again and again, as JSON objects; the last are read when they are asked for.

    Objects are of one form when they differ in numbers above 0 alone, so that the last supersedes all others. The first
    may be of no form at all, and so is alone then.
    """

    __slots__ = ("_digits", "_fitting", "_form", "_last", "_read")

    def __init__(self, told: bytes, read: Callable[[bytes], TokenCounts]) -> None:
        self._last = self._fitting = told
        self._read = read
        digits = told.translate(ONES)
        form = _shortened(digits)
        self._digits, self._form = (digits, form) if NUMBERS.fullmatch(form) else (b"", b"")

    def fits(self, told: bytes) -> bool:
        """Whether the next is of the form, so that it may be taken."""
        digits = told.translate(ONES)
        if digits != self._digits and _shortened(digits) != self._form:
            return False
        if told.find(b'":0') >= 0 or told.find(b'": 0') >= 0:
            return False
        self._digits, self._fitting = digits, told
        return True

    def take(self) -> None:
        """Takes the one that fitted."""
        self._last = self._fitting

    def counts(self) -> TokenCounts:
        """What the last of them tell."""
        return self._read(self._last)


UsageReport: TypeAlias = TokenCounts | RepeatedUsage


@dataclass(slots=True)
class UsageAccumulator:
    """What is known of one reply. A count replaces the one that was known before, unless it is 0."""

    _known: TokenCounts | None = None
    _last: RepeatedUsage | None = None

    def add(self, told: UsageReport) -> None:
        """Takes what a piece tells, and pieces after it until something else is added."""
        self._settle()
        if isinstance(told, RepeatedUsage):
            self._last = told
        else:
            self._known = _latest(self._known, told)

    @property
    def is_known(self) -> bool:
        """Whether anything is known."""
        return self._known is not None or self._last is not None

    def usage(self) -> TokenUsage:
        """What is known by now."""
        known = self._known if self._last is None else _latest(self._known, self._last.counts())
        if known is None:
            return NO_USAGE
        read, written, thought, cached, total = known
        return TokenUsage(
            input_tokens=read,
            output_tokens=written,
            reasoning_tokens=thought,
            cached_tokens=cached,
            total_tokens=total,
        )

    def _settle(self) -> None:
        if self._last is not None:
            self._known = _latest(self._known, self._last.counts())
            self._last = None


def _latest(known: TokenCounts | None, told: TokenCounts) -> TokenCounts:
    if known is None:
        return told
    read, written, thought, cached, _ = (new or old for new, old in zip(told, known, strict=True))
    return TokenCounts(read, written, thought, cached, max(told.total_tokens, read + written))


def _shortened(digits: bytes) -> bytes:
    """One 1 for each run of up to eight."""
    return digits.replace(b"11", b"1").replace(b"11", b"1").replace(b"11", b"1")
