"""Reads the chunks of a stream, of which nearly each differs from the one before in its text, and in little else.

What stands around a text is decoded once, with a placeholder in its place, and what came of it is remembered. Where a
time or numbers differ too, each of their digits is made a 1 for that: none of these numbers has more than 18 digits or
begins with a 0, so that other digits there make no other JSON, and what they tell is left unread until it is asked for.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from app.adapters.engines.counts import Counts, Uncounted
from app.adapters.engines.dialect import Delta
from app.ports import EngineFault

PADDING: Final = b'"obfuscation":"'
"""What OpenAI ends each chunk with, by chance, so that nobody can tell a text from its length."""
PLACEHOLDER: Final = "0f8b24d1"
TEXT: Final = PLACEHOLDER.encode()
QUOTE: Final = b'"'
REMEMBERED: Final = 256
MOST_BYTES: Final = 4_096
"""Of the longest chunk whose surroundings are remembered."""
SHORT_BYTES: Final = 64
"""Of the longest chunk that is remembered as it is: most of these say no more than what kind they are."""
ONES: Final = bytes(ord("1") if byte in b"0123456789" else byte for byte in range(256))
MOMENT: Final = re.compile(rb'1{1,18}|"1{4}-[-1:.TZ+]+"')
NUMBERS: Final = rb' ?{(?:[^1\\]|(?<="%b)1{1,18}(?=[],}]))*}'
"""An object of which all digits are numbers, behind such a colon."""
_Read = Callable[[bytes], Delta]
_new = tuple.__new__
"""Makes a `Delta` in half the time that its own constructor takes."""


def remembering(mark: bytes, decode: _Read) -> _Read:
    """What reads chunks as `decode` does, and faster where a text, before which stands `mark`, is all that is new."""

    decode_short = lru_cache(REMEMBERED)(decode)

    @lru_cache(REMEMBERED)
    def model_around(head: bytes, rest: bytes) -> str | None:
        return _model(decode, b"".join((head, mark, TEXT, QUOTE, rest)))

    def read(data: bytes) -> Delta:
        head, _, tail = data.partition(mark)
        text, found, rest = tail.partition(QUOTE)
        if found and len(data) <= MOST_BYTES:
            model = model_around(head, _without_padding(rest) if rest.endswith(b'"}') else rest)
            said = text.decode("utf-8", "surrogateescape")
            if model is not None and said.isprintable() and "\\" not in said:
                return _new(Delta, (said, "", (), None, None, model, False, False, (), False))
        return decode(data) if len(data) > SHORT_BYTES else decode_short(data)

    return read


def remembering_beside(moment: bytes, mark: bytes, decode: _Read) -> _Read:
    """The same where a member of which nothing is read, a number or a time, is new too: `moment` is its key and colon,
    and it stands before the text.
    """

    @lru_cache(REMEMBERED)
    def model_around(head: bytes, form: bytes, between: bytes, rest: bytes) -> str | None:
        example = b"".join((head, moment, form, b",", between, mark, TEXT, QUOTE, rest))
        return _model(decode, example) if MOMENT.fullmatch(form) else None

    def read(data: bytes) -> Delta:
        head, _, tail = data.partition(moment)
        value, _, tail = tail.partition(b",")
        between, _, tail = tail.partition(mark)
        text, found, rest = tail.partition(QUOTE)
        if found and len(data) <= MOST_BYTES and value[:1] != b"0":
            rest = _without_padding(rest) if rest.endswith(b'"}') else rest
            model = model_around(head, value.translate(ONES), between, rest)
            said = text.decode("utf-8", "surrogateescape")
            if model is not None and said.isprintable() and "\\" not in said:
                return _new(Delta, (said, "", (), None, None, model, False, False, (), False))
        return decode(data)

    return read


def remembering_counts(
    place: tuple[bytes, bytes], counts: Callable[[bytes], Counts], mark: bytes, decode: _Read
) -> _Read:
    """The same where an object of which `counts` reads what was used is new too: between these two, behind the text."""
    opening, closing = place
    colon = mark[mark.rindex(b":") : -1]
    begins_with_zero, are_numbers = b'"' + colon + b"0", re.compile(NUMBERS % colon).fullmatch

    @lru_cache(REMEMBERED)
    def model_around(head: bytes, between: bytes, form: bytes, rest: bytes) -> str | None:
        example = b"".join((head, mark, TEXT, QUOTE, between, opening, form, closing, rest))
        return _model(decode, example, lambda: counts(form)) if are_numbers(form) else None

    def read(data: bytes) -> Delta:
        head, _, tail = data.partition(mark)
        text, _, tail = tail.partition(QUOTE)
        between, _, tail = tail.partition(opening)
        value, found, rest = tail.partition(closing)
        if found and len(data) <= MOST_BYTES and value.find(begins_with_zero) < 0:
            form = value.translate(ONES)
            model = model_around(head, between, form, rest)
            said = text.decode("utf-8", "surrogateescape")
            if model is not None and said.isprintable() and "\\" not in said:
                told = _new(Uncounted, (form, value, counts))
                return _new(Delta, (said, "", (), None, told, model, False, False, (), False))
        return decode(data)

    return read


def _model(decode: _Read, example: bytes, told: Callable[[], Counts | None] = lambda: None) -> str | None:
    """The model's name, if any, that surroundings tell beside a text and what was used; None where they tell more."""
    try:
        delta = decode(example)
        return delta.model if delta == Delta(PLACEHOLDER, usage=told(), model=delta.model) else None
    except EngineFault:
        return None


def _without_padding(rest: bytes) -> bytes:
    said, mark, padding = rest.rpartition(PADDING)
    return said + mark + b'"}' if padding[:-2].isalnum() else rest
