"""Counts the tokens of a reply as its pieces tell them: at its beginning, at its end, or again and again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from app.domain.boundary import TokenUsage
from app.domain.effects import NO_USAGE


class Counts(NamedTuple):
    """Tokens, as `TokenUsage` has them, before they are an answer's."""

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    total_tokens: int = 0


class Uncounted(NamedTuple):
    """Counts that were told and are not read before somebody asks. One of a form supersedes those of its form."""

    form: bytes
    told: bytes
    read: Callable[[bytes], Counts]


Told: TypeAlias = Counts | Uncounted


@dataclass(slots=True)
class Count:
    """What is known of one reply. A count replaces the one that was known before, unless it is 0."""

    _known: Counts | None = None
    _last: Uncounted | None = None
    _usage: TokenUsage | None = None

    def add(self, told: Told) -> None:
        """Takes what a piece tells."""
        self._usage = None
        if isinstance(told, Uncounted):
            if self._last is not None and self._last.form != told.form:
                self._settle()
            self._last = told
        else:
            self._settle()
            self._known = _latest(self._known, told)

    def usage(self) -> TokenUsage:
        if self._usage is None:
            self._settle()
            self._usage = NO_USAGE if self._known is None else TokenUsage(**self._known._asdict())
        return self._usage

    def _settle(self) -> None:
        if self._last is not None:
            self._known = _latest(self._known, self._last.read(self._last.told))
            self._last = None


def _latest(known: Counts | None, told: Counts) -> Counts:
    if known is None:
        return told
    read, written, thought, cached, _ = (new or old for new, old in zip(told, known, strict=True))
    return Counts(read, written, thought, cached, max(told.total_tokens, read + written))
