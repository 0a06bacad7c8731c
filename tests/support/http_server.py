"""The application behind its real server, in this process, on a loopback socket."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import orjson
import uvicorn
from anyio.abc import SocketStream
from starlette.applications import Starlette
from uvicorn.server import ServerState

from portico.entrypoints.http.protocol import BoundedProtocol

_DESCRIPTION = Path(__file__).parents[2] / "openapi" / "openapi.json"


@dataclass
class HttpAnswer:
    """A response as it was received; header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)


class ClientConnection:
    """The client's end of one connection, for tests of single bytes."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._unread = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def until(self, marker: bytes) -> bytes:
        """Read up to and including the marker. Raises: EndOfStream if the server closes before."""
        while marker not in self._unread:
            self._unread += await self.stream.receive()
        found, _, self._unread = self._unread.partition(marker)
        return found + marker

    async def exactly(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._unread += await self.stream.receive()
        found, self._unread = self._unread[:size], self._unread[size:]
        return found

    async def head(self) -> tuple[int, dict[str, str]]:
        """Return status and headers of the next response."""
        first, *lines = (await self.until(b"\r\n\r\n")).decode().splitlines()
        pairs = (line.split(": ", 1) for line in lines if line)
        return int(first.split()[1]), {name.lower(): value for name, value in pairs}

    async def chunk(self) -> bytes:
        """Return the next chunk of a chunked body; empty at its end."""
        size = int(await self.until(b"\r\n"), 16)
        return (await self.exactly(size + 2))[:-2]

    async def answer(self) -> HttpAnswer:
        """Return the next whole response."""
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while piece := await self.chunk():
                body += piece
        else:
            body = await self.exactly(int(headers.get("content-length", 0)))
        return HttpAnswer(status, headers, body)

    async def closed(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        rest, self._unread = self._unread, b""
        try:
            while True:
                rest += await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return rest


@dataclass
class RunningServer:
    """A running server, with methods that send requests."""

    host: str
    port: int
    state: ServerState = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[ClientConnection]:
        async with await anyio.connect_tcp(self.host, self.port) as stream:
            yield ClientConnection(stream)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        return await self.ask(request_bytes("GET", path, headers or {}))

    async def post(
        self, body: bytes, headers: Mapping[str, str] | None = None, path: str = "/v1/execute"
    ) -> HttpAnswer:
        named = {"Content-Type": "application/json", **(headers or {})}
        return await self.ask(request_bytes("POST", path, named, body))

    async def ask(self, request: bytes) -> HttpAnswer:
        """Send these bytes over a new connection and return the response, whose status must be described."""
        async with self.connect() as connection:
            await connection.send(request)
            answer = await connection.answer()
        check_described(request, answer)
        return answer

    def connected_sockets(self) -> Sequence[object]:
        """Return the server's ends of all open connections."""
        return [connection.transport.get_extra_info("socket") for connection in self.state.connections]


def request_bytes(method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Return the bytes of a request, with a Content-Length unless the headers have a length."""
    named = {"Host": "localhost", **headers}
    if body is not None and "Transfer-Encoding" not in named and "Content-Length" not in named:
        named["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")


@cache
def _described() -> Sequence[tuple[str, re.Pattern[str], frozenset[int]]]:
    """Return method, pattern of the path and statuses of every operation of the API description."""
    paths = orjson.loads(_DESCRIPTION.read_bytes())["paths"]
    return [
        (method.upper(), re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), frozenset(map(int, operation["responses"])))
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]


def check_described(request: bytes, answer: HttpAnswer) -> None:
    """Check that the API description lists the status of the answer, if the request is for one of its operations.

    Raises: AssertionError.
    """
    method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    for described_method, pattern, statuses in _described():
        if described_method == method and pattern.fullmatch(path):
            assert answer.status in statuses, f"{method} {pattern.pattern} does not describe status {answer.status}"
            return


@asynccontextmanager
async def running_server(app: Starlette, *, limit_concurrency: int | None = None) -> AsyncIterator[RunningServer]:
    """Serve the application with its lifespan, as `portico serve` does."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        limit_concurrency=limit_concurrency,
    )
    config.load()
    state = ServerState()
    async with app.router.lifespan_context(app):
        server = await asyncio.get_running_loop().create_server(
            lambda: BoundedProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        host, port = server.sockets[0].getsockname()
        try:
            yield RunningServer(host, port, state)
        finally:
            server.close()
            for connection in list(state.connections):
                connection.transport.abort()
            await asyncio.gather(*state.tasks)
            await server.wait_closed()
