"""Opens the database that a storage URL names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.adapters.stores.postgres import PostgresDatabase, open_postgres
from app.adapters.stores.sqlite import SqliteDatabase, open_sqlite
from app.ports import Clock, Entropy

_SCHEME = "sqlite://"


def is_sqlite(url: str) -> bool:
    """Whether the URL names a SQLite file; any other names a PostgreSQL database."""
    return url.startswith(_SCHEME)


def path_of(url: str) -> str:
    """The path of the SQLite file that the URL names; empty for one that is gone when it is closed."""
    return url.removeprefix(_SCHEME).removeprefix("/")


@asynccontextmanager
async def open_database(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[SqliteDatabase | PostgresDatabase]:
    """`postgresql://…`, `sqlite:///relative/path`, `sqlite:////absolute/path`, or `sqlite://`.

    The last is a file that is gone when it is closed. Raises: ConfigurationFailure, StorageFailure.
    """
    if not is_sqlite(url):
        async with open_postgres(url, clock, entropy) as shared:
            yield shared
        return
    path = path_of(url)
    if path:
        async with open_sqlite(Path(path)) as database:
            yield database
        return
    with TemporaryDirectory(prefix="portico-") as directory:
        async with open_sqlite(Path(directory) / "portico.db") as database:
            yield database
