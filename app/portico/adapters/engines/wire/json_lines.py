"""Parser of `application/x-ndjson` bodies: one JSON text a line.

The last line may lack its newline, since servers end a stream with an error in that form. This is safe: a JSON object
that a broken connection cut in half is not JSON.
"""

from typing import ClassVar

from portico.adapters.engines.wire.faults import BYTE_ORDER_MARK, malformed_reply

BLANKS = b" \t\r"


class JsonLinesParser:
    """The parser of one body. A line longer than `line_bytes` makes the body malformed."""

    __slots__ = ("_is_at_start", "_line", "_line_bytes")
    error: ClassVar[bytes | None] = None
    """Lines have no names, so that none is an error by its name."""

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._line = bytearray()
        self._is_at_start = True

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, in order, without blank ones. Raises: EngineError.

        No bytes are the end of the body, which completes the last line.
        """
        may_exceed_limit = len(self._line) + len(data) > self._line_bytes
        lines = data.split(b"\n") if data else [b"", b""]
        rest = lines.pop()
        if lines and (self._line or self._is_at_start):
            lines[0] = bytes(self._line) + lines[0]
            self._line = bytearray()
            if self._is_at_start:
                self._is_at_start = False
                lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        self._line += rest
        if may_exceed_limit and max(map(len, (*lines, self._line))) > self._line_bytes:
            raise malformed_reply(f"the stream has a line longer than {self._line_bytes} bytes")
        return [text for line in lines if (text := line.strip(BLANKS))]
