"""Opens the database that a storage URL names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.adapters.stores.postgres import PostgresDatabase, open_postgres
from app.adapters.stores.sqlite import SqliteDatabase, open_sqlite
from app.ports import Clock, Entropy

_SCHEME = "sqlite://"


@asynccontextmanager
async def open_database(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[SqliteDatabase | PostgresDatabase]:
    """`postgresql://…`, `sqlite:///relative/path`, `sqlite:////absolute/path`, or `sqlite://`.

    The last is a file that is gone when it is closed. Raises: ConfigurationFailure, StorageFailure.
    """
    if not url.startswith(_SCHEME):
        async with open_postgres(url, clock, entropy) as shared:
            yield shared
        return
    path = url.removeprefix(_SCHEME).removeprefix("/")
    if path:
        async with open_sqlite(Path(path)) as database:
            yield database
        return
    with TemporaryDirectory(prefix="portico-") as directory:
        async with open_sqlite(Path(directory) / "portico.db") as database:
            yield database
