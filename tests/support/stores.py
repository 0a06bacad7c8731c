"""Databases of tests, and replicas on them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import asyncpg
import pytest

from portico.adapters.stores.database import Database
from portico.adapters.stores.erasure import DatabaseRecords
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.factory import is_sqlite_url, sqlite_path
from portico.adapters.stores.journal.stored_journal import JournalConfig, StoredJournal, open_journal
from portico.adapters.stores.journal.writer import WriterCallbacks, WriterLimits
from portico.adapters.stores.sessions import DatabaseSessions
from portico.adapters.stores.sqlite import open_sqlite
from portico.domain.failures import Failure
from portico.domain.journal.events import LiveDelta, StoredEvent
from portico.ports.limits import UsageSource
from portico.ports.runtime import Clock
from tests.support.postgres import open_empty_postgres

T = TypeVar("T")
OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


def database_opener(request: pytest.FixtureRequest, folder: Path) -> OpenDatabase:
    """Return a function that opens an empty database of the kind in the fixture's parameter."""
    if request.param == "sqlite":
        return lambda: open_sqlite(folder / "portico.db")
    url = request.getfixturevalue("postgres_url")
    return lambda: open_empty_postgres(url)


class RecordingSink:
    """A sink that records all events in order."""

    def __init__(self) -> None:
        self.published: list[tuple[str, StoredEvent | LiveDelta]] = []

    def publish(self, execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        self.published.extend((execution_id, item) for item in items)

    def sequence_numbers(self, execution_id: str) -> list[int]:
        """Return the sequence numbers of one execution's events."""
        return [
            item.sequence_number
            for who, item in self.published
            if who == execution_id and isinstance(item, StoredEvent)
        ]


@dataclass
class RecordedLosses:
    """Losses that a journal reported."""

    lost: dict[str, Failure] = field(default_factory=dict)
    dropped: int = 0
    refused: list[tuple[str, Failure]] = field(default_factory=list)
    bugs: list[Exception] = field(default_factory=list)

    def callbacks(self) -> WriterCallbacks:
        return WriterCallbacks(
            on_lost=self.lost.__setitem__, on_dropped=self._drop, on_bug=self.bugs.append, on_refused=self._refuse
        )

    def _refuse(self, request_id: str, refusal: Failure) -> None:
        self.refused.append((request_id, refusal))

    def _drop(self) -> None:
        self.dropped += 1


@dataclass
class StoreReplica:
    """One replica on a database, with its journal, stores, recorded events and losses."""

    name: str
    database: Database
    journal: StoredJournal
    store: DatabaseExecutionStore
    conversations: DatabaseSessions
    records: DatabaseRecords
    sink: RecordingSink
    losses: RecordedLosses


@asynccontextmanager
async def open_replica(
    database: Database,
    clock: Clock,
    name: str = "replica",
    *,
    limits: WriterLimits | None = None,
    closing_seconds: float = 5.0,
    usage: UsageSource | None = None,
) -> AsyncIterator[StoreReplica]:
    """Open a replica on a database that others may share."""
    listener, losses = RecordingSink(), RecordedLosses()
    config = JournalConfig(name, 3, limits or WriterLimits(), closing_seconds, usage=usage)
    async with open_journal(database, listener, clock, config, losses.callbacks()) as journal:
        store = DatabaseExecutionStore(database, clock, name, listener)
        yield StoreReplica(
            name, database, journal, store, DatabaseSessions(database), DatabaseRecords(database), listener, losses
        )


@asynccontextmanager
async def open_only_replica(open_database: OpenDatabase, clock: Clock) -> AsyncIterator[StoreReplica]:
    """Open a replica on a database of its own."""
    async with open_database() as database, open_replica(database, clock) as alone:
        yield alone


@asynccontextmanager
async def in_own_task(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave the context in one task of its own, because pytest does both in different tasks."""
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    leaving = asyncio.Event()

    async def own() -> None:
        async with context as value:
            opened.set_result(value)
            await leaving.wait()

    owner = asyncio.create_task(own())
    await asyncio.wait((opened, owner), return_when=asyncio.FIRST_COMPLETED)
    if owner.done():
        await owner
    try:
        yield opened.result()
    finally:
        leaving.set()
        await owner


def set_schema_id(url: str, schema_id: str) -> None:
    """Store another id of the schema in the database at that URL; an empty one is no id."""
    script = "DELETE FROM alembic_version;"
    if schema_id:
        script += f"INSERT INTO alembic_version VALUES ('{schema_id}')"
    if is_sqlite_url(url):
        with closing(sqlite3.connect(sqlite_path(url))) as connection:
            connection.executescript(script)
    else:
        asyncio.run(_execute_on_postgres(url, script))


async def _execute_on_postgres(url: str, script: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(script)
    await connection.close()
