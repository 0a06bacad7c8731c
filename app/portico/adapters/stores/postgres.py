"""PostgreSQL database: the ordered writer has a connection of its own, everything else shares a small pool.

After any error or a cancelled query, a connection is discarded. A transaction is retried within its time, with jitter,
if the server aborted it because of others (40001, 40P01) or if the connection broke before COMMIT. If it broke during
COMMIT, only an idempotent transaction is retried. Timeouts close the connection of a server that does not answer,
because cancelling a query would need an answer; idle connections are closed with it, because they are no better.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias, TypeVar

import anyio
import asyncpg
from sqlalchemy import func, select

from portico.adapters.stores.database import ResultRows, Statement, StatementCall, Transaction, execute
from portico.adapters.stores.health import StorageHealth
from portico.adapters.stores.schema_creation import SELECT_SCHEMA_ID, creation_sql, require_schema
from portico.domain.failures import Code, Failure, StorageFailure
from portico.domain.value import value
from portico.ports.runtime import Clock, Entropy

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Connect: TypeAlias = "Callable[[], Awaitable[Connection]]"
_RETRY_AFTER = 1.0
SCHEMA_LOCK = 5_206_161_072_301_846
"""Key of the advisory lock under which one replica creates the schema; an arbitrary number."""
_SIZE = Statement(lambda _: select(func.pg_database_size(func.current_database())))
CONNECTION_ERRORS = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
)
"""Errors after which a connection cannot be used; asyncpg raises internal errors if one breaks during a message."""
_ABORTED = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


_CREATION_S = 3_600.0
_SECONDS_BEFORE_THE_SERVER = 0.5
"""A transaction is given up that long before the server would end its statement, so that the caller is answered."""


@value
class PostgresTimeouts:
    """Timeouts and delays in seconds.

    `statement` limits a statement, and a transaction with all of its tries is given up half a second earlier, but not
    before half of that time. It does not apply to `maintenance`, nor to the creation of the schema. `connect` and
    `acquire` limit one try to open a connection, and the wait for one that is free.
    """

    statement: float = 5.0
    maintenance: float = 60.0
    connect: float = 2.5
    acquire: float = 2.5
    initial_backoff: float = 0.05
    max_backoff: float = 1.0

    @property
    def transaction(self) -> float:
        """Return the seconds of a transaction with all of its tries."""
        return max(self.statement / 2, self.statement - _SECONDS_BEFORE_THE_SERVER)


DEFAULT_TIMEOUTS = PostgresTimeouts()


class _Pool:
    """At most `size` connections to one server, which are opened when needed and reused."""

    def __init__(self, connect: Connect, size: int, timeouts: PostgresTimeouts) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._capacity = anyio.Semaphore(size)
        self._timeouts = timeouts

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Acquire a connection, which is discarded after any exception. Raises: StorageFailure if none is free."""
        with anyio.move_on_after(self._timeouts.acquire) as waiting:
            await self._capacity.acquire()
        if waiting.cancelled_caught:
            raise _failure(None)
        try:
            connection = await self._idle_or_new()
            try:
                yield connection
            except BaseException:
                connection.terminate()
                raise
            self._idle.append(connection)
        finally:
            self._capacity.release()

    def close(self) -> None:
        """Close idle connections without waiting for the server."""
        while self._idle:
            self._idle.pop().terminate()

    async def _idle_or_new(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()


class PostgresDatabase:
    """Implementation of `Database` on one server."""

    def __init__(self, connect: Connect, clock: Clock, entropy: Entropy, timeouts: PostgresTimeouts, size: int) -> None:
        self.connect = connect
        self.health = StorageHealth()
        self._writer_pool = _Pool(connect, 1, timeouts)
        self._shared_pool = _Pool(connect, size, timeouts)
        self._clock = clock
        self._entropy = entropy
        self._timeouts = timeouts

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        return await self._access(
            lambda current: _transact(self._shared_pool, work(), current), writing=True, idempotent=idempotent
        )

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._access(lambda current: _transact(self._writer_pool, work(), current), writing=True)

    async def maintain(self, work: Callable[[], Transaction[T]]) -> T:
        seconds = self._timeouts.maintenance
        begin = f"BEGIN; SET LOCAL statement_timeout = {round(seconds * 1000)}"
        return await self._access(
            lambda current: _transact(self._shared_pool, work(), current, begin), writing=True, seconds=seconds
        )

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._access(lambda _: _read(self._shared_pool, work()), writing=False)

    async def size(self) -> int:
        """Return the size of the database in bytes."""
        rows = await self.read(lambda: execute(_SIZE, {}))
        size: int = rows[0][0]
        return size

    async def check(self) -> None:
        await self._access(lambda _: _ping(self._shared_pool), writing=False, seconds=self._timeouts.transaction / 2)

    def close(self) -> None:
        """Close all idle connections."""
        self._writer_pool.close()
        self._shared_pool.close()

    async def create_schema(self, *, read_only: bool = False) -> None:
        """Create the schema in an empty database once the server has answered, under a lock, so that one replica does.

        With `read_only` it stays empty. Raises: StorageFailure; ConfigurationFailure (CONFIG_INVALID) if the database
        has another schema.
        """
        await self._access(lambda _: _ping(self._shared_pool), writing=False)
        try:
            await _within(_CREATION_S, _create_schema(self._writer_pool, read_only=read_only))
        except (*CONNECTION_ERRORS, asyncpg.PostgresError) as fault:
            raise _failure(fault) from fault

    async def _access(
        self,
        attempt: Callable[["_Try"], Awaitable[T]],
        *,
        writing: bool,
        idempotent: bool = True,
        seconds: float | None = None,
    ) -> T:
        """Run the attempt until it succeeds, may not be repeated or its time has passed, and record its success."""
        try:
            result = await self._retry(attempt, idempotent=idempotent, seconds=seconds or self._timeouts.transaction)
        except StorageFailure as failure:
            self.health.failed(failure, writing=writing)
            raise
        self.health.succeeded(writing=writing)
        return result

    async def _retry(self, attempt: Callable[["_Try"], Awaitable[T]], *, idempotent: bool, seconds: float) -> T:
        ends_at = self._clock.monotonic() + seconds
        for number in count():
            current = _Try()
            try:
                return await _within(ends_at - self._clock.monotonic(), attempt(current))
            except (*CONNECTION_ERRORS, *_ABORTED, asyncpg.PostgresError) as fault:
                if isinstance(fault, TimeoutError):
                    self.close()
                is_unknown = current.committing and not isinstance(fault, _ABORTED)
                again = isinstance(fault, (*CONNECTION_ERRORS, *_ABORTED)) and (idempotent or not is_unknown)
                delay = self._backoff(number)
                if not again or self._clock.monotonic() + delay >= ends_at:
                    raise _failure(fault) from fault
            await self._clock.sleep(delay)
        raise AssertionError

    def _backoff(self, number: int) -> float:
        """Return the seconds before the next try: exponential, with full jitter."""
        longest = min(self._timeouts.max_backoff, self._timeouts.initial_backoff * 2.0 ** min(number, 10))
        return longest * self._entropy.random_below(1_000) / 1_000


@dataclass(slots=True)
class _Try:
    """State of one try. If the connection breaks after COMMIT was sent, the result of the transaction is unknown."""

    committing: bool = False


@asynccontextmanager
async def open_postgres(
    url: str,
    clock: Clock,
    entropy: Entropy,
    *,
    timeouts: PostgresTimeouts = DEFAULT_TIMEOUTS,
    max_connections: int = 8,
    read_only: bool = False,
) -> AsyncIterator[PostgresDatabase]:
    """Open the database at that URL; an empty one gets its schema.

    `max_connections` does not count the writer's connection. With `read_only` nothing is created and writes are
    refused.

    Raises: ConfigurationFailure (CONFIG_INVALID) if an unreleased version made the database; StorageFailure
    (STORAGE_UNAVAILABLE).
    """
    settings = {
        "application_name": "portico",
        "statement_timeout": str(round(timeouts.statement * 1000)),
        "idle_in_transaction_session_timeout": str(round(timeouts.statement * 2000)),
    } | ({"default_transaction_read_only": "on"} if read_only else {})

    async def connect() -> Connection:
        return await _within(
            timeouts.connect, asyncpg.connect(url, server_settings=settings, timeout=timeouts.connect * 2)
        )

    database = PostgresDatabase(connect, clock, entropy, timeouts, max_connections)
    try:
        await database.create_schema(read_only=read_only)
        yield database
    finally:
        database.close()


async def _within(seconds: float, waiting: Awaitable[T]) -> T:
    """Return the result. Raises: TimeoutError, an OSError, so that a timeout counts as a broken connection."""
    with anyio.fail_after(seconds):
        return await waiting


async def _transact(pool: _Pool, work: Transaction[T], current: _Try, begin: str = "BEGIN") -> T:
    async with pool.connection() as connection:
        await connection.execute(begin)
        try:
            result = await _drive(connection, work)
        except Failure as failure:
            await connection.execute("ROLLBACK")
            failed = failure
        else:
            current.committing = True
            await connection.execute("COMMIT")
            return result
    raise failed


async def _read(pool: _Pool, work: Transaction[T]) -> T:
    async with pool.connection() as connection:
        return await _drive(connection, work)


async def _ping(pool: _Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute("SELECT 1")


async def _drive(connection: Connection, work: Transaction[T]) -> T:
    rows: ResultRows | None = None
    while True:
        try:
            call = next(work) if rows is None else work.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result
        rows = await _execute(connection, call)


async def _execute(connection: Connection, call: StatementCall) -> ResultRows:
    compiled = call.statement.compiled("postgresql")
    if call.count_only:
        parameters = [compiled.parameters(each) for each in call.parameters]
        return ((len(await connection.fetchmany(f"{compiled.sql} RETURNING 1", parameters)),),)
    if len(call.parameters) == 1:
        return await connection.fetch(compiled.sql, *compiled.parameters(call.parameters[0]))
    parameters = [compiled.parameters(each) for each in call.parameters]
    if compiled.returns_rows:
        return await connection.fetchmany(compiled.sql, parameters)
    await connection.executemany(compiled.sql, parameters)
    return ()


async def _create_schema(pool: _Pool, *, read_only: bool) -> None:
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        if not read_only:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", SCHEMA_LOCK)
        if await connection.fetchval("SELECT to_regclass('alembic_version')"):
            require_schema(await connection.fetchval(SELECT_SCHEMA_ID))
        elif not read_only:
            await connection.execute(";\n".join(creation_sql("postgresql")))


def _failure(fault: Exception | None) -> StorageFailure:
    """Return a failure without the server's message, which may contain stored data."""
    if isinstance(fault, asyncpg.DiskFullError):
        return StorageFailure(Code.STORAGE_FULL, "the disk of the database is full", retry_after=_RETRY_AFTER)
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=_RETRY_AFTER)
