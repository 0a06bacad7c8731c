"""A database that stops to answer after a number of commits, as if its process had died."""

from collections.abc import Callable
from typing import Any

import anyio

from app.adapters.stores.database import Database, Transaction


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

    async def read(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.read(work)

    async def _die(self) -> None:
        self.dead.set()
        await anyio.sleep_forever()
