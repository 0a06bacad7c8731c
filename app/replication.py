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

from app.adapters.durable.dbos import DbosRunner, Shared
from app.adapters.durable.following import Following
from app.adapters.durable.inline import InlineRunner
from app.adapters.durable.line import LineLimits
from app.adapters.durable.pulse import BEATS_BEFORE_DEATH, Pulse
from app.adapters.durable.slots import Slots
from app.adapters.durable.tending import INTERVAL_S, Health, tend
from app.adapters.stores.postgres import PostgresDatabase
from app.adapters.stores.replicas import DatabaseReplicas
from app.adapters.stores.signals import Heard, Signals
from app.adapters.stores.sqlite import SqliteDatabase
from app.adapters.stores.store import DatabaseStore
from app.domain.failures import StorageFailure
from app.orchestration.ownership import Ownership
from app.ports import Clock, EventSink
from app.settings import QueueSettings, StorageSettings

Chore: TypeAlias = Callable[[], Awaitable[object]]
Faults: TypeAlias = Callable[[Exception], None]


@dataclass(frozen=True, slots=True)
class Tended:
    """What a replica looks after, `forget` dropping what is old, and who is told when that fails."""

    ownership: Ownership
    following: Following
    forget: Chore
    on_fault: Faults
    health: Health = field(default_factory=Health)


class Lone:
    """The only replica."""

    sinks: Sequence[EventSink] = ()

    def __init__(self, clock: Clock, owner: str) -> None:
        self.owner = owner
        self._clock = clock

    def cancel(self, execution_id: str) -> None:
        """There is nobody to tell."""

    def runner(self, slots: Slots, limits: LineLimits, store: DatabaseStore, on_fault: Faults) -> InlineRunner:
        """Its own line."""
        return InlineRunner(slots, limits, self._clock)

    @asynccontextmanager
    async def tending(self, group: TaskGroup, tended: Tended) -> AsyncIterator[None]:
        """Queues what an earlier process left, and tends from then on. Raises: StorageFailure."""
        ownership = tended.ownership
        await ownership.recover(alive=(), gone=None)
        chores = (ownership.expire, ownership.heed_cancels, partial(ownership.recover, (), ()), tended.forget)
        group.start_soon(tend, self._clock, chores, tended.health, tended.on_fault)
        group.start_soon(tended.following.run)
        yield


class Sharing:
    """One replica of several."""

    def __init__(self, database: PostgresDatabase, clock: Clock, owner: str, storage: StorageSettings) -> None:
        self.owner = owner
        self._clock = clock
        self._storage = storage
        self._pulse = Pulse(DatabaseReplicas(database, clock, owner, storage.replica_timeout), clock, owner)
        self._signals = Signals(database.connect, lambda: self._pulse.alone)
        self._runner: DbosRunner | None = None
        self.sinks: Sequence[EventSink] = (self._signals,)
        self.cancel = self._signals.cancel

    def runner(self, slots: Slots, limits: LineLimits, store: DatabaseStore, on_fault: Faults) -> DbosRunner:
        """Its part in the queue of all."""
        shared = Shared(self._storage.url, self.owner, store.waiting)
        self._runner = DbosRunner(slots, limits, shared=shared, clock=self._clock, on_fault=on_fault)
        return self._runner

    @asynccontextmanager
    async def tending(self, group: TaskGroup, tended: Tended) -> AsyncIterator[None]:
        """Says that it lives, tends from then on, and leaves what it has to the others at the end.

        They find out by themselves where they cannot be told. Raises: StorageFailure.
        """
        ownership = tended.ownership
        beat = partial(self._pulse.beat, partial(self._sweep, ownership))
        await beat()
        interval = self._storage.replica_timeout / BEATS_BEFORE_DEATH
        quick, slow = (beat, ownership.heed_cancels), (ownership.expire, tended.forget, self._forget_turns)
        for chores, seconds in ((quick, interval), (slow, INTERVAL_S)):
            group.start_soon(tend, self._clock, chores, tended.health, tended.on_fault, seconds)
        heeding = _Heeding(ownership.heed_cancels)
        group.start_soon(heeding.run)
        group.start_soon(self._signals.run, Heard(tended.following.grown, heeding.soon))
        group.start_soon(tended.following.run)
        yield
        with suppress(StorageFailure):
            await self._pulse.end()

    async def _sweep(self, ownership: Ownership, alive: frozenset[str], gone: frozenset[str]) -> None:
        if self._runner is not None:
            await self._runner.reclaim(alive)
        await ownership.recover(alive - {self.owner}, gone)

    async def _forget_turns(self) -> None:
        before = datetime.fromtimestamp(self._clock.now() - self._storage.event_retention_days * 86_400, UTC)
        if self._runner is not None:
            await self._runner.forget(before.isoformat())


class _Heeding:
    """Heeds cancels when it is told that there is one; what a fault leaves is found by who looks from time to time."""

    def __init__(self, heed: Chore) -> None:
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


def replica_on(
    database: SqliteDatabase | PostgresDatabase, clock: Clock, owner: str, storage: StorageSettings
) -> Lone | Sharing:
    """What this process, named `owner`, is among those that may use the database."""
    return Sharing(database, clock, owner, storage) if isinstance(database, PostgresDatabase) else Lone(clock, owner)


def limits_of(queue: QueueSettings) -> LineLimits:
    """The bounds of the queue."""
    return LineLimits(waiting=queue.waiting, at_once=queue.at_once, per_tenant=queue.per_tenant)
