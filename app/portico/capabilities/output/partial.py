"""The partial value of an answer that is still being written.

A value begins where extraction would look for it: at the first region of the first fenced block, or of the text. What
is incomplete is left out or, as a string, shown as far as it goes; nothing is repaired. The partial value is only
shown: the final answer is extracted anew. A long answer is shown only as long as it is cheap to read again.
"""

from typing import Any, Final

from pydantic_core import from_json

from portico.capabilities.output.extract import JsonRegions, fenced_block_start
from portico.domain.strict_json import dumps

MAX_CHARACTERS: Final = 65_536
MAX_NODES: Final = 8_192
"""Limits of an answer whose partial value is shown: characters, and brackets and commas."""
_FEWEST_NEW: Final = 16
_NEW_SHARE: Final = 8
_IN_VAIN: Final = 1


def partial_value(text: str) -> Any | None:
    """Return the object or list that the text has begun; None if there is none to show."""
    regions = JsonRegions(text, fenced_block_start(text) or 0)
    while regions.start is not None:
        try:
            value = from_json(text[regions.start :], allow_partial="trailing-strings", allow_inf_nan=False)
            dumps(value, text)
        except (ValueError, TypeError):
            regions.advance()
        else:
            return value
    return None


class PartialAnswer:
    """An answer that arrives in pieces. It is read again when it has grown by an eighth, or doubled without a value.

    All readings together cost as much as nine of the whole answer, however small the pieces are.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._characters = 0
        self._due = 0
        self._last: Any | None = None

    def add(self, piece: str) -> Any | None:
        """Add a piece and return the partial value if it has changed and is due to be shown, else None."""
        self._pieces.append(piece)
        self._characters += len(piece)
        if not self._due <= self._characters <= MAX_CHARACTERS:
            return None
        text = "".join(self._pieces)
        self._pieces = [text]
        value = partial_value(text) if sum(map(text.count, "[{,")) <= MAX_NODES else None
        share = _IN_VAIN if value is None else _NEW_SHARE
        self._due = self._characters + max(_FEWEST_NEW, self._characters // share)
        if value == self._last:
            return None
        self._last = value
        return value
