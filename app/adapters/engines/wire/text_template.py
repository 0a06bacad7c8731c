"""Finds the text of an event by what stands around it.

Nearly each event of a stream differs from the one before in its text, and in little else. Where all that stands around
the text is byte for byte what it was in an event that was decoded, the text is all that has to be read. Two members
more may differ, since of them nothing is read, or not yet: they are held to forms of which any value is as good as
another where it stands, so that nothing is let pass that decoding would refuse.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from orjson import loads

from app.adapters.engines.wire.deltas import Delta
from app.adapters.engines.wire.usage import RepeatedUsage, TokenCounts
from app.ports.model import EngineError

PLACEHOLDER: Final = "0f8b24d1"
IN_PLACE: Final = b'"%b"' % PLACEHOLDER.encode()
MOMENT: Final = b"0123456789-:.TZ+"
"""What a time is written with."""
ONE: Final = b"1"
BLANK: Final = b" "
QUOTE: Final = ord('"')
MOST_DIGITS: Final = 18
"""Whichever so many digits are, they are a number of 64 bits, unless they begin with a 0."""
Reading: TypeAlias = Callable[[bytes], str | None]
"""The text of an event; None of one that cannot be read so, or may say more."""
_Within: TypeAlias = Callable[[bytes], bytes]
"""Takes off what stands behind a text; nothing is left where that is not as it was."""


class CutChunk(NamedTuple):
    """All of a chunk, cut around its text, quotes and all, and around what is unread before that, without its own."""

    head: bytes
    unread: bytes
    between: bytes
    text: bytes
    tail: bytes


class TextTemplate:
    """Where the chunks of a dialect hold their text, by the name of its member.

    What changes with it: before it `unread`, a number or a time; behind it `padding`, letters by chance, or `used`, an
    object of which `counts` reads what was used; and blanks before the last brace, where a brace precedes them.
    """

    def __init__(
        self,
        text: str,
        *,
        unread: str = "",
        padding: str = "",
        used: str = "",
        counts: Callable[[bytes], TokenCounts] | None = None,
    ) -> None:
        self._text = _member(text, rb'("(?:[^"\\]|\\.)++")')
        self._unread = _member(unread, rb'"?([-0-9:.TZ+]++)"?,') if unread else None
        self._padding = _member(padding, rb'"([0-9A-Za-z]++)"') if padding else None
        self._used = _member(used, rb"({.*})(?=(?:,[^{}]*)?}\Z)") if used else None
        self._counts = counts

    def cut(self, data: bytes) -> CutChunk | None:
        """A chunk in its parts; None where it holds no text in that place."""
        text = self._text.search(data)
        if text is None:
            return None
        start, stop = text.span(1)
        unread = self._unread.search(data, 0, start) if self._unread else None
        begun, ended = unread.span(1) if unread else (start, start)
        return CutChunk(data[:begun], data[begun:ended], data[ended:start], data[start:stop], data[stop:])

    def learned(self, cut: CutChunk, before: bytes, decode: Callable[[bytes], Delta]) -> tuple[Delta, Reading] | None:
        """What a chunk says, and what reads others like it; `before` it stands the beginning of its event.

        None where it says more than a text, or holds none that can be read. Raises: EngineFault.
        """
        head, unread, between, text, tail = cut
        rest, within, told = self._behind(tail)
        said = decode(b"".join((head, unread, between, IN_PLACE, tail)))
        try:
            if said.text != PLACEHOLDER or said.usage != (told and told.counts()) or not is_plain(said):
                return None
            spoken = loads(text)
        except (EngineError, ValueError):
            return None
        return Delta(spoken, "", (), None, told, said.model), _reading(
            TextSurroundings(before + head, between, rest), within, told
        )

    def _behind(self, tail: bytes) -> tuple[bytes, _Within | None, RepeatedUsage | None]:
        """What ends every chunk, what takes off the rest behind the text, and what is told there."""
        used = self._used.search(tail) if self._used else None
        told = RepeatedUsage(used[1], self._counts) if used and self._counts else None
        padding = self._padding.search(tail) if self._padding else None
        filling = used if told else padding
        if filling:
            start, stop = filling.span(1)
            return tail[stop:], _before_filling(tail[:start], told.fits if told else bytes.isalnum), told
        braces = tail[:-1].rstrip(BLANK)
        return (tail[-1:], _before_blanks(braces), None) if braces.endswith(b"}") else (tail, None, None)


class TextSurroundings(NamedTuple):
    """What an event begins with, what stands between what is unread and the text, and what it ends with."""

    head: bytes
    between: bytes
    tail: bytes


def _reading(around: TextSurroundings, within: _Within | None, told: RepeatedUsage | None) -> Reading:
    head, between, tail = around
    timed = between.startswith(b'"')

    def text_of(event: bytes) -> str | None:
        rest = event.removeprefix(head)
        text = rest.removesuffix(tail)
        if rest is event or text is rest:
            return None
        if within is not None:
            text = within(text)
        if between:
            unread, _, text = text.rpartition(between)
            if unread.strip(MOMENT) if timed else unread < ONE or len(unread) > MOST_DIGITS or not unread.isdigit():
                return None
        try:
            read: str | None = loads(text) if text[0] == QUOTE == text[-1] else None
        except (IndexError, ValueError):
            return None
        if told is not None and read is not None:
            told.take()
        return read

    return text_of


def _before_filling(behind: bytes, fits: Callable[[bytes], bool]) -> _Within:
    def within(rest: bytes) -> bytes:
        text, _, filling = rest.rpartition(behind)
        return text if fits(filling) else b""

    return within


def _before_blanks(braces: bytes) -> _Within:
    def within(rest: bytes) -> bytes:
        stripped = rest.rstrip(BLANK)
        text = stripped.removesuffix(braces)
        return b"" if text is stripped else text

    return within


def is_plain(said: Delta) -> bool:
    """Whether it says a text and nothing else, but what was used and which model answers."""
    _, reasoning, calls, finish, _, _, refused, done, kept, _ = said
    return not (reasoning or calls or refused or done or kept) and finish is None


def _member(name: str, value: bytes) -> re.Pattern[bytes]:
    return re.compile(rb'"%b": ?%b' % (name.encode(), value), re.DOTALL)
