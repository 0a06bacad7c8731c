"""A fast local upstream that answers chat completions and notices closed connections.

It reads as much of HTTP as it needs. Each chunk of a stream contains the time of its write, as `t<nanoseconds>.` of the
machine's monotonic clock, so that a reader can compute the delay. Words in the text of a request select the answer:
each `ROLL` in it asks for one tool round.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

ROLL = "bench-roll"
ASK = "bench-ask"
BLOCK = "bench-hold"
VALUE = "bench-value"
CHUNKS = 50
INTERVAL = 0.02
TEXT = "The answer is forty-two."

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_IDENTITY: Mapping[str, object] = {"id": "chatcmpl-bench", "created": 1700000000, "model": "bench"}
_USAGE: Mapping[str, object] = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}


def _json_reply(message: dict[str, object], finish_reason: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    body = orjson.dumps({**_IDENTITY, "object": "chat.completion", "choices": [choice], "usage": _USAGE})
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _delta(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    data = orjson.dumps({**_IDENTITY, "object": "chat.completion.chunk", "choices": [choice]})
    return _chunk(b"data: %b\n\n" % data)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_CALL: Mapping[str, object] = {"name": "roll_dice", "arguments": '{"count":2,"sides":6}'}
_ANSWER = _json_reply({"content": TEXT}, "stop")
_VALUE = _json_reply({"content": orjson.dumps({"answer": TEXT}).decode()}, "stop")
_QUESTION: Mapping[str, object] = {"name": "ask_person", "arguments": '{"question":"May I?"}'}


def _calls(function: Mapping[str, object]) -> bytes:
    call = {"id": "call_1", "type": "function", "function": function}
    return _json_reply({"content": None, "tool_calls": [call]}, "tool_calls")


_ROLLS, _ASKS = _calls(_CALL), _calls(_QUESTION)
_ZERO = "0" * 20
_DELTA = _delta({"content": f"t{_ZERO}."}).replace(_ZERO.encode(), b"%020d")
_END = _delta({}, "stop") + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@dataclass
class BenchUpstream:
    """Observations of the upstream: the number of requests, and when a blocked one arrived and was disconnected.

    `chunks` is the number of chunks that it streams.
    """

    port: int
    chunks: int = CHUNKS
    requests: int = 0
    opened: asyncio.Queue[float] = field(default_factory=asyncio.Queue)
    closed: asyncio.Queue[float] = field(default_factory=asyncio.Queue)


class _Connection(asyncio.Protocol):
    """A keep-alive connection that serves one request at a time."""

    def __init__(self, upstream: BenchUpstream) -> None:
        self._upstream = upstream
        self._buffer = b""
        self._blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(body) >= length:
            self._buffer = b""
            self._upstream.requests += 1
            self._answer(body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._blocked:
            self._upstream.closed.put_nowait(time.monotonic())

    def _answer(self, body: bytes) -> None:
        streamed = b'"stream":true' in body or b'"stream": true' in body
        if BLOCK.encode() in body:
            self._blocked = True
            self._upstream.opened.put_nowait(time.monotonic())
        elif streamed:
            self._transport.write(_STREAM_HEAD)
            self._stream(0, asyncio.get_running_loop().time())
        elif body.count(ROLL.encode()) > body.count(b'"tool"'):
            self._transport.write(_ROLLS)
        elif ASK.encode() in body:
            self._transport.write(_ASKS)
        else:
            self._transport.write(_VALUE if VALUE.encode() in body else _ANSWER)

    def _stream(self, sent: int, due: float) -> None:
        if sent == self._upstream.chunks:
            self._transport.write(_END)
        elif not self._transport.is_closing():
            self._transport.write(_DELTA % time.monotonic_ns())
            due += INTERVAL
            asyncio.get_running_loop().call_at(due, self._stream, sent + 1, due)


@asynccontextmanager
async def open_upstream() -> AsyncIterator[BenchUpstream]:
    """Serve the upstream on a free loopback port."""
    upstream = BenchUpstream(port=0)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(upstream), "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
