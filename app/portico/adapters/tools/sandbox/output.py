"""Output of a program: its beginning and its end."""

import re
from typing import Final

from portico.adapters.tools.plain_text import plain_text

LEFT_OUT: Final = re.compile(r"\n\[[0-9]+ bytes left out\]\n")
"""Mark in the place of what was dropped."""


class BoundedOutput:
    """The first and the last half of at most `limit` bytes of output; the bytes between them are dropped."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        """Bytes that arrived, the dropped ones included."""
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Add bytes in the order of their arrival."""
        self.size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """Return the output as text, with a mark in the place of what was dropped."""
        tail = self._tail[-self._half :]
        dropped = self.size - len(self._head) - len(tail)
        if dropped == 0:
            return plain_text(bytes(self._head + tail))
        return f"{plain_text(bytes(self._head))}\n[{dropped} bytes left out]\n{plain_text(bytes(tail))}"
