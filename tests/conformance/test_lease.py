"""Conformance of leases: damaged executions end, those of a later version are left alone."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Integer, bindparam, delete, update

from portico.adapters.stores import codec
from portico.adapters.stores.database import Statement, execute
from portico.adapters.stores.schema import commits, executions
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, StorageFailure
from portico.domain.journal.events import ExecutionFailed, LifecycleTransition
from portico.domain.lifecycle import State
from portico.ports.runtime import Clock
from portico.ports.storage import ExecutionFilter, StoredExecution
from tests.support.examples import COMPLETED, MOVED, STARTED, TRACE, recorded_step, unnumbered
from tests.support.stored_executions import begun, journaled, moved
from tests.support.stores import StoreReplica

EVER = 10_000


def _set(column: str) -> Statement:
    where = commits.c.execution_id == "a", commits.c.number == bindparam("the_number", type_=Integer)
    return Statement(lambda _: update(commits).where(*where).values({column: bindparam("other")}))


_SETS = {column: _set(column) for column in ("outcome", "events", "first_event", "epoch")}
_DROP = Statement(
    lambda _: delete(commits).where(
        commits.c.execution_id == "a", commits.c.number >= bindparam("the_number", type_=Integer)
    )
)
_MODE = Statement(lambda _: update(executions).where(executions.c.execution_id == "a").values(mode=bindparam("mode")))


async def forge(here: StoreReplica, column: str, number: int, other: object) -> None:
    """Overwrite a column of a commit of execution a."""
    await here.database.write(lambda: execute(_SETS[column], {"the_number": number, "other": other}))


async def drop(here: StoreReplica, number: int) -> None:
    """Delete the commits of execution a from that number on."""
    await here.database.write(lambda: execute(_DROP, {"the_number": number}))


async def stands(here: StoreReplica, request_id: str = "r-a") -> StoredExecution:
    found = await here.store.find(LOCAL.own, request_id)
    assert found is not None
    return found


async def a_turn(here: StoreReplica) -> None:
    """Store execution a of session s, with a step and two commits of events, and b, which waits for its turn."""
    await here.journal.open(journaled("a", "r-a", session_id="s"))
    here.journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    here.journal.put("a", (), unnumbered(STARTED, MOVED))
    await here.journal.durable("a")
    here.journal.close("a")
    await here.journal.open(journaled("b", "r-b", session_id="s", busy="enqueue"))


BREAKS: dict[str, Any] = {
    "header": lambda here: forge(here, "outcome", 0, b'[1,{"execution_id":"b"}]'),
    "no JSON": lambda here: forge(here, "outcome", 1, b"\x80\x04\x95"),
    "outcome": lambda here: forge(here, "outcome", 1, b'[1,"Replied",{}]'),
    "events": lambda here: forge(here, "events", 1, b"[1,1,[],[[1.0,[]]]"),
    "format": lambda here: forge(here, "outcome", 1, b'[0,"Replied",{}]'),
    "numbers": lambda here: forge(here, "first_event", 2, 7),
    "last commit": lambda here: drop(here, 2),
    "all commits": lambda here: drop(here, 0),
}


@pytest.mark.parametrize("way", BREAKS)
async def test_a_damaged_execution_ends_once_and_so_does_its_turn(
    here: StoreReplica, there: StoreReplica, clock: Clock, way: str
) -> None:
    await a_turn(here)
    await BREAKS[way](here)
    assert await there.store.claim("a", 1) is None
    over = await stands(here)
    assert (over.status.state, over.status.last_error, over.owner) == (
        State.ERROR,
        Code.STORAGE_SNAPSHOT_INVALID,
        None,
    )
    assert over.status.entered_at == pytest.approx(clock.now(), abs=1)
    answer = over.status.response
    assert answer is not None
    assert answer.error is not None
    assert (answer.state, answer.session_id, answer.error.code) == (State.ERROR, "s", Code.STORAGE_SNAPSHOT_INVALID)
    (listed,) = (await here.store.executions(LOCAL.own, ExecutionFilter((State.ERROR,)), limit=9)).items
    assert listed == over
    past = await here.conversations.acquire_turn(LOCAL.own, "s", "b", limit=9, on_wait=lambda: pytest.fail("it waits"))
    assert past.message_count == 0
    assert [await each.store.claim("a", over.epoch) for each in (here, there)] == [None, None]
    assert [each.execution_id for each in await here.store.orphaned(())] == ["b"]
    assert await stands(here) == over


@pytest.mark.parametrize("way", ["header", "outcome", "last commit"])
async def test_the_end_of_a_damaged_execution_is_in_its_readable_log(
    here: StoreReplica, there: StoreReplica, way: str
) -> None:
    await a_turn(here)
    before = await here.store.events("local", "a", limit=EVER)
    await BREAKS[way](here)
    await there.store.claim("a", 1)
    log = await here.store.events("local", "a", limit=EVER)
    readable = [] if way == "last commit" else before[1:]
    assert list(log[:-2]) == [before[0], *readable]
    transition, failed = (each.event for each in log[-2:])
    assert transition == LifecycleTransition(State.VALIDATE, State.ERROR, 1, "storage_snapshot_invalid")
    assert isinstance(failed, ExecutionFailed)
    assert [each.sequence_number for each in log[-2:]] == [4, 5]
    assert {each.correlation.trace_id for each in log} == {failed.response.trace_id} == {TRACE}
    assert [each for _, each in there.sink.published] == list(log[-2:])
    assert (await stands(here)).last_sequence_number == 5


@pytest.mark.parametrize("way", ["events", "all commits"])
async def test_the_end_of_a_damaged_execution_follows_its_unreadable_events(here: StoreReplica, way: str) -> None:
    await a_turn(here)
    await BREAKS[way](here)
    await here.store.claim("a", 1)
    log = await here.store.events("local", "a", after=3, limit=EVER)
    assert [each.event.type for each in log] == ["lifecycle.transition", "execution.failed"]
    assert {each.correlation.trace_id for each in log} == {TRACE if way == "events" else "0" * 32}


async def test_the_previous_owner_of_a_damaged_execution_cannot_write(here: StoreReplica, there: StoreReplica) -> None:
    await begun(here, "a", "r-a", MOVED)
    await forge(here, "outcome", 0, b"{}")
    await there.store.claim("a", 1)
    here.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED))
    with pytest.raises(StorageFailure):
        await here.journal.durable("a")
    assert (await stands(here)).status.state is State.ERROR


LATER: dict[str, Any] = {
    "header": lambda here: forge(here, "outcome", 0, b'[99,{"execution_id":"b"}]'),
    "outcome": lambda here: forge(here, "outcome", 1, b'[12,"Dreamt",{}]'),
    "events": lambda here: forge(here, "events", 2, b"[99,[]]"),
    "mode": lambda here: here.database.write(lambda: execute(_MODE, {"mode": "dream"})),
}


@pytest.mark.parametrize("way", LATER)
async def test_an_execution_of_a_later_version_is_left_unchanged(
    here: StoreReplica, there: StoreReplica, way: str
) -> None:
    await a_turn(here)
    (before,) = [each for each in await here.store.orphaned(()) if each.execution_id == "a"]
    await LATER[way](here)
    with pytest.raises(StorageFailure) as refused:
        await there.store.claim("a", 1)
    assert refused.value.code is Code.STORAGE_SNAPSHOT_INVALID
    assert before in await here.store.orphaned(())
    session = await here.conversations.session(LOCAL.own, "s")
    assert session is not None
    assert session.busy
    assert there.sink.published == []
    assert await there.store.claim("b", 1) is not None


async def test_a_released_execution_is_unchanged_except_for_its_owner(here: StoreReplica, there: StoreReplica) -> None:
    await begun(here, "a", "r-a", MOVED)
    before = await stands(here)
    claimed = await there.store.claim("a", 1)
    assert claimed is not None
    await there.store.release("a", claimed.epoch)
    assert await stands(here) == replace(before, owner=None)
    await there.store.release("a", claimed.epoch)
    assert (await stands(here)).epoch == 1
    here.journal.put("a", [recorded_step("0")], unnumbered(STARTED))
    await here.journal.durable("a")
    after = replace(before.status, total_steps=1, last_step="round 1", provider=STARTED.provider, model=STARTED.model)
    assert await stands(here) == replace(before, last_sequence_number=2, status=after)
    assert await here.store.claim("a", 1) is not None


async def test_an_ended_execution_is_not_released(here: StoreReplica) -> None:
    await begun(here, "a", "r-a", moved(State.COMPLETE), COMPLETED)
    before = await stands(here)
    await here.store.release("a", before.epoch)
    assert await stands(here) == before


async def test_an_unreadable_response_is_left_out_and_reported(here: StoreReplica) -> None:
    await begun(here, "a", "r-a", moved(State.COMPLETE), COMPLETED)
    await begun(here, "b", "r-b", moved(State.COMPLETE), COMPLETED)
    broken = Statement(
        lambda _: update(executions).where(executions.c.execution_id == "a").values(response=bindparam("other"))
    )
    for other in (b"[99,{}]", b"\x80"):
        await here.database.write(lambda other=other: execute(broken, {"other": other}))
        listed = (await here.store.executions(LOCAL.own, ExecutionFilter(), limit=9)).items
        assert [(each.status.response is None, each.status.last_error) for each in listed] == [
            (False, None),
            (True, Code.STORAGE_SNAPSHOT_INVALID),
        ]
        assert (await stands(here)).status.state is State.COMPLETE


@pytest.mark.parametrize(
    ("data", "later"), [(b"[1,{}]", False), (b"[99,{}]", True), (b"[10,", True), (b"[0,1]", False), (b"2", False)]
)
def test_a_newer_format_is_recognised(data: bytes, later: bool) -> None:
    assert codec.is_newer_format(data) == later
