"""Parser of `text/event-stream` bodies.

It follows the rules of the HTML standard. Event names are not reported, since every provider's data names its own
kind. An event counts only with the empty line after it, so that one which a broken connection cut in half is dropped.
"""

from app.adapters.engines.wire.faults import malformed_reply

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventStreamParser:
    """The parser of one stream. A line longer than `line_bytes` makes the stream malformed."""

    __slots__ = ("_data", "_ended_with_cr", "_is_at_start", "_line", "_line_bytes")

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._is_at_start = True
        self._ended_with_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete, in order. Raises: EngineError."""
        if self._ended_with_cr or b"\r" in data:
            data = self._with_newlines(data)
        events: list[bytes] = []
        for line in self._complete_lines(data):
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif not line and self._data:
                event = b"\n".join(self._data)
                self._data.clear()
                if event:
                    events.append(event)
        return events

    def _with_newlines(self, data: bytes) -> bytes:
        """Replace all line ends with newlines, also one that two reads have cut in half."""
        if self._ended_with_cr:
            data = data.removeprefix(b"\n")
        self._ended_with_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _complete_lines(self, data: bytes) -> list[bytes]:
        may_exceed_limit = len(self._line) + len(data) > self._line_bytes
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._line) + lines[0]
            self._line = bytearray()
            if self._is_at_start:
                self._is_at_start = False
                lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        self._line += rest
        if may_exceed_limit and max(map(len, (*lines, self._line))) > self._line_bytes:
            raise malformed_reply(f"the stream has a line longer than {self._line_bytes} bytes")
        return lines
