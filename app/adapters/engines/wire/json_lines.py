"""Cuts a body of `application/x-ndjson`, as its bytes arrive, into its lines.

Every JSON text stands on a line of its own. The last one may lack its newline, for servers write it so when what ends a
stream is an error; nothing is lost or guessed by that, since a JSON object says itself where it ends, and one that a
broken connection left half written is no JSON.
"""

from app.adapters.engines.wire.faults import malformed_reply

BLANKS = b" \t\r"


class JsonLinesParser:
    """One body's lines. A line longer than `line_bytes` makes it malformed.

    `end` is what stands behind each. It is `idle` where the bytes that it was fed ended with one.
    """

    __slots__ = ("_line", "idle", "line_bytes")
    end = b"\n"

    def __init__(self, line_bytes: int) -> None:
        self.line_bytes = line_bytes
        self.idle = True
        self._line = bytearray()

    @staticmethod
    def ends_otherwise(_piece: bytes) -> bool:
        """Never: what ends a line is always the same."""
        return False

    @staticmethod
    def data_of(line: bytes) -> bytes | None:
        """The line itself, of which blanks are a part; None where there is nothing else."""
        return line if line.strip(BLANKS) else None

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes, in order, without blank ones. An empty piece is the end of the body,
        which completes the last line. Raises: EngineFault.
        """
        *lines, rest = piece.split(b"\n") if piece else (b"", b"")
        if lines:
            lines[0] = bytes(self._line) + lines[0]
            self._line = bytearray()
        self._line += rest
        self.idle = not self._line
        if max(map(len, (*lines, self._line))) > self.line_bytes:
            raise malformed_reply(f"the stream holds a line longer than {self.line_bytes} bytes")
        return [text for line in lines if (text := line.strip(BLANKS))]
