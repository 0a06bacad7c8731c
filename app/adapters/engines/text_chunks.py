"""Reads the chunks of a stream, of which nearly each differs from the one before in its text alone.

What stands around a text is decoded once, with a placeholder in its place, and what came of it is remembered.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from app.adapters.engines.dialect import Delta
from app.ports import EngineFault

PADDING: Final = b'"obfuscation":"'
"""What OpenAI ends each chunk with, by chance, so that nobody can tell a text from its length."""
PLACEHOLDER: Final = "0f8b24d1"
REMEMBERED: Final = 256
MOST_BYTES: Final = 4_096
"""Of the longest chunk whose surroundings are remembered."""


def remembering(mark: bytes, decode: Callable[[bytes], Delta]) -> Callable[[bytes], Delta]:
    """What reads chunks as `decode` does, and faster where a text, before which stands `mark`, is all that is new."""

    @lru_cache(REMEMBERED)
    def model_around(head: bytes, rest: bytes) -> str | None:
        """The model's name, if any, that surroundings tell beside a text; None where they tell more."""
        try:
            delta = decode(b"".join((head, mark, PLACEHOLDER.encode(), b'"', rest)))
        except EngineFault:
            return None
        return delta.model if delta == Delta(PLACEHOLDER, model=delta.model) else None

    def read(data: bytes) -> Delta:
        head, _, tail = data.partition(mark)
        text, quote, rest = tail.partition(b'"')
        if quote and b"\\" not in text and len(data) <= MOST_BYTES:
            if rest.endswith(b'"}'):
                rest = _without_padding(rest)
            model = model_around(head, rest)
            said = text.decode(errors="surrogateescape")
            if model is not None and said.isprintable():
                return Delta(said, "", (), None, None, model)
        return decode(data)

    return read


def _without_padding(rest: bytes) -> bytes:
    said, mark, padding = rest.rpartition(PADDING)
    return said + mark + b'"}' if padding[:-2].isalnum() else rest
