"""Factory of databases, by storage URL."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from portico.adapters.stores.database import Database, Statement, execute
from portico.adapters.stores.open_failures import named_sqlite
from portico.adapters.stores.schema import executions
from portico.adapters.stores.sqlite import SqliteDatabase, open_sqlite, open_sqlite_beside, open_sqlite_read_only
from portico.domain.failures import Code, ConfigurationFailure
from portico.ports.runtime import Clock, Entropy

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase

_HAS_TABLES = Statement(lambda _: select(func.to_regclass("executions").is_not(None)))
_ANY_EXECUTION = Statement(lambda _: select(executions.c.execution_id).limit(1))
_SCHEME = "sqlite://"


def is_sqlite_url(url: str) -> bool:
    """Return whether the URL is that of a SQLite file; any other URL is that of a PostgreSQL database."""
    return url.startswith(_SCHEME)


def sqlite_path(url: str) -> str:
    """Return the path of a SQLite URL; it is empty for a temporary file."""
    return url.removeprefix(_SCHEME).removeprefix("/")


@asynccontextmanager
async def open_database(
    url: str, clock: Clock, entropy: Entropy, *, statement_timeout: float = 5.0
) -> AsyncIterator["SqliteDatabase | PostgresDatabase"]:
    """Open the database at `postgresql://…`, `sqlite:///relative/path`, `sqlite:////absolute/path` or `sqlite://`.

    The last is a temporary file, deleted when the context ends. `statement_timeout`, in seconds, applies to PostgreSQL.
    Raises: ConfigurationFailure; StorageFailure.
    """
    async with AsyncExitStack() as stack:
        if not is_sqlite_url(url):
            from portico.adapters.stores.postgres import PostgresTimeouts, open_postgres  # noqa: PLC0415 - SQLite needs no driver
            from portico.adapters.stores.postgres_open_failures import named_postgres  # noqa: PLC0415 - see above

            timeouts = PostgresTimeouts(statement=statement_timeout)
            with named_postgres(url):
                shared = await stack.enter_async_context(open_postgres(url, clock, entropy, timeouts=timeouts))
            yield shared
            return
        path = Path(sqlite_path(url) or f"{stack.enter_context(TemporaryDirectory(prefix='portico-'))}/portico.db")
        with named_sqlite(path):
            database = await stack.enter_async_context(open_sqlite(path))
        yield database


@asynccontextmanager
async def open_beside(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[Database]:
    """Open the database at that URL for a command that writes, while servers may run on it.

    Raises: ConfigurationFailure (CONFIG_INVALID); StorageFailure.
    """
    async with AsyncExitStack() as stack:
        if not is_sqlite_url(url):
            from portico.adapters.stores.postgres import open_postgres  # noqa: PLC0415 - SQLite needs no driver
            from portico.adapters.stores.postgres_open_failures import named_postgres  # noqa: PLC0415 - see above

            with named_postgres(url):
                shared = await stack.enter_async_context(open_postgres(url, clock, entropy))
            yield shared
            return
        if not sqlite_path(url):
            message = "storage.url: sqlite:// is lost when this command ends; name a file"
            raise ConfigurationFailure(Code.CONFIG_INVALID, message)
        path = Path(sqlite_path(url))
        with named_sqlite(path):
            database = await stack.enter_async_context(open_sqlite_beside(path))
        yield database


@asynccontextmanager
async def open_read_only(url: str, clock: Clock, entropy: Entropy) -> AsyncIterator[Database]:
    """Open the database at that URL for reading; it is neither locked nor created.

    Raises: ConfigurationFailure (CONFIG_INVALID); StorageFailure.
    """
    async with AsyncExitStack() as stack:
        if not is_sqlite_url(url):
            from portico.adapters.stores.postgres import open_postgres  # noqa: PLC0415 - SQLite needs no driver
            from portico.adapters.stores.postgres_open_failures import named_postgres  # noqa: PLC0415 - see above

            with named_postgres(url):
                shared = await stack.enter_async_context(open_postgres(url, clock, entropy, read_only=True))
                await shared.read(lambda: execute(_ANY_EXECUTION, {}))
            yield shared
            return
        path = _existing_file(url)
        with named_sqlite(path):
            database = await stack.enter_async_context(open_sqlite_read_only(path))
            await database.read(lambda: execute(_ANY_EXECUTION, {}))
        yield database


async def check_database(url: str, clock: Clock, entropy: Entropy) -> str:
    """Return in a few words what a service finds at that URL, while another process may own it.

    Raises: ConfigurationFailure (CONFIG_INVALID); StorageFailure.
    """
    if not is_sqlite_url(url):
        from portico.adapters.stores.postgres import open_postgres  # noqa: PLC0415 - SQLite needs no driver
        from portico.adapters.stores.postgres_open_failures import named_postgres  # noqa: PLC0415 - see above

        with named_postgres(url):
            async with open_postgres(url, clock, entropy, read_only=True) as shared:
                found = await shared.read(lambda: execute(_HAS_TABLES, {}))
        return "tables found" if found[0][0] else "no tables yet; the service creates them"
    path = Path(sqlite_path(url))
    if not sqlite_path(url):
        return "in memory; lost when the service stops"
    if not _is_writable_file(path):
        return f"no file {path} yet; the service creates it"
    async with open_read_only(url, clock, entropy):
        return f"{path} found"


def _is_writable_file(path: Path) -> bool:
    """Return False if there is no such file. Raises: ConfigurationFailure if it cannot be written or created."""
    place = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not os.access(place, os.W_OK) or (place != path and not place.is_dir()):
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"storage.url: cannot write {place}")
    return place == path


def _existing_file(url: str) -> Path:
    path = Path(sqlite_path(url))
    if not path.is_file():
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"storage.url: there is no SQLite file {path}")
    return path
