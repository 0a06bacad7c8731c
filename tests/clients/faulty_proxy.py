"""A proxy that cuts the connection after every frame of a stream of events, or swallows whole answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support.http_server import RunningServer

_END_OF_FRAME = b"\n\n"


@dataclass
class FaultyProxy:
    """A proxy in front of a server. It closes the first `swallowed` connections when their answers come."""

    host: str
    port: int
    swallowed: int = 0
    url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        upstream_reader, upstream = await asyncio.open_connection(self.host, self.port)
        sending = asyncio.create_task(self._send(reader, upstream))
        try:
            await self._answer(upstream_reader, writer)
        finally:
            sending.cancel()
            writer.close()
            upstream.close()

    async def _send(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(2**16):
                self.requests.append(data)
                upstream.write(data)
                await upstream.drain()

    async def _answer(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_stream = False
        with suppress(ConnectionError):
            while data := await upstream.read(2**16):
                if self.swallowed:
                    self.swallowed -= 1
                    return
                is_stream = is_stream or b"text/event-stream" in data
                frame, end, _ = data.partition(_END_OF_FRAME)
                writer.write(frame + end if is_stream else data)
                await writer.drain()
                if is_stream and end:
                    return


@asynccontextmanager
async def faulty_proxy(served: RunningServer, *, swallowed: int = 0) -> AsyncIterator[FaultyProxy]:
    """Run a proxy in front of the server."""
    proxy = FaultyProxy(served.host, served.port, swallowed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = "http://{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield proxy
    finally:
        server.close()
