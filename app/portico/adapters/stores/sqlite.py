"""SQLite database: one process owns the file, one thread writes it and another one reads it.

With WAL and `synchronous=FULL`, committed data survives a power cut. A lock on the file itself, under any of its
names, refuses a second owner at start; it is released when its process ends. SQLite locks ranges of bytes, which this
lock of the whole file does not touch. Read-only access, as by the command line, needs no lock. Neither holds on a
network file system.

What is deleted is overwritten with zeros in its page. The write-ahead log still has the page as it was before, until it
is copied into the file and truncated after the transactions that delete.

Only the owner may read the file and the folders that are made for it. SQLite gives its log the same mode.
"""

import fcntl
import os
import resource
import sqlite3
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeVar

import anyio
from sqlalchemy import literal_column, select, text

from portico.adapters.stores.database import Parameters, ResultRows, Statement, StatementCall, Transaction, execute
from portico.adapters.stores.health import StorageHealth
from portico.adapters.stores.job_thread import JobThread
from portico.adapters.stores.schema_creation import SELECT_SCHEMA_ID, creation_sql, require_schema
from portico.domain.failures import Code, ConfigurationFailure, StorageFailure

T = TypeVar("T")
_RETRY_AFTER = 1.0
BUSY_TIMEOUT_MS = 5_000
ROWS_PER_INSERT = 32
"""Inserting row by row, the writer's thread would take the interpreter's lock several times a row, which costs as much
as writing the rows.
"""
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_WRITE_ERRORS = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMSIZE})
_READ_ONLY_FOLDER = frozenset({sqlite3.SQLITE_READONLY_DIRECTORY, sqlite3.SQLITE_CANTOPEN})
_OWNER_ONLY = 0o600
_PROBE = "-" * 65_536
"""Name of a replica that is written to see whether there is room again: more bytes than most commits have."""
_SIZE = Statement(
    lambda _: select(literal_column("page_count * page_size")).select_from(
        text("pragma_page_count(), pragma_page_size()")
    )
)
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA secure_delete = ON",
)


class SqliteDatabase:
    """Implementation of `Database` on one file."""

    def __init__(self, writer: "_Thread", reader: "_Thread") -> None:
        self.health = StorageHealth()
        self._writer = writer
        self._reader = reader

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        return await self._run(self._writer, partial(_run_write, work=work))

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._run(self._writer, partial(_run_write, work=work))

    async def maintain(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._run(self._writer, partial(_run_maintenance, work=work))

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._run(self._reader, lambda connection: run_transaction(connection, work(), "BEGIN DEFERRED"))

    async def size(self) -> int:
        """Return the size of the database in bytes, without its write-ahead log."""
        rows = await self.read(lambda: execute(_SIZE, {}))
        size: int = rows[0][0]
        return size

    async def check(self) -> None:
        await self._run(self._reader, _read_schema)
        if self.health.needs_write:
            await self._run(self._writer, _write_probe)

    async def _run(self, thread: "_Thread", work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work on that thread and record its success.

        After a failed write, only one that changes something shows that there is room.
        """
        writing, has_changed = thread is self._writer, True
        try:
            if writing and self.health.needs_write:
                result, has_changed = await thread.run_alone(partial(_run_watched, work=work))
            else:
                result = await thread.run_alone(work)
        except StorageFailure as failure:
            self.health.failed(failure, writing=writing, is_damage=_is_damage(failure.__cause__))
            raise
        self.health.succeeded(writing=writing and has_changed)
        return result


@asynccontextmanager
async def open_sqlite(path: Path) -> AsyncIterator[SqliteDatabase]:
    """Open the database in that file as its owner; create it if necessary.

    Raises: ConfigurationFailure (CONFIG_INVALID) if another process owns it or an unreleased version made it;
    StorageFailure.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(locked_file(path))
        writer = await stack.enter_async_context(_thread(path, "portico-writes", connect=_connect_as_owner))
        await writer.run_alone(_create_schema)
        reader = await stack.enter_async_context(_thread(path, "portico-reads", connect=_connect_as_owner))
        await reader.run_alone(_forbid_writes)
        yield SqliteDatabase(writer, reader)


@asynccontextmanager
async def open_sqlite_read_only(path: Path) -> AsyncIterator[SqliteDatabase]:
    """Open the database in that file read-only, while another process may own it.

    Raises: ConfigurationFailure (CONFIG_INVALID) if an unreleased version made it; StorageFailure.
    """
    async with _thread(path, "portico-reads", connect=connect_read_only) as reader:
        await reader.run_alone(has_schema)
        yield SqliteDatabase(reader, reader)


@asynccontextmanager
async def open_sqlite_beside(path: Path) -> AsyncIterator[SqliteDatabase]:
    """Open the database in that file for a command, also while a server owns it; create it if necessary.

    Raises: ConfigurationFailure (CONFIG_INVALID) if the file belongs to another user or an unreleased version made it;
    StorageFailure.
    """
    require_own_file(path)
    async with AsyncExitStack() as stack:
        with suppress(FileOwnedError):
            stack.enter_context(locked_file(path))
        thread = await stack.enter_async_context(_thread(path, "portico-writes", connect=_connect_as_owner))
        await thread.run_alone(_create_schema)
        yield SqliteDatabase(thread, thread)


class FileOwnedError(ConfigurationFailure):
    """Failure to open a file that another process owns."""


class _Thread:
    """A connection and the one thread that uses it."""

    def __init__(self, executor: JobThread) -> None:
        self._executor = executor
        self._connection: sqlite3.Connection | None = None

    async def run_alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work on the thread. A cancelled caller waits for its end too, because a thread cannot be stopped."""
        job = get_running_loop().run_in_executor(self._executor, self._with_connection, work)
        with anyio.CancelScope(shield=True):
            await job
        return job.result()

    def connect(self, path: Path, connect: Callable[[Path], sqlite3.Connection]) -> None:
        self._connection = connect(path)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            assert self._connection is not None  # noqa: S101 - a thread connects before it is handed out
            return work(self._connection)
        except sqlite3.Error as fault:
            raise storage_failure(fault) from fault


@asynccontextmanager
async def _thread(path: Path, name: str, *, connect: Callable[[Path], sqlite3.Connection]) -> AsyncIterator[_Thread]:
    with JobThread(name) as executor:
        thread = _Thread(executor)
        await get_running_loop().run_in_executor(executor, _connect_thread, thread, path, connect)
        try:
            yield thread
        finally:
            await thread.run_alone(sqlite3.Connection.close)


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of the file, which is created if necessary, and close it last.

    Closing any descriptor of a file releases the locks that SQLite holds on it in this process. Raises:
    ConfigurationFailure if the file cannot be written; FileOwnedError.
    """
    with _open_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            message = "another process owns the SQLite file of storage.url; several replicas need PostgreSQL"
            raise FileOwnedError(Code.CONFIG_INVALID, message) from taken
        yield


def _open_file(path: Path) -> BinaryIO:
    """Open the file, readable for its owner only, as are the folders that are made for it."""
    try:
        _make_folders(path.absolute().parent)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _OWNER_ONLY), "ab")
    except OSError as fault:
        message = f"storage.url: cannot write {path}: {fault.strerror}"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message) from fault
    for each in (path, *(path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))):
        with suppress(OSError):  # the file of another user, or there is no log
            each.chmod(_OWNER_ONLY)
    return file


def _make_folders(folder: Path) -> None:
    """Make the folder and those above it, as far as they are missing. Raises: OSError."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def require_own_file(path: Path) -> None:
    """Refuse a file of another user, whose service could not write what this process creates beside it.

    Raises: ConfigurationFailure (CONFIG_INVALID).
    """
    place = next(each for each in (path, *path.absolute().parents) if each.exists())
    user, owner = os.geteuid(), place.stat().st_uid
    if owner != user and (place == path or user == 0):
        message = f"storage.url: {place} belongs to another user (uid {owner}); run the command as that user"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)


def _connect_as_owner(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    with _closing_on_error(connection):
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    return connection


@contextmanager
def _closing_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error:
        connection.close()
        raise


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Connect without writing; where SQLite may not even create its index of the log, the file cannot change."""
    url = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(url, isolation_level=None, uri=True)
    try:
        with _closing_on_error(connection):
            _read_schema(connection)
    except sqlite3.OperationalError as fault:
        if fault.sqlite_errorcode not in _READ_ONLY_FOLDER or _has_log(path):
            raise
        connection = sqlite3.connect(f"{url}&immutable=1", isolation_level=None, uri=True)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return connection


def _has_log(path: Path) -> bool:
    """Return True if commits of the database are in its write-ahead log only."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _connect_thread(thread: _Thread, path: Path, connect: Callable[[Path], sqlite3.Connection]) -> None:
    try:
        thread.connect(path, connect)
    except sqlite3.Error as fault:
        raise storage_failure(fault) from fault


def has_schema(connection: sqlite3.Connection) -> bool:
    """Return False for an empty file. Raises: ConfigurationFailure (CONFIG_INVALID) if it has another schema."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone() is None:
        return False
    require_schema(connection.execute(SELECT_SCHEMA_ID).fetchone()[0])
    return True


def _create_schema(connection: sqlite3.Connection) -> None:
    """Create the schema in an empty file. Raises: ConfigurationFailure (CONFIG_INVALID) if it has another schema."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not has_schema(connection):
            for statement in creation_sql("sqlite"):
                connection.execute(statement)


def _forbid_writes(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = ON")


def _read_schema(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _write_probe(connection: sqlite3.Connection) -> None:
    """Write and delete a row that is never read: this database has no other replicas."""
    connection.execute("INSERT OR REPLACE INTO replicas (replica, beats) VALUES (?, 0)", (_PROBE,))
    connection.execute("DELETE FROM replicas WHERE replica = ?", (_PROBE,))


def _run_maintenance(connection: sqlite3.Connection, work: Callable[[], Transaction[T]]) -> T:
    """Run the transaction, then truncate the log, unless a reader needs it now: the next maintenance does it then."""
    result = _run_write(connection, work)
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return result


def _run_watched(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> tuple[T, bool]:
    """Do the work, and return whether it has changed a row, too."""
    before = connection.total_changes
    return work(connection), connection.total_changes > before


def _run_write(connection: sqlite3.Connection, work: Callable[[], Transaction[T]]) -> T:
    return run_transaction(connection, work(), "BEGIN IMMEDIATE")


def run_transaction(connection: sqlite3.Connection, work: Transaction[T], begin: str) -> T:
    """Run the transaction between the statement `begin` and COMMIT; roll it back if it raises."""
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
    rows: ResultRows | None = None
    while True:
        try:
            call = next(work) if rows is None else work.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result
        rows = _execute(connection, call)


def _execute(connection: sqlite3.Connection, call: StatementCall) -> ResultRows:
    compiled = call.statement.compiled("sqlite")
    if compiled.returns_rows:
        return [row for each in call.parameters for row in connection.execute(compiled.sql, compiled.parameters(each))]
    if not compiled.row_placeholder:
        connection.executemany(compiled.sql, map(compiled.parameters, call.parameters))
        return ()
    count = 0
    for batch in _batches(call.parameters):
        parameters = tuple(chain.from_iterable(map(compiled.parameters, batch)))
        count += connection.execute(compiled.for_rows(len(batch)), parameters).rowcount
    return ((count,),) if call.count_only else ()


def _batches(values: Sequence[Parameters]) -> Iterator[Sequence[Parameters]]:
    """Split the rows into batches of few different sizes, so that each statement is prepared once."""
    taken = 0
    while taken < len(values):
        size = min(ROWS_PER_INSERT, 1 << (len(values) - taken).bit_length() - 1)
        yield values[taken : taken + size]
        taken += size


def storage_failure(fault: sqlite3.Error) -> StorageFailure:
    """Return a failure without SQLite's message, which may contain a path."""
    if _is_full(fault):
        return StorageFailure(Code.STORAGE_FULL, "the disk is full", retry_after=_RETRY_AFTER)
    if _is_damage(fault):
        return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database file is damaged")
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=_RETRY_AFTER)


def _is_full(fault: sqlite3.Error) -> bool:
    """Return True if there is no more room: on the disk, or because the size of this process's files is limited.

    SQLite reports the second, which fails with EFBIG, as an error of a write.
    """
    code = getattr(fault, "sqlite_errorcode", 0)
    is_limited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    return code == sqlite3.SQLITE_FULL or (is_limited and code in _WRITE_ERRORS)


def _is_damage(fault: BaseException | None) -> bool:
    """Return True if SQLite found the file damaged; the low byte is the primary code."""
    return getattr(fault, "sqlite_errorcode", 0) & 0xFF in _DAMAGE
