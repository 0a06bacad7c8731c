"""Output of a program: its beginning and its end, as text without terminal control."""

import re
from typing import Final

_CONTROL_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|\Z)|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
"""Sequences that control a terminal: CSI, OSC and other strings, and the short ones [ECMA-48]."""
_OTHER_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


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


def plain_text(data: bytes) -> str:
    """Return UTF-8 bytes as text: newlines as line ends, without control characters and terminal sequences."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return _OTHER_CONTROLS.sub("", _CONTROL_SEQUENCE.sub("", text))
