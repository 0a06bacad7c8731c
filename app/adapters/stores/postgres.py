"""PostgreSQL: the ordered writer has a connection of its own, everybody else shares a few.

A connection that anything went wrong on, a cancelled query included, is thrown away. A transaction that the server
refused for the others' sake (40001, 40P01), or that lost its connection before COMMIT, is run anew, a bounded number
of times with jitter; one whose COMMIT nobody answered only when it recognises that it was applied. A server that is up
but silent is given up from outside: closing the connection needs no answer, cancelling a query does.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import anyio
import asyncpg

from app.adapters.stores.database import ResultRows, StatementCall, Transaction
from app.adapters.stores.schema_upgrade import SELECT_REVISION, upgrade_sql
from app.domain.failures import Code, Failure, StorageFailure
from app.ports.runtime import Clock, Entropy

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Connect: TypeAlias = "Callable[[], Awaitable[Connection]]"
_RETRY_AFTER = 1.0
_MIGRATING = 5_206_161_072_301_846
"""Names the advisory lock under which one replica brings the schema up to date; any number that nobody else uses."""
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
"""A connection is of no more use then. Where one breaks under it, asyncpg may lose its place in the protocol."""
_REFUSED = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


@dataclass(frozen=True, slots=True)
class PostgresTimeouts:
    """How long anything is waited for, in seconds, and how often a transaction is tried."""

    connect: float = 5.0
    acquire: float = 5.0
    transaction: float = 10.0
    max_tries: int = 8
    initial_backoff: float = 0.05
    max_backoff: float = 1.0


_PATIENCE = PostgresTimeouts()


class _Lane:
    """Connections to one server, at most `width` at a time: opened when needed, used again while they are well."""

    def __init__(self, connect: Connect, width: int, patience: PostgresTimeouts) -> None:
        self._connect = connect
        self._free: list[Connection] = []
        self._room = anyio.Semaphore(width)
        self._patience = patience

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection, thrown away when anything goes wrong. Raises: StorageFailure when none is free for long."""
        with anyio.move_on_after(self._patience.acquire) as waiting:
            await self._room.acquire()
        if waiting.cancelled_caught:
            raise _failure(None)
        try:
            connection = await self._ready()
            try:
                yield connection
            except BaseException:
                connection.terminate()
                raise
            self._free.append(connection)
        finally:
            self._room.release()

    def close(self) -> None:
        """Drops what is not in use, without waiting for an answer."""
        while self._free:
            self._free.pop().terminate()

    async def _ready(self) -> Connection:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()


class PostgresDatabase:
    """Implements `Database` on one server."""

    def __init__(
        self, connect: Connect, clock: Clock, entropy: Entropy, patience: PostgresTimeouts, width: int
    ) -> None:
        self.connect = connect
        self._ordered = _Lane(connect, 1, patience)
        self._shared = _Lane(connect, width, patience)
        self._clock = clock
        self._entropy = entropy
        self._patience = patience

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        return await self._tried(lambda tried: _transact(self._shared, work(), tried), recognisable=idempotent)

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._tried(lambda tried: _transact(self._ordered, work(), tried), recognisable=True)

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        return await self._tried(lambda _: _ask(self._shared, work()), recognisable=True)

    def close(self) -> None:
        """Drops all connections that are not in use."""
        self._ordered.close()
        self._shared.close()

    async def upgrade_schema(self) -> None:
        """Runs the migrations that are missing, while no other replica does."""
        await self._tried(lambda _: _migrate(self._ordered), recognisable=True)

    async def _tried(self, attempt: Callable[["_Tried"], Awaitable[T]], *, recognisable: bool) -> T:
        for number in range(self._patience.max_tries):
            tried = _Tried()
            try:
                return await _within(self._patience.transaction, attempt(tried))
            except (*CONNECTION_ERRORS, *_REFUSED, asyncpg.PostgresError) as fault:
                in_doubt = tried.committing and not isinstance(fault, _REFUSED)
                again = isinstance(fault, (*CONNECTION_ERRORS, *_REFUSED)) and (recognisable or not in_doubt)
                if not again or number + 1 == self._patience.max_tries:
                    raise _failure(fault) from fault
            await self._clock.sleep(self._wait(number))
        raise _failure(None)

    def _wait(self, number: int) -> float:
        """Seconds before the next try: exponential, with full jitter."""
        longest = min(self._patience.max_backoff, self._patience.initial_backoff * 2.0**number)
        return longest * self._entropy.random_below(1_000) / 1_000


@dataclass(slots=True)
class _Tried:
    """One try. Once COMMIT was sent nobody knows what became of it when the connection is lost."""

    committing: bool = False


@asynccontextmanager
async def open_postgres(
    url: str,
    clock: Clock,
    entropy: Entropy,
    *,
    timeouts: PostgresTimeouts = _PATIENCE,
    max_connections: int = 8,
    read_only: bool = False,
) -> AsyncIterator[PostgresDatabase]:
    """The database at that URL, brought up to date. `width` is how many connections there may be beside the writer's.

    Who looks at it `beside` others leaves it as it is, and can write nothing.

    Raises: StorageFailure (STORAGE_UNAVAILABLE).
    """
    settings = {
        "application_name": "portico",
        "statement_timeout": str(round(timeouts.transaction * 1000)),
        "idle_in_transaction_session_timeout": str(round(timeouts.transaction * 2000)),
    } | ({"default_transaction_read_only": "on"} if read_only else {})

    async def connect() -> Connection:
        return await _within(
            timeouts.connect, asyncpg.connect(url, server_settings=settings, timeout=timeouts.connect * 2)
        )

    database = PostgresDatabase(connect, clock, entropy, timeouts, max_connections)
    try:
        if not read_only:
            await database.upgrade_schema()
        yield database
    finally:
        database.close()


async def _within(seconds: float, waiting: Awaitable[T]) -> T:
    """What it comes to. Raises: TimeoutError, which is an OSError: whoever is silent for so long counts as lost."""
    with anyio.fail_after(seconds):
        return await waiting


async def _transact(lane: _Lane, work: Transaction[T], tried: _Tried) -> T:
    async with lane.connection() as connection:
        await connection.execute("BEGIN")
        try:
            result = await _drive(connection, work)
        except Failure as failure:
            await connection.execute("ROLLBACK")
            refused = failure
        else:
            tried.committing = True
            await connection.execute("COMMIT")
            return result
    raise refused


async def _ask(lane: _Lane, work: Transaction[T]) -> T:
    async with lane.connection() as connection:
        return await _drive(connection, work)


async def _drive(connection: Connection, work: Transaction[T]) -> T:
    answer: ResultRows | None = None
    while True:
        try:
            asked = next(work) if answer is None else work.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = await _answer(connection, asked)


async def _answer(connection: Connection, asked: StatementCall) -> ResultRows:
    compiled = asked.statement.compiled("postgresql")
    if asked.count_only:
        given = [compiled.parameters(values) for values in asked.parameters]
        return ((len(await connection.fetchmany(f"{compiled.sql} RETURNING 1", given)),),)
    if len(asked.parameters) == 1:
        return await connection.fetch(compiled.sql, *compiled.parameters(asked.parameters[0]))
    given = [compiled.parameters(values) for values in asked.parameters]
    if compiled.returns_rows:
        return await connection.fetchmany(compiled.sql, given)
    await connection.executemany(compiled.sql, given)
    return ()


async def _migrate(lane: _Lane) -> None:
    async with lane.connection() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATING)
        made = await connection.fetchval("SELECT to_regclass('alembic_version')")
        script = upgrade_sql("postgresql", await connection.fetchval(SELECT_REVISION) if made else None)
        if script:
            await connection.execute(script)


def _failure(fault: Exception | None) -> StorageFailure:
    """What the caller is told; what the server says may hold what was stored."""
    if isinstance(fault, asyncpg.DiskFullError):
        return StorageFailure(Code.STORAGE_FULL, "the database has no room", retry_after=_RETRY_AFTER)
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=_RETRY_AFTER)
