"""Databases that do not answer: for some time, or never again, as if their process had died."""

from collections.abc import Callable
from typing import Any

import anyio

from portico.adapters.stores.database import Database, Transaction
from portico.domain.failures import Code, StorageFailure


class UnreachableDatabase:
    """A database that fails every access while `is_away`, and counts those accesses."""

    def __init__(self, database: Database) -> None:
        self.is_away = False
        self.failures = 0
        self._database = database

    async def append(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._reachable().append(work)

    async def write(self, work: Callable[[], Transaction[Any]], *, idempotent: bool = False) -> Any:
        return await self._reachable().write(work, idempotent=idempotent)

    async def maintain(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._reachable().maintain(work)

    async def read(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._reachable().read(work)

    def _reachable(self) -> Database:
        if self.is_away:
            self.failures += 1
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=1.0)
        return self._database


class DyingDatabase:
    """A database that is gone after some commits of the ordered writer, the last of them committed or not."""

    def __init__(self, database: Database, commits: int, *, committed: bool) -> None:
        self._database = database
        self._left = commits
        self._committed = committed
        self.dead = anyio.Event()

    async def append(self, work: Callable[[], Transaction[Any]]) -> Any:
        """Commits, until it is gone; then nothing is answered any more."""
        if self._left == 0 and not self._committed:
            await self._die()
        result = await self._database.append(work)
        if self._left == 0:
            await self._die()
        self._left -= 1
        return result

    async def write(self, work: Callable[[], Transaction[Any]], *, idempotent: bool = False) -> Any:
        return await self._database.write(work, idempotent=idempotent)

    async def maintain(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.maintain(work)

    async def read(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.read(work)

    async def _die(self) -> None:
        self.dead.set()
        await anyio.sleep_forever()
