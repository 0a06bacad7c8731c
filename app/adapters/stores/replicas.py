"""Which replicas share the database, and which of them live.

Each counts its beats in a row of its own. Whoever watches goes by its own clock: a replica lives while its count has
changed within `patience` seconds, so that no two clocks have to agree. One that was just found counts as alive, and a
row that has stood still for much longer is dropped. Whoever could not look for a while, because it was paused or the
database did not answer, has seen nobody be silent, and begins to count anew: else an outage would end in everybody
taking everybody else for dead.
"""

from sqlalchemy import bindparam, delete, select

from app.adapters.stores.database import Database, ResultRows, Statement, Transaction, execute, execute_each
from app.adapters.stores.schema import replicas
from app.domain.ids import ReplicaId
from app.ports.runtime import Clock

_FORGOTTEN_AFTER = 10
"""Times the patience."""


class DatabaseReplicas:
    """Implements `keeping.Replicas`. `owner` names this replica, `patience` is in seconds."""

    def __init__(self, database: Database, clock: Clock, owner: ReplicaId, patience: float) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._patience = patience
        self._looked_at = clock.monotonic()
        self._beaten: dict[ReplicaId, tuple[int, float]] = {}
        """The count of each replica, and when it was seen to change."""

    async def heartbeat(self) -> frozenset[ReplicaId]:
        lost = [name for name in self._beaten if self._silent(name) > _FORGOTTEN_AFTER * self._patience]
        rows = await self._database.write(lambda: _beat(self._owner, lost), idempotent=True)
        now = self._clock.monotonic()
        known = {} if now - self._looked_at > self._patience / 2 else self._beaten
        self._looked_at = now
        self._beaten = {
            name: known[name] if name in known and known[name][0] == beats else (beats, now) for name, beats in rows
        }
        return frozenset({self._owner, *(name for name in self._beaten if self._silent(name) < self._patience)})

    async def leave(self) -> None:
        await self._database.write(lambda: execute(_LEAVE, {"the_replica": self._owner}), idempotent=True)

    def _silent(self, name: ReplicaId) -> float:
        """Seconds since its count changed."""
        return self._clock.monotonic() - self._beaten[name][1]


def _beat(owner: ReplicaId, lost: list[ReplicaId]) -> Transaction[ResultRows]:
    yield from execute(_BEAT, {"replica": owner, "beats": 1})
    yield from execute_each(_LEAVE, [{"the_replica": name} for name in lost if name != owner])
    return (yield from execute(_ALL, {}))


_BEAT = Statement(
    lambda insert: (
        insert(replicas)
        .values(replica=bindparam("replica"), beats=bindparam("beats"))
        .on_conflict_do_update(index_elements=["replica"], set_={"beats": replicas.c.beats + 1})
    )
)
_LEAVE = Statement(lambda _: delete(replicas).where(replicas.c.replica == bindparam("the_replica")))
_ALL = Statement(lambda _: select(replicas.c.replica, replicas.c.beats))
