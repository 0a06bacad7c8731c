"""Parser of `application/vnd.amazon.eventstream` bodies: binary frames, which botocore parses and checks.

A frame becomes a JSON object with one member: the type of the event with its payload. A frame whose type is an
exception or an error ends the stream.
"""

from struct import error as StructError  # noqa: N812 - the module calls it so
from typing import Any

import orjson
from botocore.eventstream import EventStreamBuffer, ParserError

from portico.adapters.engines.wire.faults import malformed_reply

PARSER_ERRORS = (ParserError, StructError, KeyError, ValueError)
"""What botocore raises for frames that are not sound, wrong checksums included."""


class AwsEventStreamParser:
    """The parser of one stream. A frame longer than `line_bytes` makes the stream malformed."""

    def __init__(self, line_bytes: int) -> None:
        self.error: bytes | None = None
        """The error that ends the stream: nothing after it is parsed."""
        self._line_bytes = line_bytes
        self._buffer: Any = EventStreamBuffer()
        self._pending_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that these bytes complete, in order. Raises: EngineError."""
        events: list[bytes] = []
        self._buffer.add_data(data)
        self._pending_bytes += len(data)
        try:
            for frame in self._buffer:
                self._pending_bytes -= frame.prelude.total_length
                if frame.headers.get(":message-type") != "event":
                    self.error = _error(frame)
                    return events
                events.append(b'{"%s":%s}' % (_name(frame.headers[":event-type"]), frame.payload or b"{}"))
        except PARSER_ERRORS as cause:
            raise malformed_reply("the stream has a frame that is not sound") from cause
        if self._pending_bytes > self._line_bytes:
            raise malformed_reply(f"the stream has a frame longer than {self._line_bytes} bytes")
        return events


def _name(header: Any) -> bytes:
    """Return the name of a header's value within a JSON text, without the quotes. Raises: ValueError."""
    if not isinstance(header, str):
        raise ValueError("the type of an event is a text")  # noqa: TRY004 - as botocore says it of a frame
    return orjson.dumps(header)[1:-1]


def _error(frame: Any) -> bytes:
    """Return the error of a frame as JSON: its type, and its message."""
    headers = frame.headers
    try:
        payload = orjson.loads(frame.payload)
    except orjson.JSONDecodeError:
        payload = None
    message = payload.get("message") if isinstance(payload, dict) else headers.get(":error-message")
    kind = headers.get(":exception-type") or headers.get(":error-code")
    return orjson.dumps({"error": {"type": str(kind or ""), "message": str(message or "")}})
