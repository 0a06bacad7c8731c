"""Size of the database and of its queue, for metrics."""

from typing import TYPE_CHECKING

from portico.adapters.stores.executions.retention import count_waiting
from portico.adapters.stores.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase


class StorageStatistics:
    """Numbers that were measured last: bytes of the database, and executions that wait in its queue."""

    def __init__(self, database: "SqliteDatabase | PostgresDatabase") -> None:
        self.size_bytes = 0
        self.waiting = 0
        self._database = database

    async def measure(self) -> None:
        """Measure both. Raises: StorageFailure."""
        self.size_bytes = await self._database.size()
        self.waiting = await count_waiting(self._database)
