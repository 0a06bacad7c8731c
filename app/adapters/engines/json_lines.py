"""Cuts a body of `application/x-ndjson`, as its bytes arrive, into its lines.

Every JSON text stands on a line of its own. The last one may lack its newline, for servers write it so when what ends a
stream is an error; nothing is lost or guessed by that, since a JSON object says itself where it ends, and one that a
broken connection left half written is no JSON.
"""

from app.adapters.engines.dialect import malformed

BLANKS = b" \t\r"


class JsonLines:
    """One body's lines. A line longer than `line_bytes` makes it malformed."""

    __slots__ = ("_line", "_line_bytes")

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._line = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes, in order, without blank ones. An empty piece is the end of the body,
        which completes the last line. Raises: EngineFault.
        """
        most = len(self._line) + len(piece)
        if not piece:
            lines = [bytes(self._line)]
            self._line.clear()
        elif b"\n" not in piece:
            lines = []
            self._line += piece
        else:
            *lines, rest = (bytes(self._line) + piece if self._line else piece).split(b"\n")
            self._line = bytearray(rest)
        if most > self._line_bytes and max(map(len, (*lines, self._line))) > self._line_bytes:
            raise malformed(f"the stream holds a line longer than {self._line_bytes} bytes")
        return [text for line in lines if (text := line.strip(BLANKS))]
