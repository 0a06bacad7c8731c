"""Proxy between a client and a PostgreSQL server that simulates network failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

SOCKET = ".s.PGSQL.5432"
COMMIT = b"COMMIT\x00"


class PostgresProxy:
    """A proxy that clients reach at `url`."""

    def __init__(self, server: str, folder: Path) -> None:
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self.silent = False
        """True to drop all data of the server, while connections stay open."""
        self.lose_commits = 0
        """Number of answers to COMMIT that are lost together with their connection."""
        self.refusing = False
        """True to close new connections at once."""
        self.connections = 0
        self._server = Path(parse_qs(urlsplit(server).query)["host"][0]) / SOCKET
        self._open: set[asyncio.StreamWriter] = set()
        self._losing: set[asyncio.StreamWriter] = set()
        self._served: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close every connection and wait for its end."""
        self.cut()
        if self._served:
            await asyncio.wait(self._served)

    def cut(self) -> None:
        """Abort every connection."""
        for writer in list(self._open):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Serve one connection until either side closes it."""
        self.connections += 1
        if self.refusing:
            client.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        from_server, server = await asyncio.open_unix_connection(str(self._server))
        self._open |= {client, server}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, server, client))
                group.create_task(self._return(from_server, client, server))
        finally:
            self._open -= {client, server}

    async def _pass(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while data := await _read(reader):
            if COMMIT in data and self.lose_commits:
                self.lose_commits -= 1
                self._losing.add(client)
            server.write(data)
        server.transport.abort()

    async def _return(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        while data := await _read(reader):
            if client in self._losing:
                server.transport.abort()
                break
            if not self.silent:
                client.write(data)
        client.transport.abort()


@asynccontextmanager
async def postgres_proxy(server: str, folder: Path) -> AsyncIterator[PostgresProxy]:
    """Run a proxy in front of that server until the context ends."""
    proxy = PostgresProxy(server, folder)
    listening = await asyncio.start_unix_server(proxy.serve, str(folder / SOCKET))
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65_536)
    except ConnectionError:
        return b""
