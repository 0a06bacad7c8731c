"""Replica-dependent part of the composition root: one replica on SQLite, any number on PostgreSQL.

A single replica owns the database: executions found at start were left by an earlier process, and its own queue decides
their order. A clustered one sends heartbeats, receives notifications, takes part in the shared queue, and recovers the
executions of replicas that are no longer alive. Only the shared queue needs DBOS.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import anyio
from anyio.abc import TaskGroup

from portico.adapters.change_feed import StoredChangeFeed
from portico.adapters.runners.dbos import DbosRunner, SharedQueue
from portico.adapters.runners.fair_queue import QueueLimits
from portico.adapters.runners.heartbeat import MAX_MISSED_BEATS, Heartbeat
from portico.adapters.runners.local import LocalRunner
from portico.adapters.runners.log_tailer import LogTailer
from portico.adapters.runners.maintenance import (
    CANCEL_INTERVAL_S,
    CHECK_INTERVAL_S,
    MAINTENANCE_INTERVAL_S,
    run_maintenance,
)
from portico.adapters.runners.task_pool import TaskPool
from portico.adapters.runners.timers import TimerReports, TimerRunner
from portico.adapters.stores.executions.retention import count_waiting
from portico.adapters.stores.replicas import DatabaseReplicas
from portico.adapters.stores.sqlite import SqliteDatabase
from portico.adapters.stores.timers import DatabaseTimers
from portico.domain.failures import StorageFailure
from portico.domain.ids import ExecutionId, ReplicaId
from portico.domain.value import value
from portico.orchestration.runtime.recovery import Recovery
from portico.ports.events import EventSink
from portico.ports.runtime import Clock
from portico.settings import Settings, StorageSettings

if TYPE_CHECKING:
    from portico.adapters.stores.postgres import PostgresDatabase

Job: TypeAlias = Callable[[], Awaitable[object]]
OnError: TypeAlias = Callable[[Exception], None]


@value
class MaintenanceJobs:
    """Periodic jobs of a replica, and the callback for their errors.

    `purge` deletes old histories, `check` finds out whether the database answers, `measure` how large it is.
    """

    recovery: Recovery
    log_tailer: LogTailer
    change_feed: StoredChangeFeed
    purge: Job
    check: Job
    measure: Job
    on_error: OnError


class SingleReplica:
    """The only replica."""

    sinks: Sequence[EventSink] = ()

    def __init__(self, database: SqliteDatabase, clock: Clock, owner: ReplicaId, reports: TimerReports) -> None:
        self.owner = owner
        self._clock = clock
        self._runner: LocalRunner | None = None
        self.timers = TimerRunner(
            DatabaseTimers(database, owner),
            clock,
            alive=lambda: {owner},
            is_leaving=lambda: _is_leaving(self._runner),
            polls=False,
            reports=reports,
        )

    def count_alive(self) -> int:
        """Return 1: there is no other replica."""
        return 1

    def cancel(self, execution_id: ExecutionId) -> None:
        """Do nothing: there is no other replica to notify."""

    def runner(self, task_pool: TaskPool, limits: QueueLimits, on_error: OnError) -> LocalRunner:
        """Return the runner with a queue of its own."""
        self._runner = LocalRunner(task_pool, limits, self._clock)
        return self._runner

    @asynccontextmanager
    async def maintenance(self, group: TaskGroup, jobs: MaintenanceJobs) -> AsyncIterator[None]:
        """Queue the executions that an earlier process left, then run the periodic jobs. Raises: StorageFailure."""
        recovery = jobs.recovery
        await recovery.recover(alive=(), gone=None)
        own = (recovery.expire, partial(recovery.recover, (), ()))
        periodic = (*own, jobs.purge, jobs.measure)
        group.start_soon(run_maintenance, self._clock, periodic, jobs.on_error)
        cancels = (recovery.process_cancels,)
        group.start_soon(run_maintenance, self._clock, cancels, jobs.on_error, CANCEL_INTERVAL_S)
        group.start_soon(run_maintenance, self._clock, (jobs.check,), jobs.on_error, CHECK_INTERVAL_S)
        group.start_soon(jobs.log_tailer.run)
        group.start_soon(self.timers.run)
        yield


class ClusteredReplica:
    """One replica of several."""

    def __init__(
        self,
        database: "PostgresDatabase",
        clock: Clock,
        owner: ReplicaId,
        storage: StorageSettings,
        reports: TimerReports,
    ) -> None:
        from portico.adapters.stores.notifications import PostgresNotifications  # noqa: PLC0415 - loads the driver

        self.owner = owner
        self._clock = clock
        self._storage = storage
        self._database = database
        self._heartbeat = Heartbeat(DatabaseReplicas(database, clock, owner, storage.replica_timeout), clock, owner)
        self._notifications = PostgresNotifications(database.connect, lambda: self._heartbeat.is_alone)
        self._runner: DbosRunner | None = None
        self.timers = TimerRunner(
            DatabaseTimers(database, owner),
            clock,
            alive=lambda: self._heartbeat.alive,
            is_leaving=lambda: _is_leaving(self._runner),
            polls=True,
            reports=reports,
        )
        self.sinks: Sequence[EventSink] = (self._notifications,)
        self.cancel = self._notifications.notify_cancel

    def count_alive(self) -> int:
        """Return the number of replicas that are alive, as of the last heartbeat."""
        return len(self._heartbeat.alive)

    def runner(self, task_pool: TaskPool, limits: QueueLimits, on_error: OnError) -> DbosRunner:
        """Return the runner that takes part in the shared queue."""
        shared = SharedQueue(self._storage.url, self.owner, partial(count_waiting, self._database))
        self._runner = DbosRunner(task_pool, limits, shared=shared, clock=self._clock, on_fault=on_error)
        return self._runner

    @asynccontextmanager
    async def maintenance(self, group: TaskGroup, jobs: MaintenanceJobs) -> AsyncIterator[None]:
        """Register this replica, run the periodic jobs, and leave the rest to the others at the end.

        If the registration cannot be removed, the others notice by the missing heartbeat. Raises: StorageFailure.
        """
        from portico.adapters.stores.notifications import NotificationHandlers  # noqa: PLC0415 - loads the driver

        recovery = jobs.recovery
        beat = partial(self._beat, recovery)
        await beat()
        interval = self._storage.replica_timeout / MAX_MISSED_BEATS
        slow = (recovery.expire, jobs.purge, self._purge_queue, jobs.measure)
        for periodic, seconds in (
            ((beat,), interval),
            ((recovery.process_cancels,), CANCEL_INTERVAL_S),
            (slow, MAINTENANCE_INTERVAL_S),
            ((jobs.check,), CHECK_INTERVAL_S),
        ):
            group.start_soon(run_maintenance, self._clock, periodic, jobs.on_error, seconds)
        cancel_listener = _CancelListener(recovery.process_cancels)
        group.start_soon(cancel_listener.run)

        def on_log_grown(execution_id: ExecutionId) -> None:
            jobs.log_tailer.notify_grown(execution_id)
            jobs.change_feed.notify_grown(execution_id)

        group.start_soon(self._notifications.run, NotificationHandlers(on_log_grown, cancel_listener.notify))
        group.start_soon(jobs.log_tailer.run)
        group.start_soon(self.timers.run)
        yield
        with suppress(StorageFailure):
            await self._heartbeat.leave()

    async def _beat(self, recovery: Recovery) -> None:
        await self._heartbeat.beat(partial(self._sweep, recovery))
        if self._heartbeat.has_timers:
            self.timers.notify_rows()

    async def _sweep(self, recovery: Recovery, alive: frozenset[ReplicaId], gone: frozenset[ReplicaId]) -> None:
        if self._runner is not None:
            await self._runner.reclaim(alive)
        await recovery.recover(alive - {self.owner}, gone)
        await self.timers.release(alive)

    async def _purge_queue(self) -> None:
        before = datetime.fromtimestamp(self._clock.now() - self._storage.event_retention_days * 86_400, UTC)
        if self._runner is not None:
            await self._runner.purge(before.isoformat())


class _CancelListener:
    """Listener that processes cancellations when notified; the periodic job finds those that it misses."""

    def __init__(self, process: Job) -> None:
        self._process = process
        self._requested = anyio.Event()

    def notify(self) -> None:
        self._requested.set()

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            self._requested = anyio.Event()
            with suppress(StorageFailure):
                await self._process()


def replica_for(
    database: "SqliteDatabase | PostgresDatabase",
    clock: Clock,
    owner: ReplicaId,
    storage: StorageSettings,
    reports: TimerReports,
) -> SingleReplica | ClusteredReplica:
    """Return the replica that this process, named `owner`, is on that database."""
    return (
        SingleReplica(database, clock, owner, reports)
        if isinstance(database, SqliteDatabase)
        else ClusteredReplica(database, clock, owner, storage, reports)
    )


def _is_leaving(runner: LocalRunner | DbosRunner | None) -> bool:
    """Return whether this replica starts nothing more."""
    return runner is not None and runner.is_leaving


def queue_limits(settings: Settings) -> QueueLimits:
    """Return the limits of the queue."""
    queue, tenants = settings.queue, settings.tenants.items()
    return QueueLimits(
        max_waiting=queue.waiting,
        max_running=queue.at_once,
        max_running_per_tenant=queue.per_tenant,
        concurrency={name: tenant.concurrency for name, tenant in tenants if tenant.concurrency is not None},
    )
