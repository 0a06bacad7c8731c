"""Stores of limits: in memory for a replica that is alone on SQLite, shared by all replicas on PostgreSQL.

In memory everything is exact, and the rates are written every few seconds, so that a restart does not fill them. On
PostgreSQL a lease locks the row of its limit. Slots belong to a replica until `SLOT_TTL_S` after it renewed them last.
Times are those of the replicas: where clocks differ, a limit is exceeded once by what comes back in the difference.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import bindparam, delete, func, select

from portico.adapters.stores.database import Database, Statement, Transaction, execute, execute_each
from portico.adapters.stores.schema import limit_rates, limit_slots
from portico.domain.access.limits import LEASES, Rate
from portico.domain.ids import ReplicaId
from portico.ports.limits import RateLease
from portico.ports.runtime import Clock

SLOT_TTL_S: Final = 15.0


class MemoryLimitStore:
    """Implementation of the `LimitStore` port for the only replica, whose rates are stored with `write`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._full_at: dict[str, float] = {}
        self._changed: set[str] = set()

    async def load(self) -> None:
        """Read the rates that an earlier process has written. Raises: StorageFailure."""
        rows = await self._database.read(lambda: execute(_ALL_RATES, {}))
        self._full_at = {str(row[0]): row[1] for row in rows}

    async def write(self) -> None:
        """Store the rates that have changed, and forget those that are full. Raises: StorageFailure."""
        changed, self._changed = self._changed, set()
        now = self._clock.now()
        for name in [name for name, full_at in self._full_at.items() if full_at <= now]:
            del self._full_at[name]
        rates = [{"name": name, "full_at": self._full_at.get(name, 0.0)} for name in changed]
        try:
            await self._database.write(lambda: _write_rates(rates, now), idempotent=True)
        except BaseException:
            self._changed |= changed
            raise

    async def lease_units(self, name: str, rate: Rate, needed: int) -> RateLease:
        now = self._clock.now()
        lease = _lease(rate, self._full_at.get(name, 0.0), now, needed)
        if lease.units:
            self._take(name, lease.full_at)
        return lease

    async def lease_slots(self, name: str, limit: int, held: int) -> int:
        return min(limit, held + 1)

    async def settle(self, spent: Mapping[tuple[str, Rate], int], slots: Mapping[str, int]) -> None:
        now = self._clock.now()
        for (name, rate), units in spent.items():
            self._take(name, rate.take(self._full_at.get(name, 0.0), now, units))

    def _take(self, name: str, full_at: float) -> None:
        self._full_at[name] = full_at
        self._changed.add(name)


class SharedLimitStore:
    """Implementation of the `LimitStore` port for one replica of several. `owner` is its name."""

    def __init__(self, database: Database, clock: Clock, owner: ReplicaId) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner

    async def lease_units(self, name: str, rate: Rate, needed: int) -> RateLease:
        now = self._clock.now()
        return await self._database.write(lambda: _lease_units(name, rate, needed, now))

    async def lease_slots(self, name: str, limit: int, held: int) -> int:
        now = self._clock.now()
        return await self._database.write(lambda: _lease_slots(name, self._owner, limit, held, now))

    async def settle(self, spent: Mapping[tuple[str, Rate], int], slots: Mapping[str, int]) -> None:
        now = self._clock.now()
        await self._database.write(lambda: _settle(spent, slots, self._owner, now))

    async def load(self) -> None:
        """Do nothing: every lease reads the shared state."""

    async def write(self) -> None:
        """Delete the rates that are full and the slots that have expired. Raises: StorageFailure."""
        now = self._clock.now()
        await self._database.write(lambda: _write_rates((), now), idempotent=True)


def _lease(rate: Rate, full_at: float, now: float, needed: int) -> RateLease:
    """Return the lease of the needed units, or of a fortieth of what is left if that is more."""
    left = rate.available(full_at, now)
    if needed > left:
        return RateLease(0, full_at)
    units = max(needed, left // LEASES)
    return RateLease(units, rate.take(full_at, now, units))


def _write_rates(rates: Sequence[Mapping[str, object]], now: float) -> Transaction[None]:
    yield from execute_each(_SET_RATE, rates)
    yield from execute(_DELETE_FULL_RATES, {"now": now})
    yield from execute(_DELETE_EXPIRED_SLOTS, {"now": now})


def _locked_rate(name: str) -> Transaction[float]:
    """Lock the row of the limit, which is made if there is none, and return when it is full."""
    rows = yield from execute(_LOCK_RATE, {"name": name, "full_at": 0.0})
    full_at: float = rows[0][0]
    return full_at


def _lease_units(name: str, rate: Rate, needed: int, now: float) -> Transaction[RateLease]:
    full_at = yield from _locked_rate(name)
    lease = _lease(rate, full_at, now, needed)
    if lease.units:
        yield from execute(_SET_RATE, {"name": name, "full_at": lease.full_at})
    return lease


def _lease_slots(name: str, owner: ReplicaId, limit: int, held: int, now: float) -> Transaction[int]:
    yield from _locked_rate(name)
    rows = yield from execute(_SLOTS_OF_OTHERS, {"the_name": name, "owner": owner, "now": now})
    left = limit - int(rows[0][0] or 0) - held
    granted = held + (max(1, left // LEASES) if left > 0 else 0)
    yield from execute(_SET_SLOTS, _slots(name, owner, granted, now))
    return granted


def _settle(
    spent: Mapping[tuple[str, Rate], int], slots: Mapping[str, int], owner: ReplicaId, now: float
) -> Transaction[None]:
    for (name, rate), units in sorted(spent.items(), key=lambda each: each[0][0]):
        full_at = yield from _locked_rate(name)
        yield from execute(_SET_RATE, {"name": name, "full_at": rate.take(full_at, now, units)})
    yield from execute_each(_SET_SLOTS, [_slots(name, owner, held, now) for name, held in sorted(slots.items())])


def _slots(name: str, owner: ReplicaId, held: int, now: float) -> Mapping[str, object]:
    return {"name": name, "replica": owner, "slots": held, "expires_at": now + SLOT_TTL_S}


_SET_RATE = Statement(
    lambda insert: (
        insert(limit_rates)
        .values(name=bindparam("name"), full_at=bindparam("full_at"))
        .on_conflict_do_update(index_elements=["name"], set_={"full_at": bindparam("full_at")})
    )
)
_LOCK_RATE = Statement(
    lambda insert: (
        insert(limit_rates)
        .values(name=bindparam("name"), full_at=bindparam("full_at"))
        .on_conflict_do_update(index_elements=["name"], set_={"full_at": limit_rates.c.full_at})
        .returning(limit_rates.c.full_at)
    )
)
_ALL_RATES = Statement(lambda _: select(limit_rates.c.name, limit_rates.c.full_at))
_DELETE_FULL_RATES = Statement(lambda _: delete(limit_rates).where(limit_rates.c.full_at <= bindparam("now")))
_SLOTS_OF_OTHERS = Statement(
    lambda _: select(func.sum(limit_slots.c.slots)).where(
        limit_slots.c.name == bindparam("the_name"),
        limit_slots.c.replica != bindparam("owner"),
        limit_slots.c.expires_at > bindparam("now"),
    )
)
_SET_SLOTS = Statement(
    lambda insert: (
        insert(limit_slots)
        .values(
            name=bindparam("name"),
            replica=bindparam("replica"),
            slots=bindparam("slots"),
            expires_at=bindparam("expires_at"),
        )
        .on_conflict_do_update(
            index_elements=["name", "replica"],
            set_={"slots": bindparam("slots"), "expires_at": bindparam("expires_at")},
        )
    )
)
_DELETE_EXPIRED_SLOTS = Statement(lambda _: delete(limit_slots).where(limit_slots.c.expires_at <= bindparam("now")))
