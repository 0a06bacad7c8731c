"""A provider in a box: a loopback server that does to each request in turn exactly what a script says."""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import anyio

NO_LINGER = struct.pack("ii", 1, 0)


class UpstreamAction(Enum):
    """The actions of a script besides writing bytes."""

    CLOSE = "close"
    """End the connection as a server does that has nothing more to say."""
    RESET = "reset"
    """Break the connection, so that the peer sees a reset."""
    HANG = "hang"
    """Say nothing more until the peer leaves."""


@dataclass(frozen=True)
class UpstreamPause:
    """Say nothing for that many seconds, or until the peer leaves."""

    seconds: float


Step: TypeAlias = bytes | UpstreamPause | UpstreamAction
Script: TypeAlias = Sequence[Step]


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came. Header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class ScriptedUpstream:
    """Plays one script a request, in order, and the last one for all that follow.

    `requests` are those that came; `connections` counts what was accepted, `departures` holds the loop's time of each
    connection's end as the peer caused it: by leaving, or by being gone when something was written.
    """

    def __init__(self, *scripts: Script, deaf: bool = False, secure: ssl.SSLContext | None = None) -> None:
        self._scripts = list(scripts)
        self._deaf = deaf
        self._secure = secure
        self._left = asyncio.Condition()
        self._arrived = asyncio.Condition()
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.departures: list[float] = []
        self.url = ""
        self._open: set[asyncio.StreamWriter] = set()
        self._over = asyncio.Event()

    async def __aenter__(self) -> "ScriptedUpstream":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._secure, limit=2**20)
        scheme = "https" if self._secure else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._server.close()
        self._over.set()
        for writer in list(self._open):
            writer.transport.abort()
        async with self._left:
            await self._left.wait_for(lambda: not self._open)

    async def wait_for_requests(self, requests: int = 1) -> None:
        """Returns when that many requests have come in whole; a deaf upstream counts connections."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: (self.connections if self._deaf else len(self.requests)) >= requests)

    async def wait_for_departures(self, connections: int = 1) -> None:
        """Returns when that many connections were left by the peer."""
        async with self._left:
            await self._left.wait_for(lambda: len(self.departures) >= connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            if self._deaf:
                await self._ignore(writer)
            while not self._deaf and (request := await _request(reader)) is not None:
                self.requests.append(request)
                await self._notify(self._arrived)
                if not await self._play(self._next(), reader, writer):
                    return
            if not self._deaf:
                await self._departed()
        except (ConnectionError, asyncio.IncompleteReadError):
            await self._departed()
        finally:
            writer.close()
            self._open.discard(writer)
            await self._notify(self._left)

    async def _ignore(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()
        await self._notify(self._arrived)
        await self._over.wait()

    async def _departed(self) -> None:
        self.departures.append(asyncio.get_running_loop().time())
        await self._notify(self._left)

    def _next(self) -> Script:
        return self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]

    async def _play(self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Play a script; tell whether the connection may be used again."""
        for step in script:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case UpstreamPause(seconds):
                    with anyio.move_on_after(seconds):
                        await _gone(reader)
                case UpstreamAction.HANG:
                    await _gone(reader)
                case UpstreamAction.RESET:
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                    writer.transport.abort()
                    return False
                case UpstreamAction.CLOSE:
                    return False
        return True

    @staticmethod
    async def _notify(condition: asyncio.Condition) -> None:
        async with condition:
            condition.notify_all()


def reply(
    body: Any, *, status: int = 200, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> Script:
    """A whole answer: `body` as it is when it is bytes, else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return [_head(status, {"Content-Type": content_type, "Content-Length": str(len(data)), **(headers or {})}) + data]


def event_stream(*steps: Step, end: bool = True, content_type: str = "text/event-stream") -> Script:
    """A stream of which each bytes step is one HTTP chunk. Without `end` the body stays open."""
    script: list[Step] = [_head(200, {"Content-Type": content_type, "Transfer-Encoding": "chunked"})]
    script += [chunk(step) if isinstance(step, bytes) else step for step in steps]
    return [*script, b"0\r\n\r\n"] if end else script


def event(data: Any) -> bytes:
    """One event: `data` as it is when it is text, else as JSON."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def closed_port() -> AsyncIterator[str]:
    """Yield the address of a port without a server."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _request(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    """The next request, None when the peer leaves instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    start, *lines = head.decode("latin-1").strip().split("\r\n")
    method, path, _ = start.split(" ", 2)
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, path, headers, body)


async def _gone(reader: asyncio.StreamReader) -> None:
    """Returns never, raises when the peer has left."""
    if await reader.read(1) == b"":
        raise ConnectionResetError
