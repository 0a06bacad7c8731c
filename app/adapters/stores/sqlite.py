"""SQLite: one process owns the file, one thread writes it, another reads beside it.

WAL with `synchronous=FULL`, so what COMMIT returned for survives a power cut. A second process that wants to own the
file is refused when it starts, by a lock beside the file that ends with its process; who only reads, as the command
line does, needs no lock. A network file system keeps neither promise.
"""

import fcntl
import sqlite3
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import TextIO, TypeVar

import anyio

from app.adapters.stores.database import Parameters, ResultRows, StatementCall, Transaction
from app.adapters.stores.schema_upgrade import SELECT_REVISION, upgrade_sql
from app.domain.failures import Code, ConfigurationFailure, StorageFailure

T = TypeVar("T")
BUSY_TIMEOUT_MS = 5_000
ROWS_PER_INSERT = 32
"""In one insertion. Row by row the writer's thread would ask for the interpreter's lock several times a row, and
everybody else would be woken as often: that cost as much as writing them.
"""
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA temp_store = MEMORY",
)


class SqliteDatabase:
    """Implements `Database` on one file."""

    def __init__(self, writer: "_Thread", reader: "_Thread") -> None:
        self._writer = writer
        self._reader = reader

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        return await self._writer.run(work, "BEGIN IMMEDIATE")

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._writer.run(work, "BEGIN IMMEDIATE")

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._reader.run(work, "BEGIN DEFERRED")


@asynccontextmanager
async def open_sqlite(path: Path) -> AsyncIterator[SqliteDatabase]:
    """The database in that file, made and brought up to date where necessary, owned until the context ends.

    Raises: ConfigurationFailure (CONFIG_INVALID) when another process owns it; StorageFailure.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_owned(path))
        writer = await stack.enter_async_context(_thread(path, "portico-writes", connect=_owning))
        await writer.run_alone(_bring_up_to_date)
        reader = await stack.enter_async_context(_thread(path, "portico-reads", connect=_owning))
        await reader.run_alone(_only_read)
        yield SqliteDatabase(writer, reader)


@asynccontextmanager
async def open_sqlite_read_only(path: Path) -> AsyncIterator[SqliteDatabase]:
    """The database in that file as it is, beside whoever owns it; writing to it fails. Raises: StorageFailure."""
    async with _thread(path, "portico-looks", connect=_beside) as looker:
        yield SqliteDatabase(looker, looker)


class _Thread:
    """A connection and the one thread that uses it."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self._executor = executor
        self._connection: sqlite3.Connection | None = None

    async def run_alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Its caller waits for the end of it although it is cancelled, since nothing can stop a thread."""
        job = get_running_loop().run_in_executor(self._executor, self._translated, work)
        with anyio.CancelScope(shield=True):
            await job
        return job.result()

    async def run(self, work: Callable[[], Transaction[T]], begin: str) -> T:
        return await self.run_alone(lambda connection: run_transaction(connection, work(), begin))

    def connect(self, path: Path, connect: Callable[[Path], sqlite3.Connection]) -> None:
        self._connection = connect(path)

    def _translated(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            assert self._connection is not None  # noqa: S101 - a thread connects before it is handed out
            return work(self._connection)
        except sqlite3.Error as fault:
            raise _failure(fault) from fault


@asynccontextmanager
async def _thread(path: Path, name: str, *, connect: Callable[[Path], sqlite3.Connection]) -> AsyncIterator[_Thread]:
    with ThreadPoolExecutor(1, thread_name_prefix=name) as executor:
        thread = _Thread(executor)
        await get_running_loop().run_in_executor(executor, _connect, thread, path, connect)
        try:
            yield thread
        finally:
            await thread.run_alone(sqlite3.Connection.close)


@asynccontextmanager
async def _owned(path: Path) -> AsyncIterator[None]:
    with _lock_beside(path) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            message = "another process owns the SQLite file of storage.url; several replicas need PostgreSQL"
            raise ConfigurationFailure(Code.CONFIG_INVALID, message) from taken
        yield


def _lock_beside(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.with_name(f"{path.name}.lock").open("w", encoding="utf-8")
    except OSError as fault:
        message = "the directory of the SQLite file of storage.url cannot be written"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message) from fault


def _owning(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    return connection


def _beside(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", isolation_level=None, uri=True)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return connection


def _connect(thread: _Thread, path: Path, connect: Callable[[Path], sqlite3.Connection]) -> None:
    try:
        thread.connect(path, connect)
    except sqlite3.Error as fault:
        raise _failure(fault) from fault


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    current = connection.execute(SELECT_REVISION).fetchone()[0] if made else None
    if script := upgrade_sql("sqlite", current):
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nCOMMIT;")


def _only_read(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = ON")


def run_transaction(connection: sqlite3.Connection, work: Transaction[T], begin: str) -> T:
    connection.execute(begin)
    try:
        result = _drive(connection, work)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _drive(connection: sqlite3.Connection, work: Transaction[T]) -> T:
    answer: ResultRows | None = None
    while True:
        try:
            asked = next(work) if answer is None else work.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = _answer(connection, asked)


def _answer(connection: sqlite3.Connection, asked: StatementCall) -> ResultRows:
    compiled = asked.statement.compiled("sqlite")
    if compiled.returns_rows:
        return [
            row for values in asked.parameters for row in connection.execute(compiled.sql, compiled.parameters(values))
        ]
    if not compiled.row_placeholder:
        connection.executemany(compiled.sql, map(compiled.parameters, asked.parameters))
        return ()
    count = 0
    for rows in _pieces(asked.parameters):
        given = tuple(chain.from_iterable(map(compiled.parameters, rows)))
        count += connection.execute(compiled.for_rows(len(rows)), given).rowcount
    return ((count,),) if asked.count_only else ()


def _pieces(values: Sequence[Parameters]) -> Iterator[Sequence[Parameters]]:
    """The rows in few sizes, so that their statements are prepared once."""
    taken = 0
    while taken < len(values):
        size = min(ROWS_PER_INSERT, 1 << (len(values) - taken).bit_length() - 1)
        yield values[taken : taken + size]
        taken += size


def _failure(fault: sqlite3.Error) -> StorageFailure:
    """Only the outermost cause is told; what SQLite says may hold a path."""
    if getattr(fault, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StorageFailure(Code.STORAGE_FULL, "the disk has no room", retry_after=_RETRY_AFTER)
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=_RETRY_AFTER)


_RETRY_AFTER = 1.0
