"""Conformance of stored timers: claims, postponements, and what ends a claim."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import bindparam

from portico.adapters.stores.database import Statement, execute_each
from portico.adapters.stores.replicas import DatabaseReplicas
from portico.adapters.stores.schema import schedules
from portico.adapters.stores.sqlite import open_sqlite
from portico.adapters.stores.timers import ANY_TIMERS, TIMER_TABLES, DatabaseTimerQueue, DatabaseTimers
from portico.ports.runtime import Clock
from portico.ports.timers import DueTimer, TimerKind, TimerState
from tests.support.stores import StoreReplica

NOTHING = TimerState({}, has_claims=False)
_ADD = Statement(
    lambda insert: insert(schedules).values(
        timer_id=bindparam("timer_id"),
        tenant="acme",
        due_at=bindparam("due_at"),
        name=bindparam("timer_id"),
        user_id="ada",
        created_at=0.0,
        updated_at=0.0,
        content=b"",
    )
)


def queue_of(here: StoreReplica, owner: str = "one") -> DatabaseTimerQueue:
    return DatabaseTimerQueue(here.database, TimerKind.SCHEDULE, owner)


def timers_of(here: StoreReplica, owner: str = "one") -> DatabaseTimers:
    return DatabaseTimers(here.database, owner)


async def add(here: StoreReplica, **due: float | None) -> None:
    rows: list[dict[str, Any]] = [{"timer_id": timer_id, "due_at": at} for timer_id, at in due.items()]
    await here.database.write(lambda: execute_each(_ADD, rows))


def ids(found: object) -> list[str]:
    assert isinstance(found, list)
    return [each.timer_id for each in found if isinstance(each, DueTimer)]


async def test_what_is_due_is_claimed_once_and_the_longest_due_comes_first(here: StoreReplica) -> None:
    await add(here, late=30.0, early=10.0, later=40.0, never=None)
    assert await queue_of(here).claim(9.0, 10) == []
    found = await queue_of(here).claim(35.0, 10)
    assert found == [DueTimer("early", "acme", 10.0), DueTimer("late", "acme", 30.0)]
    assert await queue_of(here, "other").claim(35.0, 10) == []
    assert await queue_of(here).claim(35.0, 10) == []


async def test_no_more_than_the_limit_are_claimed(here: StoreReplica) -> None:
    await add(here, **{f"t{number}": float(number) for number in range(5)})
    assert ids(await queue_of(here).claim(9.0, 2)) == ["t0", "t1"]
    assert ids(await queue_of(here, "other").claim(9.0, 9)) == ["t2", "t3", "t4"]


async def test_the_state_says_when_the_next_is_due_and_whether_one_is_claimed(here: StoreReplica) -> None:
    timers = timers_of(here)
    assert await timers.state() == NOTHING
    assert (await timers.state()).is_empty
    await add(here, a=10.0, b=20.0, never=None)
    assert await timers.state() == TimerState({TimerKind.SCHEDULE: 10.0}, has_claims=False)
    await queue_of(here).claim(15.0, 1)
    assert await timers.state() == TimerState({TimerKind.SCHEDULE: 20.0}, has_claims=True)
    await queue_of(here).claim(25.0, 1)
    assert await timers.state() == TimerState({}, has_claims=True)


async def test_a_postponed_row_is_free_and_due_then(here: StoreReplica) -> None:
    await add(here, a=10.0)
    [timer] = await queue_of(here).claim(10.0, 1)
    await queue_of(here).postpone(timer, 12.0)
    assert await queue_of(here, "other").claim(11.0, 1) == []
    assert ids(await queue_of(here, "other").claim(12.0, 1)) == ["a"]


async def test_a_replica_postpones_only_what_it_has_claimed(here: StoreReplica) -> None:
    await add(here, a=10.0)
    [timer] = await queue_of(here).claim(10.0, 1)
    await queue_of(here, "other").postpone(timer, 99.0)
    assert await timers_of(here).state() == TimerState({}, has_claims=True)


async def test_claims_end_with_their_replica(here: StoreReplica) -> None:
    await add(here, dead=1.0, mine=2.0, others=3.0)
    for owner in ("gone", "one", "other"):
        await queue_of(here, owner).claim(9.0, 1)
    await timers_of(here).release({"one", "other"}, running={"mine"})
    assert ids(await queue_of(here, "other").claim(9.0, 9)) == ["dead"]


async def test_a_claim_that_its_replica_does_not_know_is_free_again(here: StoreReplica) -> None:
    """The answer to a claim may be lost with the connection."""
    await add(here, lost=1.0, runs=2.0)
    await queue_of(here).claim(9.0, 2)
    await timers_of(here).release({"one", "other"}, running={"runs"})
    assert ids(await queue_of(here).claim(9.0, 9)) == ["lost"]


@pytest.mark.parametrize("due_at", [5.0, None])
async def test_another_replica_learns_of_the_first_row_by_its_heartbeat(
    here: StoreReplica, clock: Clock, due_at: float | None
) -> None:
    registry = DatabaseReplicas(here.database, clock, "other", 10.0)
    await registry.heartbeat()
    assert not registry.has_timers
    await add(here, a=due_at)
    await registry.heartbeat()
    assert registry.has_timers is (due_at is not None)


async def test_no_look_for_timers_reads_the_rows_that_have_ended(tmp_path: Path) -> None:
    """Delivered messages of webhooks stay for days, and each heartbeat looks for timers."""
    async with open_sqlite(tmp_path / "portico.db"):
        pass
    with closing(sqlite3.connect(tmp_path / "portico.db")) as database:
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {ANY_TIMERS.compiled('sqlite').sql}")]
    tables = [line for line in plan if line.startswith(("SCAN", "SEARCH")) and "CONSTANT" not in line]
    assert len(tables) == 2 * len(TIMER_TABLES)
    assert [line for line in tables if "_due " not in line and "_claimed " not in line] == []
