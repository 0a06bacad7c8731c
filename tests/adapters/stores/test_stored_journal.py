"""Stored journal beyond the port: queues, dropped and lost executions, and their callbacks."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from portico.adapters.stores.database import Database, Transaction
from portico.adapters.stores.journal.writer import WriterLimits
from portico.adapters.stores.sqlite import open_sqlite
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, RequestFailure, StorageFailure
from portico.domain.journal.events import InferenceDelta, LifecycleTransition, LiveDelta, StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.lifecycle import State
from tests.support.examples import COMPLETED, DELTA, MOVED, STARTED, correlation, header, recorded_step, unnumbered
from tests.support.stores import StoreReplica, in_own_task, open_replica
from tests.support.virtual_time import VirtualClock

OVER = LifecycleTransition(State.EXECUTE, State.COMPLETE, 1, "answered")


class Gate:
    """A database whose writer waits for the test, or fails."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open = anyio.Event()
        self._open.set()
        self.asked = anyio.Event()
        self.failure: Exception | None = None
        self.groups = 0
        self.refused = 0

    def shut(self) -> None:
        self._open = anyio.Event()
        self.asked = anyio.Event()

    def let_through(self) -> None:
        self._open.set()

    async def append(self, work: Callable[[], Transaction[Any]]) -> Any:
        """Count groups of commits."""
        self.asked.set()
        await self._open.wait()
        if self.failure is not None:
            self.refused += 1
            raise self.failure
        self.groups += 1
        return await self._database.append(work)

    async def write(self, work: Callable[[], Transaction[Any]], *, idempotent: bool = False) -> Any:
        return await self._database.write(work, idempotent=idempotent)

    async def maintain(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.maintain(work)

    async def read(self, work: Callable[[], Transaction[Any]]) -> Any:
        return await self._database.read(work)


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    async with in_own_task(open_sqlite(tmp_path / "portico.db")) as database:
        yield Gate(database)


@pytest.fixture
async def here(gate: Gate, clock: VirtualClock) -> AsyncIterator[StoreReplica]:
    async with in_own_task(open_replica(gate, clock)) as opened:
        yield opened


def journaled(execution_id: str) -> ExecutionHeader:
    return replace(header(execution_id, f"r-{execution_id}"), durability="journaled")


def in_memory(execution_id: str) -> ExecutionHeader:
    return header(execution_id, f"r-{execution_id}")


def ended(here: StoreReplica, execution_id: str) -> None:
    """Put the end of an execution and close it."""
    here.journal.put(execution_id, [recorded_step("0")], unnumbered(STARTED))
    here.journal.put(execution_id, (), unnumbered(OVER, COMPLETED))
    here.journal.close(execution_id)


async def test_events_are_published_after_their_commit_and_deltas_after_them(here: StoreReplica, gate: Gate) -> None:
    await here.journal.open(journaled("a"))
    gate.shut()
    here.journal.put("a", (), unnumbered(STARTED))
    here.journal.publish_delta("a", correlation(), DELTA)
    here.journal.put("a", (), unnumbered(MOVED))
    here.journal.publish_delta("a", correlation(), DELTA)
    await checkpoint()
    assert here.sink.published == []
    gate.let_through()
    await here.journal.durable("a")
    assert [type(item) for _, item in here.sink.published] == [StoredEvent, LiveDelta, StoredEvent, LiveDelta]
    here.journal.publish_delta("a", correlation(), DELTA)
    assert len(here.sink.published) == 5


async def test_deltas_do_not_wait_for_commits_of_other_executions(here: StoreReplica, gate: Gate) -> None:
    await here.journal.open(journaled("a"))
    await here.journal.open(journaled("b"))
    gate.shut()
    here.journal.put("a", (), unnumbered(STARTED))
    here.journal.publish_delta("b", correlation(), DELTA)
    assert [who for who, _ in here.sink.published] == ["b"]
    gate.let_through()


async def test_commits_that_arrive_during_a_commit_form_one_group(here: StoreReplica, gate: Gate) -> None:
    for name in "abcdefgh":
        await here.journal.open(journaled(name))
    before = gate.groups
    for name in "abcdefgh":
        for number in range(4):
            here.journal.put(name, [recorded_step(f"{number}")], unnumbered(MOVED))
    await here.journal.durable("h")
    assert gate.groups == before + 1


async def test_a_failed_group_loses_all_queued_commits_of_its_executions(here: StoreReplica, gate: Gate) -> None:
    for name in "ab":
        await here.journal.open(journaled(name))
    gate.shut()
    here.journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    await gate.asked.wait()
    here.journal.put("a", [recorded_step("1")], unnumbered(MOVED))
    gate.failure = StorageFailure(Code.STORAGE_FULL, "full")
    gate.let_through()
    with pytest.raises(StorageFailure) as lost:
        await here.journal.durable("a")
    assert lost.value.code is Code.STORAGE_FULL
    gate.failure = None
    here.journal.put("a", [recorded_step("2")], unnumbered(MOVED))
    here.journal.put("b", [recorded_step("0")], unnumbered(MOVED))
    await here.journal.durable("b")
    assert here.losses.lost == {"a": lost.value}
    assert here.sink.sequence_numbers("a") == []
    record = await here.store.load("local", "a")
    assert record is not None
    assert record.steps == {}


async def test_no_execution_waits_for_a_silent_database_for_the_time_of_two_groups(
    here: StoreReplica, gate: Gate, clock: VirtualClock
) -> None:
    for name in "abc":
        await here.journal.open(journaled(name))
    gate.shut()
    here.journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    await gate.asked.wait()
    here.journal.put("b", [recorded_step("0")], unnumbered(MOVED))
    gate.failure = StorageFailure(Code.STORAGE_UNAVAILABLE, "silent")
    gate.let_through()
    for name in "ab":
        with pytest.raises(StorageFailure):
            await here.journal.durable(name)
    gate.failure = None
    here.journal.put("c", [recorded_step("0")], unnumbered(MOVED))
    await here.journal.durable("c")
    assert list(here.losses.lost) == ["a", "b"]
    assert gate.refused == 1


async def test_an_execution_that_overflows_the_queue_is_lost(gate: Gate, clock: VirtualClock) -> None:
    async with open_replica(gate, clock, limits=WriterLimits(queue_bytes=20_000)) as here:
        await here.journal.open(journaled("a"))
        gate.shut()
        for number in range(1_000):
            here.journal.put("a", [recorded_step(f"{number}")], unnumbered(MOVED))
        for _ in range(1_000):
            here.journal.publish_delta("a", correlation(), InferenceDelta("0", 0, "x" * 100))
        gate.let_through()
        with pytest.raises(StorageFailure):
            await here.journal.durable("a")
        assert list(here.losses.lost) == ["a"]


async def test_an_execution_that_ended_in_memory_is_written_whole(
    here: StoreReplica, gate: Gate, clock: VirtualClock
) -> None:
    await here.journal.open(in_memory("a"))
    ended(here, "a")
    assert here.sink.sequence_numbers("a") == [1, 2, 3]
    assert gate.groups == 0
    await clock.sleep(1)
    found = await here.store.find(LOCAL.own, "r-a")
    record = await here.store.load("local", "a")
    assert found is not None
    assert record is not None
    assert (found.status.state, found.status.response, found.owner) == (State.COMPLETE, COMPLETED.response, None)
    assert [item for _, item in here.sink.published] == list(record.events)
    assert (record.steps, record.commit_count) == ({"0": recorded_step("0")}, 0)


async def test_a_wait_for_what_ended_is_not_one_for_what_ends_meanwhile(here: StoreReplica, gate: Gate) -> None:
    for execution_id in ("a", "b"):
        await here.journal.open(in_memory(execution_id))
    ended(here, "a")
    gate.shut()
    async with anyio.create_task_group() as group:
        group.start_soon(here.journal.flushed)
        await gate.asked.wait()
        ended(here, "b")
        gate.let_through()
        gate.shut()
    assert gate.groups == 1
    gate.let_through()


async def test_ended_executions_without_room_are_dropped_and_counted(gate: Gate, clock: VirtualClock) -> None:
    async with open_replica(gate, clock, limits=WriterLimits(ended_bytes=50_000)) as here:
        gate.shut()
        for number in range(100):
            await here.journal.open(in_memory(f"{number}"))
            ended(here, f"{number}")
        assert here.losses.dropped > 50
        gate.let_through()
        await clock.sleep(1)
        stored = [await here.store.find(LOCAL.own, f"r-{number}") for number in range(100)]
    assert len([each for each in stored if each]) == 100 - here.losses.dropped


async def test_an_ended_execution_that_cannot_be_written_is_counted_and_affects_no_other(
    here: StoreReplica, gate: Gate, clock: VirtualClock
) -> None:
    gate.failure = StorageFailure(Code.STORAGE_UNAVAILABLE, "away")
    await here.journal.open(in_memory("a"))
    ended(here, "a")
    await clock.sleep(1)
    assert (here.losses.dropped, here.losses.lost) == (1, {})
    gate.failure = None
    await here.journal.open(in_memory("b"))
    ended(here, "b")
    await clock.sleep(1)
    assert await here.store.find(LOCAL.own, "r-b") is not None


async def test_an_execution_in_memory_is_stored_commit_by_commit_once_it_is_durable(here: StoreReplica) -> None:
    await here.journal.open(in_memory("a"))
    here.journal.put("a", [recorded_step("prepare")], unnumbered(MOVED))
    here.journal.put("a", [recorded_step("0")], unnumbered(STARTED))
    assert await here.store.find(LOCAL.own, "r-a") is None
    await here.journal.durable("a")
    here.journal.put("a", [recorded_step("1")], unnumbered(MOVED))
    await here.journal.durable("a")
    record = await here.store.load("local", "a")
    assert record is not None
    assert list(record.steps) == ["prepare", "0", "1"]
    assert [each.sequence_number for each in record.events] == [1, 2, 3]
    assert here.sink.sequence_numbers("a") == [1, 2, 3]
    with pytest.raises(RuntimeError, match="recorded already"):
        here.journal.put("a", [recorded_step("0")], [])


async def test_an_execution_in_memory_whose_request_id_is_stored_cannot_become_durable(
    gate: Gate, clock: VirtualClock
) -> None:
    async with open_replica(gate, clock) as here, open_replica(gate, clock, "other") as there:
        await here.journal.open(in_memory("a"))
        await there.journal.open(replace(journaled("b"), request_id="r-a"))
        here.journal.put("a", [recorded_step("0")], unnumbered(MOVED))
        with pytest.raises(RequestFailure) as refused:
            await here.journal.durable("a")
        assert refused.value.code is Code.REQUEST_ID_CONFLICT


async def test_a_cancelled_open_leaves_nothing(here: StoreReplica, gate: Gate) -> None:
    gate.shut()
    async with anyio.create_task_group() as group:
        group.start_soon(here.journal.open, journaled("before"))
        await gate.asked.wait()
        with anyio.move_on_after(1):
            await here.journal.open(journaled("a"))
        gate.let_through()
    assert await here.store.find(LOCAL.own, "r-before") is not None
    assert await here.store.find(LOCAL.own, "r-a") is None
    with pytest.raises(RuntimeError, match="not open"):
        here.journal.put("a", [recorded_step("0")], [])


async def test_queued_commits_are_written_before_the_journal_closes(gate: Gate, clock: VirtualClock) -> None:
    async with open_replica(gate, clock) as here:
        await here.journal.open(journaled("a"))
        here.journal.put("a", [recorded_step("0")], unnumbered(MOVED))
        await here.journal.open(in_memory("b"))
        ended(here, "b")
    record = await here.store.load("local", "a")
    assert record is not None
    assert list(record.steps) == ["0"]
    assert await here.store.find(LOCAL.own, "r-b") is not None


async def test_a_bug_in_a_group_loses_its_executions_and_the_writer_goes_on(here: StoreReplica, gate: Gate) -> None:
    for name in "ab":
        await here.journal.open(journaled(name))
    bug = gate.failure = ZeroDivisionError("of ours")
    here.journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    with pytest.raises(StorageFailure) as lost:
        await here.journal.durable("a")
    gate.failure = None
    here.journal.put("b", [recorded_step("0")], unnumbered(MOVED))
    await here.journal.durable("b")
    assert (here.losses.bugs, here.losses.lost) == ([bug], {"a": lost.value})
    assert lost.value.code is Code.STORAGE_UNAVAILABLE
    assert here.sink.sequence_numbers("b") == [1]
