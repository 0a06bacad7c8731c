"""Opens the database that a storage URL names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from app.adapters.stores.database import Database
from app.adapters.stores.postgres import PostgresDatabase, open_postgres
from app.adapters.stores.sqlite import SqliteDatabase, open_sqlite, open_sqlite_read_only
from app.domain.failures import Code, ConfigurationFailure
from app.ports.runtime import Clock, Entropy

_SCHEME = "sqlite://"


def is_sqlite_url(url: str) -> bool:
    """Whether the URL names a SQLite file; any other names a PostgreSQL database."""
    return url.startswith(_SCHEME)


def sqlite_path(url: str) -> str:
    """The path of the SQLite file that the URL names; empty for one that is gone when it is closed."""
    return url.removeprefix(_SCHEME).removeprefix("/")


@asynccontextmanager
async def open_database(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[SqliteDatabase | PostgresDatabase]:
    """`postgresql://…`, `sqlite:///relative/path`, `sqlite:////absolute/path`, or `sqlite://`.

    The last is a file that is gone when it is closed. Raises: ConfigurationFailure, StorageFailure.
    """
    if not is_sqlite_url(url):
        async with open_postgres(url, clock, entropy) as shared:
            yield shared
        return
    path = sqlite_path(url)
    if path:
        async with open_sqlite(Path(path)) as database:
            yield database
        return
    with TemporaryDirectory(prefix="portico-") as directory:
        async with open_sqlite(Path(directory) / "portico.db") as database:
            yield database


@asynccontextmanager
async def open_read_only(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[Database]:
    """The database of that storage URL. Raises: ConfigurationFailure (CONFIG_INVALID); StorageFailure."""
    if not is_sqlite_url(url):
        async with open_postgres(url, clock, entropy, read_only=True) as shared:
            yield shared
        return
    async with open_sqlite_read_only(_existing(url)) as database:
        yield database


def _existing(url: str) -> Path:
    path = Path(sqlite_path(url))
    if not path.is_file():
        raise ConfigurationFailure(Code.CONFIG_INVALID, "storage.url names no SQLite file that is there")
    return path
