"""Factory of databases, by storage URL."""

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
    """Return whether the URL is that of a SQLite file; any other URL is that of a PostgreSQL database."""
    return url.startswith(_SCHEME)


def sqlite_path(url: str) -> str:
    """Return the path of a SQLite URL; it is empty for a temporary file."""
    return url.removeprefix(_SCHEME).removeprefix("/")


@asynccontextmanager
async def open_database(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[SqliteDatabase | PostgresDatabase]:
    """Open the database at `postgresql://…`, `sqlite:///relative/path`, `sqlite:////absolute/path` or `sqlite://`.

    The last is a temporary file, deleted when the context ends. Raises: ConfigurationFailure; StorageFailure.
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
    """Open the database at that URL for reading; it is neither locked nor upgraded.

    Raises: ConfigurationFailure (CONFIG_INVALID); StorageFailure.
    """
    if not is_sqlite_url(url):
        async with open_postgres(url, clock, entropy, read_only=True) as shared:
            yield shared
        return
    async with open_sqlite_read_only(_existing_file(url)) as database:
        yield database


def _existing_file(url: str) -> Path:
    path = Path(sqlite_path(url))
    if not path.is_file():
        raise ConfigurationFailure(Code.CONFIG_INVALID, "storage.url is not the URL of an existing SQLite file")
    return path
