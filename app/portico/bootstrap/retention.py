"""Deletion of what is older than its retention, and of files whose session and execution are gone."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from portico.adapters.stores.database import Database
from portico.adapters.stores.executions.retention import RetentionLimits, is_stored, purge
from portico.adapters.stores.sessions import DatabaseSessions
from portico.domain.access.principal import AccessScope
from portico.domain.time_zones import DAY_S
from portico.domain.tools import Caller
from portico.ports.runtime import Clock
from portico.settings.tables.storage import StorageSettings

if TYPE_CHECKING:
    from portico.adapters.tools.files.store import DirectoryFiles

PURGE_BATCH = 500
SWEEP_SECONDS = 3_600.0
"""Time between two searches for files that belong to nothing."""


def purge_job(
    database: Database, clock: Clock, storage: StorageSettings, files: "DirectoryFiles | None"
) -> Callable[[], Awaitable[None]]:
    """Return the job that deletes what is too old."""
    return Retention(database, clock, storage, files).purge


class Retention:
    """The job that deletes what is too old."""

    def __init__(
        self, database: Database, clock: Clock, storage: StorageSettings, files: "DirectoryFiles | None"
    ) -> None:
        self._database = database
        self._clock = clock
        self._storage = storage
        self._sessions = DatabaseSessions(database)
        self._files = files
        self._swept_at = clock.monotonic()

    async def purge(self) -> None:
        """Delete histories, executions and sessions that are older than their retention, in batches; then files."""
        deleted, now = PURGE_BATCH, self._clock.now()
        storage = self._storage
        limits = RetentionLimits(
            now - storage.event_retention_days * DAY_S, now - storage.answer_retention_days * DAY_S
        )
        while deleted == PURGE_BATCH:
            deleted = await purge(self._database, limits, limit=PURGE_BATCH, now=now)
        if self._files is None:
            return
        await self._files.remove_discarded()
        if self._clock.monotonic() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = self._clock.monotonic()
            await self._files.sweep(self._exists, now)

    async def _exists(self, caller: Caller) -> bool:
        """Return True if there is the caller's session, or without one its execution."""
        scope = AccessScope(caller.tenant, caller.user)
        if caller.session_id is not None:
            return await self._sessions.session(scope, caller.session_id) is not None
        return await is_stored(self._database, caller.tenant, caller.request_id)
