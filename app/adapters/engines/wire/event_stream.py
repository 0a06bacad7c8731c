"""Cuts an event stream, as its bytes arrive, into the data of its events.

The rules are those of the HTML standard for `text/event-stream`. Event names are not reported: every provider's
data says by itself what it is. The last event counts only with the empty line behind it, so what a broken
connection left half written is never taken for whole.
"""

from app.adapters.engines.wire.faults import malformed_reply

BOM = b"\xef\xbb\xbf"


class EventStreamParser:
    """One stream's lines. A line longer than `line_bytes` makes it malformed.

    `end` is what stands behind each event as this stream writes it. It is `idle` where nothing is left of what it was
    fed, so that what comes next begins an event.
    """

    __slots__ = ("_after_cr", "_data", "_fresh", "_line", "end", "idle", "line_bytes")

    def __init__(self, line_bytes: int) -> None:
        self.line_bytes = line_bytes
        self.end = b"\n\n"
        self.idle = True
        self._line = bytearray()
        self._data: list[bytes] = []
        self._fresh = True
        self._after_cr = False

    def ends_otherwise(self, piece: bytes) -> bool:
        """Whether there are events in a piece that holds no `end`, which is what stands behind these from now on."""
        found = b"\r\n\r\n" in piece
        if found:
            self.end = b"\r\n\r\n"
        return found

    def data_of(self, event: bytes) -> bytes | None:
        """The data of an event, without its end, of one line of data and at most a name before it; None of others."""
        self._fresh = False
        *names, line = event.split(b"\n")
        plain = not names or (len(names) == 1 and names[0].startswith(b"event:"))
        return line[6:] or None if plain and line.startswith(b"data: ") and event.find(b"\r") < 0 else None

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece completes, in order. Raises: EngineFault."""
        if self._after_cr or b"\r" in piece:
            piece = self._with_newlines(piece)
        lines = self._lines(piece)
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        self.idle = not (self._line or self._data or self._after_cr)
        return [data for data in events if data]

    def _with_newlines(self, piece: bytes) -> bytes:
        if self._after_cr:
            piece = piece.removeprefix(b"\n")
        self._after_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _lines(self, piece: bytes) -> list[bytes]:
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = bytes(self._line) + lines[0]
            self._line = bytearray()
            if self._fresh:
                self._fresh = False
                lines[0] = lines[0].removeprefix(BOM)
        self._line += rest
        if max(map(len, (*lines, self._line))) > self.line_bytes:
            raise malformed_reply(f"the stream holds a line longer than {self.line_bytes} bytes")
        return lines
