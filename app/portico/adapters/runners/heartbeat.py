"""Heartbeat of a replica: it reports that this replica is alive and finds those that are not."""

from collections.abc import Awaitable, Callable

from portico.domain.ids import ReplicaId
from portico.ports.runtime import Clock
from portico.ports.storage import ReplicaRegistry

MAX_MISSED_BEATS = 5
"""Number of beats that a replica may miss before the others take over its executions."""
SWEEP_INTERVAL_S = 15.0


class Heartbeat:
    """The live replicas as of the last beat; before the first beat, this replica alone."""

    def __init__(self, replicas: ReplicaRegistry, clock: Clock, owner: ReplicaId) -> None:
        self.alive = frozenset({owner})
        self._replicas = replicas
        self._clock = clock
        self._gone: frozenset[ReplicaId] = frozenset()
        self._swept_at = clock.monotonic()

    @property
    def is_alone(self) -> bool:
        """Return whether no other replica is alive."""
        return len(self.alive) == 1

    @property
    def has_timers(self) -> bool:
        """Return whether any row of a timer was there at the last beat."""
        return self._replicas.has_timers

    async def beat(self, sweep: Callable[[frozenset[ReplicaId], frozenset[ReplicaId]], Awaitable[object]]) -> None:
        """Beat once, and sweep if replicas died or `SWEEP_INTERVAL_S` has passed.

        `sweep` is called with the live replicas and those that died since the last sweep. If it raises, the next beat
        sweeps again. Raises: StorageFailure.
        """
        alive = await self._replicas.heartbeat()
        self._gone |= self.alive - alive
        self.alive = alive
        if self._gone or self._clock.monotonic() - self._swept_at >= SWEEP_INTERVAL_S:
            await sweep(alive, self._gone)
            self._gone = frozenset()
            self._swept_at = self._clock.monotonic()

    async def leave(self) -> None:
        """Report that this replica ends. Raises: StorageFailure."""
        await self._replicas.leave()
