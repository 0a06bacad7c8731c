"""Cheap clients: raw HTTP/1.1 over loopback, one request at a time on each connection."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from bench.upstream import CHUNKS

ROUND_SECONDS = 60
_CHUNK = re.compile(rb"t(\d{9,20})\.")
_CARRIED_BYTES = 64
NATIVE_END = b"event: execution."
"""Begin of the event that ends a stream of `execute`."""
_KEY = b"key-%020d" % 0
"""Placeholder of the key in a keyed request."""


def request(
    body: Mapping[str, object], *, stream: bool = False, keyed: bool = False, path: str = "/v1/execute"
) -> bytes:
    """Return one `POST` as bytes; a keyed one gets a new Idempotency-Key each time it is sent."""
    data = orjson.dumps(body)
    accept = "text/event-stream" if stream else "application/json"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
    key = f"Idempotency-Key: {_KEY.decode()}\r\n" if keyed else ""
    return f"{head}{key}Content-Length: {len(data)}\r\n\r\n".encode() + data


def authorized(request: bytes, key: str) -> bytes:
    """Return the request with that key as its credentials."""
    head, end, body = request.partition(b"\r\n\r\n")
    return head + f"\r\nAuthorization: Bearer {key}".encode() + end + body


async def read_events(port: int, path: str) -> int:
    """Read a whole stream of events and return their number."""
    return (await get(port, path)).count(b"\nevent: ")


async def get(port: int, path: str) -> bytes:
    """Return a whole answer, head included."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = bytearray()
    while data := await reader.read(2**18):
        answer += data
    writer.close()
    return bytes(answer)


@dataclass
class RequestRound:
    """Equal requests that the connections share; every answer must contain `expected`."""

    request: bytes
    expected: bytes
    remaining: int
    status: int = 200
    in_flight: int = 0
    latencies: list[float] = field(default_factory=list)
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def fail(self, message: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(message))

    def answered(self, seconds: float) -> None:
        self.latencies.append(seconds)
        self.in_flight -= 1
        if not self.remaining and not self.in_flight and not self.done.done():
            self.done.set_result(None)


class _Connection(asyncio.Protocol):
    """A keep-alive connection that sends the requests of its round until none remains."""

    def __init__(self) -> None:
        self._round: RequestRound | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._round is not None and not self._round.done.done():
            self._round.fail("The service closed a connection.")

    def close(self) -> None:
        self._round = None
        self._transport.close()

    def join(self, round_: RequestRound) -> None:
        """Start to send requests of this round."""
        self._round = round_
        self._send(round_)

    def _send(self, round_: RequestRound) -> None:
        if self._transport.is_closing():
            round_.fail("The service closed an idle connection.")
        elif round_.remaining:
            round_.remaining -= 1
            round_.in_flight += 1
            self._sent_at = time.perf_counter()
            self._transport.write(round_.request.replace(_KEY, b"key-%020d" % time.monotonic_ns(), 1))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n") + 4
        if end < 4 or self._round is None:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or -1)
        if length < 0:
            self._round.fail(f"An answer has no Content-Length: {head[:200]!r}")
        elif len(self._buffer) >= end + length:
            self._take(self._round, bytes(self._buffer[: end + length]))

    def _take(self, round_: RequestRound, answer: bytes) -> None:
        self._buffer.clear()
        if not answer.startswith(b"HTTP/1.1 %d" % round_.status) or round_.expected not in answer:
            round_.fail(f"Unexpected answer: {answer[:2000]!r}")
            return
        round_.answered(time.perf_counter() - self._sent_at)
        self._send(round_)


class Connections:
    """Open keep-alive connections to one service."""

    def __init__(self, connections: list[_Connection]) -> None:
        self._connections = connections

    async def run(self, request: bytes, count: int, *, expected: bytes, status: int = 200) -> list[float]:
        """Send `count` requests over all connections and return their latencies in seconds.

        Raises: RuntimeError if an answer has another status or does not contain `expected`.
        """
        round_ = RequestRound(request, expected, count, status)
        for connection in self._connections:
            connection.join(round_)
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                await round_.done
        except TimeoutError:
            answered = len(round_.latencies)
            raise RuntimeError(f"Only {answered} of {count} answers arrived within {ROUND_SECONDS} seconds.") from None
        return round_.latencies


@asynccontextmanager
async def open_connections(port: int, count: int) -> AsyncIterator[Connections]:
    """Open keep-alive connections to a loopback port and close them at the end."""
    loop = asyncio.get_running_loop()
    opened = [(await loop.create_connection(_Connection, "127.0.0.1", port))[1] for _ in range(count)]
    try:
        yield Connections(opened)
    finally:
        for connection in opened:
            connection.close()


class StreamClient(asyncio.Protocol):
    """A client that reads one stream of events and the times that the upstream wrote into its chunks.

    `delays` are the seconds between the upstream's write and this client's read, in order. The chunks end with the
    first of the `ends`, and the stream with the last one.
    """

    def __init__(self, request: bytes, ends: Sequence[bytes] = (NATIVE_END,)) -> None:
        self._request = request
        self._ends = ends
        self._carry = b""
        self._rest = b""
        self._ended = False
        self.delays: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._ended:
            return
        if self._rest:
            self._take_rest(data)
            return
        live, terminal, rest = (self._carry + data).partition(self._ends[0])
        last = 0
        for chunk in _CHUNK.finditer(live):
            self.delays.append((now - int(chunk[1])) / 1e9)
            last = chunk.end()
        self._carry = live[max(last, len(live) - _CARRIED_BYTES) :]
        if terminal:
            self._take_rest(terminal + rest)

    def _take_rest(self, data: bytes) -> None:
        """Take what follows the chunks, and leave at the end of the stream."""
        self._rest += data
        if self._ends[-1] in self._rest:
            self._ended = True
            self._transport.close()
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def abort(self) -> None:
        """Close the connection abruptly."""
        self._ended = True
        self._transport.abort()

    def _finish(self) -> None:
        if self.done.done():
            return
        if len(self.delays) == CHUNKS:
            self.done.set_result(None)
        else:
            self.done.set_exception(
                RuntimeError(f"Only {len(self.delays)} of {CHUNKS} chunks arrived: {self._carry[-300:]!r}")
            )


async def open_stream_client(port: int, request: bytes, ends: Sequence[bytes] = (NATIVE_END,)) -> StreamClient:
    """Send one request for a stream and return the client that reads it."""
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(lambda: StreamClient(request, ends), "127.0.0.1", port)
    return reader
