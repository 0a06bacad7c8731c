"""Databases for tests, and stored journals on them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from app.adapters.stores.database import Database
from app.adapters.stores.journal import Keeping, Loss, StoredJournal, open_journal
from app.adapters.stores.sqlite import open_sqlite
from app.domain.failures import Failure
from app.ports import Clock, EventSink
from tests.support.postgres import emptied

T = TypeVar("T")
OpenDatabase = Callable[[], AbstractAsyncContextManager[Database]]


def database_of(request: pytest.FixtureRequest, folder: Path) -> OpenDatabase:
    """What opens an empty database of the kind that the fixture is asked for."""
    if request.param == "sqlite":
        return lambda: open_sqlite(folder / "portico.db")
    url = request.getfixturevalue("postgres_url")
    return lambda: emptied(url)


@dataclass
class Losses:
    """What a journal said it did not keep."""

    lost: dict[str, Failure] = field(default_factory=dict)
    dropped: int = 0

    def loss(self) -> Loss:
        return Loss(on_lost=self.lost.__setitem__, on_dropped=self._drop)

    def _drop(self) -> None:
        self.dropped += 1


@asynccontextmanager
async def stored_journal(
    open_database: OpenDatabase, clock: Clock, sink: EventSink, keeping: Keeping, losses: Losses | None = None
) -> AsyncIterator[StoredJournal]:
    """A journal on a database of its own connection."""
    loss = (losses or Losses()).loss()
    async with open_database() as database, open_journal(database, sink, clock, keeping, loss) as journal:
        yield journal


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
