"""Timers on both databases: the claim of due rows of any table of timers, and when the next rows of all are due."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Exists,
    Select,
    Table,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
    union_all,
    update,
)

from portico.adapters.stores.database import Database, ResultRows, Statement, Transaction, execute, execute_each
from portico.adapters.stores.schema import delayed_starts, schedules, webhook_deliveries
from portico.domain.ids import ReplicaId, TenantId
from portico.ports.timers import DueTimer, TimerKind, TimerState

TIMER_TABLES: Final[Mapping[TimerKind, Table]] = MappingProxyType(
    {TimerKind.START: delayed_starts, TimerKind.SCHEDULE: schedules, TimerKind.DELIVERY: webhook_deliveries}
)
"""The table of each kind."""
_LIMIT: BindParameter[int] = bindparam("at_most", type_=BigInteger)


class DatabaseTimerQueue:
    """Implementation of the `TimerQueue` port on the table of a kind."""

    def __init__(self, database: Database, kind: TimerKind, owner: ReplicaId) -> None:
        self._database = database
        self._owner = owner
        self._claim, self._postpone = _CLAIMS[kind], _POSTPONEMENTS[kind]

    async def claim(self, now: float, limit: int) -> Sequence[DueTimer]:
        values = {"now": now, "owner": self._owner, "at_most": limit}
        rows = await self._database.write(lambda: execute(self._claim, values))
        found = [DueTimer(timer_id, TenantId(tenant), due_at) for timer_id, tenant, due_at in rows]
        return sorted(found, key=lambda each: each.due_at)

    async def postpone(self, timer: DueTimer, until: float) -> None:
        values = {"the_timer_id": timer.timer_id, "owner": self._owner, "until": until}
        await self._database.write(lambda: execute(self._postpone, values), idempotent=True)


class DatabaseTimers:
    """Implementation of the `TimerStore` port."""

    def __init__(self, database: Database, owner: ReplicaId) -> None:
        self._database = database
        self._owner = owner

    async def state(self) -> TimerState:
        rows = await self._database.read(lambda: execute(_STATE, {}))
        due = {TimerKind(kind): due_at for kind, due_at, _ in rows if due_at is not None}
        return TimerState(due, has_claims=any(is_claimed for _, _, is_claimed in rows))

    async def release(self, alive: Collection[ReplicaId], running: Collection[str]) -> None:
        others = frozenset(alive) - {self._owner}
        await self._database.write(lambda: _release(others, self._owner, frozenset(running)), idempotent=True)


def any_timers() -> Transaction[bool]:
    """Return whether there is a row that is due, now or later."""
    rows: ResultRows = yield from execute(ANY_TIMERS, {})
    return bool(rows[0][0])


def _release(others: frozenset[str], owner: ReplicaId, running: frozenset[str]) -> Transaction[None]:
    for kind in TIMER_TABLES:
        claimed = yield from execute(_CLAIMED[kind], {})
        ended = [
            {"the_timer_id": timer_id, "the_owner": claimed_by}
            for timer_id, claimed_by in claimed
            if claimed_by not in others and not (claimed_by == owner and timer_id in running)
        ]
        yield from execute_each(_RELEASES[kind], ended)


def _claim(table: Table) -> Statement:
    """Return the claim; on PostgreSQL the rows that another replica claims at this moment are left out."""
    due = (
        select(table.c.timer_id)
        .where(table.c.due_at <= bindparam("now"), table.c.due_at.is_not(None), table.c.claimed_by.is_(None))
        .order_by(table.c.due_at)
        .limit(_LIMIT)
        .with_for_update(skip_locked=True)
        .cte("due")
    )
    return Statement(
        lambda _: (
            update(table)
            .where(table.c.timer_id.in_(select(due.c.timer_id)))
            .values(claimed_by=bindparam("owner"))
            .returning(table.c.timer_id, table.c.tenant, table.c.due_at)
        )
    )


def _postponement(table: Table) -> Statement:
    return Statement(
        lambda _: (
            update(table)
            .where(table.c.timer_id == bindparam("the_timer_id"), table.c.claimed_by == bindparam("owner"))
            .values(due_at=bindparam("until"), claimed_by=None)
        )
    )


def _claimed(table: Table) -> Statement:
    return Statement(lambda _: select(table.c.timer_id, table.c.claimed_by).where(table.c.claimed_by.is_not(None)))


def _release_one(table: Table) -> Statement:
    return Statement(
        lambda _: (
            update(table)
            .where(table.c.timer_id == bindparam("the_timer_id"), table.c.claimed_by == bindparam("the_owner"))
            .values(claimed_by=None)
        )
    )


def _state(kind: TimerKind, table: Table) -> Select[Any]:
    first = select(func.min(table.c.due_at)).where(table.c.due_at.is_not(None), table.c.claimed_by.is_(None))
    return select(
        literal_column(f"'{kind}'"),
        first.scalar_subquery(),
        exists().where(table.c.claimed_by.is_not(None)).correlate(None),
    )


def _are_there(table: Table) -> tuple[Exists, Exists]:
    """Return whether there are rows that wait, and claimed ones. Each is a look at an index without the ended rows."""
    waits = exists().where(table.c.due_at.is_not(None), table.c.claimed_by.is_(None))
    return waits.correlate(None), exists().where(table.c.claimed_by.is_not(None)).correlate(None)


_CLAIMS = MappingProxyType({kind: _claim(table) for kind, table in TIMER_TABLES.items()})
_POSTPONEMENTS = MappingProxyType({kind: _postponement(table) for kind, table in TIMER_TABLES.items()})
_CLAIMED = MappingProxyType({kind: _claimed(table) for kind, table in TIMER_TABLES.items()})
_RELEASES = MappingProxyType({kind: _release_one(table) for kind, table in TIMER_TABLES.items()})
_STATE = Statement(lambda _: union_all(*(_state(kind, table) for kind, table in TIMER_TABLES.items())))
ANY_TIMERS = Statement(lambda _: select(or_(*chain.from_iterable(map(_are_there, TIMER_TABLES.values())))))
