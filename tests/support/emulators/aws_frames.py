"""Frames of an event stream, as AWS sends them."""

import json
from binascii import crc32
from struct import pack
from typing import Any


def frame(payload: Any, **headers: str) -> bytes:
    """One frame with text headers; underscores of their names are hyphens behind a colon."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    packed = b"".join(_header(":" + name.replace("_", "-"), value) for name, value in headers.items())
    prelude = pack(">II", 16 + len(packed) + len(body), len(packed))
    prelude += pack(">I", crc32(prelude))
    message = prelude + packed + body
    return message + pack(">I", crc32(message))


def event(kind: str, payload: Any) -> bytes:
    return frame(payload, message_type="event", event_type=kind, content_type="application/json")


def exception(kind: str, message: str) -> bytes:
    return frame({"message": message}, message_type="exception", exception_type=kind)


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return pack(">B", len(name)) + name.encode() + b"\x07" + pack(">H", len(text)) + text


def text_stream(*pieces: str) -> bytes:
    """A whole answer of text."""
    deltas = [event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": piece}}) for piece in pieces]
    usage = {"inputTokens": 10, "outputTokens": 3, "totalTokens": 20, "cacheReadInputTokens": 7}
    return b"".join(
        [
            event("messageStart", {"role": "assistant"}),
            *deltas,
            event("contentBlockStop", {"contentBlockIndex": 0}),
            event("messageStop", {"stopReason": "end_turn"}),
            event("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
        ]
    )
