"""The pulse of a replica among others: it says that it lives, and sees who does not any more."""

from collections.abc import Awaitable, Callable

from app.domain.ids import ReplicaId
from app.ports.runtime import Clock
from app.ports.storage import ReplicaRegistry

MAX_MISSED_BEATS = 5
"""How many beats a replica may miss before the others go on with what it ran."""
SWEEP_INTERVAL_S = 15.0


class Heartbeat:
    """Who lives, as of the last beat; at first this replica alone."""

    def __init__(self, replicas: ReplicaRegistry, clock: Clock, owner: ReplicaId) -> None:
        self.alive = frozenset({owner})
        self._replicas = replicas
        self._clock = clock
        self._gone: frozenset[ReplicaId] = frozenset()
        self._swept_at = clock.monotonic()

    @property
    def is_alone(self) -> bool:
        """Whether nobody else lives."""
        return len(self.alive) == 1

    async def beat(self, sweep: Callable[[frozenset[ReplicaId], frozenset[ReplicaId]], Awaitable[object]]) -> None:
        """Beats once; `sweep` is called with those that live, and those that do not any more, when there are some.

        It is called every `SWEEP_S` anyway. Raises: StorageFailure; what was not swept then is the next time.
        """
        alive = await self._replicas.heartbeat()
        self._gone |= self.alive - alive
        self.alive = alive
        if self._gone or self._clock.monotonic() - self._swept_at >= SWEEP_INTERVAL_S:
            await sweep(alive, self._gone)
            self._gone = frozenset()
            self._swept_at = self._clock.monotonic()

    async def leave(self) -> None:
        """This replica does not live any more. Raises: StorageFailure."""
        await self._replicas.leave()
