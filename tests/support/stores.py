"""Databases for tests, and stored journals on them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from app.adapters.stores.conversations import DatabaseConversations
from app.adapters.stores.database import Database
from app.adapters.stores.journal import Keeping, StoredJournal, open_journal
from app.adapters.stores.sqlite import open_sqlite
from app.adapters.stores.store import DatabaseStore
from app.adapters.stores.writer import Bounds, Loss
from app.domain.events import Live, Recorded
from app.domain.failures import Failure
from app.ports import Clock
from tests.support.postgres import emptied

T = TypeVar("T")
OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


def database_of(request: pytest.FixtureRequest, folder: Path) -> OpenDatabase:
    """What opens an empty database of the kind that the fixture is asked for."""
    if request.param == "sqlite":
        return lambda: open_sqlite(folder / "portico.db")
    url = request.getfixturevalue("postgres_url")
    return lambda: emptied(url)


class Listener:
    """Hears everything, in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Recorded | Live]] = []

    def publish(self, execution_id: str, items: Sequence[Recorded | Live]) -> None:
        self.heard.extend((execution_id, item) for item in items)

    def numbers(self, execution_id: str) -> list[int]:
        """The sequence numbers that one execution's reader saw."""
        return [item.sequence_number for who, item in self.heard if who == execution_id and isinstance(item, Recorded)]


@dataclass
class Losses:
    """What a journal said it did not keep."""

    lost: dict[str, Failure] = field(default_factory=dict)
    dropped: int = 0
    bugs: list[Exception] = field(default_factory=list)

    def loss(self) -> Loss:
        return Loss(on_lost=self.lost.__setitem__, on_dropped=self._drop, on_bug=self.bugs.append)

    def _drop(self) -> None:
        self.dropped += 1


@dataclass
class Replica:
    """One replica's view of a database: its journal, what it reads, what it heard and lost."""

    name: str
    database: Database
    journal: StoredJournal
    store: DatabaseStore
    conversations: DatabaseConversations
    listener: Listener
    losses: Losses


@asynccontextmanager
async def replica(
    database: Database,
    clock: Clock,
    name: str = "replica",
    *,
    bounds: Bounds | None = None,
    closing_seconds: float = 5.0,
) -> AsyncIterator[Replica]:
    """A replica on that database, which it shares with others or not."""
    listener, losses = Listener(), Losses()
    keeping = Keeping(name, 3, bounds or Bounds(), closing_seconds)
    async with open_journal(database, listener, clock, keeping, losses.loss()) as journal:
        store = DatabaseStore(database, clock, name, listener)
        yield Replica(name, database, journal, store, DatabaseConversations(database), listener, losses)


@asynccontextmanager
async def lone_replica(open_database: OpenDatabase, clock: Clock) -> AsyncIterator[Replica]:
    """A replica on a database of its own."""
    async with open_database() as database, replica(database, clock) as alone:
        yield alone


@asynccontextmanager
async def in_a_task(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """The context entered and left by one task of its own, since pytest enters and leaves a fixture in two."""
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
