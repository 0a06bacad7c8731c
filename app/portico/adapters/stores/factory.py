"""Factory of databases, by storage URL."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from errno import EEXIST
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, case, func, not_, select

from portico.adapters.stores.database import Database, Statement, execute
from portico.adapters.stores.open_failures import named_sqlite
from portico.adapters.stores.schema import executions
from portico.adapters.stores.sqlite import SqliteDatabase, open_sqlite, open_sqlite_beside, open_sqlite_read_only
from portico.domain.failures import Code, ConfigurationFailure
from portico.ports.runtime import Clock, Entropy

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase


def _postgres_state(_: object) -> Select[Any]:
    """Return the query of what a service would find: `read-only`, `empty` or `tables`."""
    table = func.to_regclass("executions")
    may_insert = func.has_table_privilege(table, "INSERT")
    may_create = func.has_schema_privilege(func.current_schema(), "CREATE")
    may_write = not_(func.pg_is_in_recovery()) & func.coalesce(may_insert, may_create)
    return select(case((not_(may_write), "read-only"), (table.is_(None), "empty"), else_="tables"))


_POSTGRES_STATE = Statement(_postgres_state)
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
                [(state,)] = await shared.read(lambda: execute(_POSTGRES_STATE, {}))
        if state == "read-only":
            raise ConfigurationFailure(Code.CONFIG_INVALID, "storage.url: this user cannot write the database")
        return "tables found" if state == "tables" else "no tables yet; the service creates them"
    path = Path(sqlite_path(url))
    if not sqlite_path(url):
        return "in memory; lost when the service stops"
    try:
        found = is_writable_file(path)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"storage.url: cannot write {path}: {reason}") from error
    if not found:
        return f"no file {path} yet; the service creates it"
    async with open_read_only(url, clock, entropy):
        return f"{path} found"


def is_writable_file(path: Path) -> bool:
    """Return False if there is no such file, but one can be made.

    It is tried: a file of that name is made in a folder beside it, which is removed. Rights alone do not say it, since
    root has all of them, and a file system may be read-only or full. Raises: OSError.
    """
    place = next(each for each in path.absolute().parents if each.exists())
    with TemporaryDirectory(prefix=".portico-check-", dir=place) as scratch:
        trial = Path(scratch) / path.absolute().relative_to(place)
        trial.parent.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"\0")
    if path.is_file():
        path.open("r+b").close()
        return True
    if path.exists():
        raise FileExistsError(EEXIST, "it is no file")
    return False


def _existing_file(url: str) -> Path:
    path = Path(sqlite_path(url))
    if not path.is_file():
        raise ConfigurationFailure(Code.CONFIG_INVALID, f"storage.url: there is no SQLite file {path}")
    return path
