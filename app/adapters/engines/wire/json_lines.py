"""Parser of `application/x-ndjson` bodies: one JSON text a line.

The last line may lack its newline, since servers end a stream with an error in that form. This is safe: a JSON object
that a broken connection cut in half is not JSON.
"""

from app.adapters.engines.wire.faults import malformed_reply

BLANKS = b" \t\r"


class JsonLinesParser:
    """The parser of one body. A line longer than `line_bytes` makes the body malformed."""

    __slots__ = ("_line", "_line_bytes")

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._line = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, in order, without blank ones. Raises: EngineError.

        No bytes are the end of the body, which completes the last line.
        """
        *lines, rest = data.split(b"\n") if data else (b"", b"")
        if lines:
            lines[0] = bytes(self._line) + lines[0]
            self._line = bytearray()
        self._line += rest
        if max(map(len, (*lines, self._line))) > self._line_bytes:
            raise malformed_reply(f"the stream has a line longer than {self._line_bytes} bytes")
        return [text for line in lines if (text := line.strip(BLANKS))]
