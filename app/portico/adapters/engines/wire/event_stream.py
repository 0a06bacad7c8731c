"""Parser of `text/event-stream` bodies.

It follows the rules of the HTML standard. An event counts only with the empty line after it, so that one which a broken
connection cut in half is dropped. Event names are not reported, since every provider's data names its own kind, except
`error`: an event of that name is a failure, and its data may have any form.
"""

from typing import Final

from portico.adapters.engines.wire.faults import BYTE_ORDER_MARK, malformed_reply

ERROR_NAMES: Final = frozenset({b"event: error", b"event:error"})
_LINE_FEED, _CARRIAGE_RETURN = b"\n\r"


class EventStreamParser:
    """The parser of one stream. A line longer than `line_bytes` makes the stream malformed."""

    __slots__ = ("_ended_with_cr", "_has_error_name", "_is_at_start", "_line", "_line_bytes", "_pending", "error")

    def __init__(self, line_bytes: int) -> None:
        self.error: bytes | None = None
        """The data of an event named `error`, which ends the stream: nothing after it is parsed."""
        self._line_bytes = line_bytes
        self._line = bytearray()
        self._pending: list[bytes] = []
        self._has_error_name = False
        self._is_at_start = True
        self._ended_with_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete, in order. Raises: EngineError."""
        events: list[bytes] = []
        pending = self._pending
        is_between_lines = not (self._line or self._ended_with_cr or self._is_at_start)
        if is_between_lines and data.endswith(b"\n") and len(data) <= self._line_bytes:
            lines = data.splitlines()
        else:
            lines = self._complete_lines(data)
        for line in lines:
            if not line:
                if pending:
                    event = b"\n".join(pending)
                    pending.clear()
                    if self._has_error_name:
                        self.error = event
                        return events
                    if event:
                        events.append(event)
                self._has_error_name = False
            elif line.startswith(b"data: "):
                pending.append(line[6:])
            elif line.startswith(b"data:"):
                pending.append(line[5:])
            elif line in ERROR_NAMES:
                self._has_error_name = True
        return events

    def _complete_lines(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete. Two reads may have cut a line end, too."""
        if self._ended_with_cr and data:
            data = data.removeprefix(b"\n")
            self._ended_with_cr = False
        if not data:
            return []
        may_exceed_limit = len(self._line) + len(data) > self._line_bytes
        lines = data.splitlines()
        last = data[-1]
        self._ended_with_cr = last == _CARRIAGE_RETURN
        rest = b"" if self._ended_with_cr or last == _LINE_FEED else lines.pop()
        if lines and (self._line or self._is_at_start):
            lines[0] = self._first_line(lines[0])
        if rest:
            self._line += rest
        if may_exceed_limit and max(map(len, (*lines, self._line))) > self._line_bytes:
            raise malformed_reply(f"the stream has a line longer than {self._line_bytes} bytes")
        return lines

    def _first_line(self, end: bytes) -> bytes:
        """Return the line that began in earlier reads, without the mark that may be at the start of a stream."""
        line = bytes(self._line) + end
        self._line = bytearray()
        if self._is_at_start:
            self._is_at_start = False
            line = line.removeprefix(BYTE_ORDER_MARK)
        return line
