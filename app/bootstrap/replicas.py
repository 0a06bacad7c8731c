"""The part of the composition root that differs with how many replicas there may be: one on SQLite, any on PostgreSQL.

Alone, a replica owns the database: what it finds at start was left by nobody else, and its own line says whose turn it
is. Among others it beats, hears them, takes part in their queue, and goes on with what those ran that do not live any
more. DBOS is loaded for that alone.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from app.adapters.runners.dbos import DbosRunner, SharedQueue
from app.adapters.runners.fair_queue import QueueLimits
from app.adapters.runners.heartbeat import MAX_MISSED_BEATS, Heartbeat
from app.adapters.runners.local import LocalRunner
from app.adapters.runners.log_tailer import LogTailer
from app.adapters.runners.maintenance import MAINTENANCE_INTERVAL_S, StorageHealth, run_maintenance
from app.adapters.runners.task_pool import TaskPool
from app.adapters.stores.executions.store import DatabaseExecutionStore
from app.adapters.stores.notifications import NotificationHandlers, PostgresNotifications
from app.adapters.stores.postgres import PostgresDatabase
from app.adapters.stores.replicas import DatabaseReplicas
from app.adapters.stores.sqlite import SqliteDatabase
from app.domain.failures import StorageFailure
from app.domain.ids import ExecutionId, ReplicaId
from app.orchestration.runtime.recovery import Recovery
from app.ports.events import EventSink
from app.ports.runtime import Clock
from app.settings import QueueSettings, StorageSettings

Job: TypeAlias = Callable[[], Awaitable[object]]
OnError: TypeAlias = Callable[[Exception], None]


@dataclass(frozen=True, slots=True)
class MaintenanceJobs:
    """What a replica looks after, `forget` dropping what is old, and who is told when that fails."""

    recovery: Recovery
    log_tailer: LogTailer
    purge: Job
    on_error: OnError
    health: StorageHealth = field(default_factory=StorageHealth)


class SingleReplica:
    """The only replica."""

    sinks: Sequence[EventSink] = ()

    def __init__(self, clock: Clock, owner: ReplicaId) -> None:
        self.owner = owner
        self._clock = clock

    def cancel(self, execution_id: ExecutionId) -> None:
        """There is nobody to tell."""

    def runner(
        self, slots: TaskPool, limits: QueueLimits, store: DatabaseExecutionStore, on_fault: OnError
    ) -> LocalRunner:
        """Its own line."""
        return LocalRunner(slots, limits, self._clock)

    @asynccontextmanager
    async def maintenance(self, group: TaskGroup, tended: MaintenanceJobs) -> AsyncIterator[None]:
        """Queues what an earlier process left, and tends from then on. Raises: StorageFailure."""
        ownership = tended.recovery
        await ownership.recover(alive=(), gone=None)
        chores = (ownership.expire, ownership.process_cancels, partial(ownership.recover, (), ()), tended.purge)
        group.start_soon(run_maintenance, self._clock, chores, tended.health, tended.on_error)
        group.start_soon(tended.log_tailer.run)
        yield


class ClusteredReplica:
    """One replica of several."""

    def __init__(self, database: PostgresDatabase, clock: Clock, owner: ReplicaId, storage: StorageSettings) -> None:
        self.owner = owner
        self._clock = clock
        self._storage = storage
        self._pulse = Heartbeat(DatabaseReplicas(database, clock, owner, storage.replica_timeout), clock, owner)
        self._signals = PostgresNotifications(database.connect, lambda: self._pulse.is_alone)
        self._runner: DbosRunner | None = None
        self.sinks: Sequence[EventSink] = (self._signals,)
        self.cancel = self._signals.notify_cancel

    def runner(
        self, slots: TaskPool, limits: QueueLimits, store: DatabaseExecutionStore, on_fault: OnError
    ) -> DbosRunner:
        """Its part in the queue of all."""
        shared = SharedQueue(self._storage.url, self.owner, store.count_waiting)
        self._runner = DbosRunner(slots, limits, shared=shared, clock=self._clock, on_fault=on_fault)
        return self._runner

    @asynccontextmanager
    async def maintenance(self, group: TaskGroup, tended: MaintenanceJobs) -> AsyncIterator[None]:
        """Says that it lives, tends from then on, and leaves what it has to the others at the end.

        They find out by themselves where they cannot be told. Raises: StorageFailure.
        """
        ownership = tended.recovery
        beat = partial(self._pulse.beat, partial(self._sweep, ownership))
        await beat()
        interval = self._storage.replica_timeout / MAX_MISSED_BEATS
        quick, slow = (beat, ownership.process_cancels), (ownership.expire, tended.purge, self._forget_turns)
        for chores, seconds in ((quick, interval), (slow, MAINTENANCE_INTERVAL_S)):
            group.start_soon(run_maintenance, self._clock, chores, tended.health, tended.on_error, seconds)
        heeding = _Heeding(ownership.process_cancels)
        group.start_soon(heeding.run)
        group.start_soon(self._signals.run, NotificationHandlers(tended.log_tailer.notify_grown, heeding.soon))
        group.start_soon(tended.log_tailer.run)
        yield
        with suppress(StorageFailure):
            await self._pulse.leave()

    async def _sweep(self, ownership: Recovery, alive: frozenset[ReplicaId], gone: frozenset[ReplicaId]) -> None:
        if self._runner is not None:
            await self._runner.reclaim(alive)
        await ownership.recover(alive - {self.owner}, gone)

    async def _forget_turns(self) -> None:
        before = datetime.fromtimestamp(self._clock.now() - self._storage.event_retention_days * 86_400, UTC)
        if self._runner is not None:
            await self._runner.purge(before.isoformat())


class _Heeding:
    """Heeds cancels when it is told that there is one; what a fault leaves is found by who looks from time to time."""

    def __init__(self, heed: Job) -> None:
        self._heed = heed
        self._asked = anyio.Event()

    def soon(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            with suppress(StorageFailure):
                await self._heed()


def replica_for(
    database: SqliteDatabase | PostgresDatabase, clock: Clock, owner: ReplicaId, storage: StorageSettings
) -> SingleReplica | ClusteredReplica:
    """What this process, named `owner`, is among those that may use the database."""
    return (
        ClusteredReplica(database, clock, owner, storage)
        if isinstance(database, PostgresDatabase)
        else SingleReplica(clock, owner)
    )


def queue_limits(queue: QueueSettings) -> QueueLimits:
    """The bounds of the queue."""
    return QueueLimits(max_waiting=queue.waiting, max_running=queue.at_once, max_running_per_tenant=queue.per_tenant)
