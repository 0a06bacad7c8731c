"""Cuts an event stream, as its bytes arrive, into the data of its events.

The rules are those of the HTML standard for `text/event-stream`. Event names are not reported: every provider's
data says by itself what it is. The last event counts only with the empty line behind it, so what a broken
connection left half written is never taken for whole.
"""

from collections.abc import Iterator

from app.adapters.engines.dialect import malformed

BOM = b"\xef\xbb\xbf"


class EventStream:
    """One stream's lines. A line longer than `line_bytes` makes it malformed."""

    __slots__ = ("_after_cr", "_data", "_fresh", "_line", "_line_bytes")

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._fresh = True
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece completes, in order. Raises: EngineFault."""
        events = self._plain_events(piece)
        if events is not None:
            self._fresh = False
            return events
        if self._after_cr or b"\r" in piece:
            piece = self._with_newlines(piece)
        if b"\n" not in piece:
            self._line += piece
            self._check(self._line)
            return []
        *lines, rest = (bytes(self._line) + piece if self._line else piece).split(b"\n")
        self._check(rest)
        self._line = bytearray(rest)
        if self._fresh:
            self._fresh = False
            lines[0] = lines[0].removeprefix(BOM)
        return [data for data in self._events(lines) if data]

    def _plain_events(self, piece: bytes) -> list[bytes] | None:
        """The data of what nearly every piece of a stream is: whole events, all of one line of data each, and all of
        them with a name before it or all without; None for any other.
        """
        if self._line or self._data or self._after_cr or len(piece) > self._line_bytes:
            return None
        end = b"\r\n\r\n" if piece.endswith(b"\r\n\r\n") else b"\n\n"
        if piece.startswith(b"data: "):
            lines, events = 2, piece[6 : -len(end)].split(end + b"data: ")
        elif piece.startswith(b"event: ") and end == b"\n\n":
            lines, events = 3, [event.partition(b"\ndata: ")[2] for event in piece[:-2].split(b"\n\nevent: ")]
        else:
            return None
        lines *= len(events)
        plain = piece.endswith(end) and piece.count(b"\n") == lines and b"" not in events
        return events if plain and piece.count(b"\r") == (lines if len(end) > 2 else 0) else None

    def _with_newlines(self, piece: bytes) -> bytes:
        if self._after_cr:
            piece = piece.removeprefix(b"\n")
        self._after_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _events(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._check(line)
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif not line and self._data:
                yield self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data = []

    def _check(self, line: bytes | bytearray) -> None:
        if len(line) > self._line_bytes:
            raise malformed(f"the stream holds a line longer than {self._line_bytes} bytes")
