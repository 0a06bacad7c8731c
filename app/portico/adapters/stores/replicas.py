"""Registry of the replicas that share a database.

Each replica counts its heartbeats in a row of its own. A reader uses its own clock: a replica is alive while its count
has changed within `timeout` seconds, so that clocks need not agree. A replica that was just found counts as alive, and
a row that has not changed for much longer is deleted. A reader that could not read for a while, because it was paused
or the database did not answer, starts its measurement again; otherwise every replica would take all others for dead
after an outage.
"""

from sqlalchemy import bindparam, delete, select

from portico.adapters.stores.database import Database, ResultRows, Statement, Transaction, execute, execute_each
from portico.adapters.stores.schema import replicas
from portico.adapters.stores.timers import any_timers
from portico.domain.ids import ReplicaId
from portico.ports.runtime import Clock

_TIMEOUTS_TO_DELETION = 10


class DatabaseReplicas:
    """Implementation of the `ReplicaRegistry` port. `owner` is the name of this replica, `timeout` is in seconds."""

    def __init__(self, database: Database, clock: Clock, owner: ReplicaId, timeout: float) -> None:
        self._database = database
        self.has_timers = False
        self._clock = clock
        self._owner = owner
        self._timeout = timeout
        self._read_at = clock.monotonic()
        self._counts: dict[ReplicaId, tuple[int, float]] = {}
        """Count of each replica, and the time at which it was last seen to change."""

    async def heartbeat(self) -> frozenset[ReplicaId]:
        dead = [name for name in self._counts if self._unchanged_for(name) > _TIMEOUTS_TO_DELETION * self._timeout]
        rows, self.has_timers = await self._database.write(lambda: _beat(self._owner, dead), idempotent=True)
        now = self._clock.monotonic()
        known = {} if now - self._read_at > self._timeout / 2 else self._counts
        self._read_at = now
        self._counts = {
            name: known[name] if name in known and known[name][0] == beats else (beats, now) for name, beats in rows
        }
        return frozenset({self._owner, *(name for name in self._counts if self._unchanged_for(name) < self._timeout)})

    async def leave(self) -> None:
        await self._database.write(lambda: execute(_LEAVE, {"the_replica": self._owner}), idempotent=True)

    def _unchanged_for(self, name: ReplicaId) -> float:
        """Return the seconds since the count of that replica changed."""
        return self._clock.monotonic() - self._counts[name][1]


def _beat(owner: ReplicaId, dead: list[ReplicaId]) -> Transaction[tuple[ResultRows, bool]]:
    yield from execute(_BEAT, {"replica": owner, "beats": 1})
    yield from execute_each(_LEAVE, [{"the_replica": name} for name in dead if name != owner])
    beats = yield from execute(_ALL, {})
    return beats, (yield from any_timers())


_BEAT = Statement(
    lambda insert: (
        insert(replicas)
        .values(replica=bindparam("replica"), beats=bindparam("beats"))
        .on_conflict_do_update(index_elements=["replica"], set_={"beats": replicas.c.beats + 1})
    )
)
_LEAVE = Statement(lambda _: delete(replicas).where(replicas.c.replica == bindparam("the_replica")))
_ALL = Statement(lambda _: select(replicas.c.replica, replicas.c.beats))
