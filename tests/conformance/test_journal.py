"""Conformance of the journal on every database."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter

from portico.domain.failures import Code, RequestFailure
from portico.domain.journal.events import Event, LiveDelta, StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import Outcome
from portico.domain.lifecycle import State
from portico.ports.journal import Journal
from portico.ports.runtime import Clock
from tests.support.examples import (
    COMPLETED,
    DELTA,
    ENDED,
    EVENTS,
    MOVED,
    OUTCOMES,
    STARTED,
    correlation,
    header,
    recorded_step,
    unnumbered,
)
from tests.support.stored_executions import moved
from tests.support.stores import (
    RecordingSink,
    StoreReplica,
    database_opener,
    in_own_task,
    open_only_replica,
    open_replica,
)

Level = Callable[..., ExecutionHeader]


def in_memory(execution_id: str, request_id: str = "r-1", tenant: str = "local") -> ExecutionHeader:
    """Return the header of an execution that stays in memory until it ends."""
    return header(execution_id, request_id, tenant)


def journaled(execution_id: str, request_id: str = "r-1", tenant: str = "local") -> ExecutionHeader:
    """Return the header of an execution that is committed step by step."""
    return replace(header(execution_id, request_id, tenant), durability="journaled")


@pytest.fixture(params=[in_memory, journaled])
def level(request: pytest.FixtureRequest) -> Level:
    level: Level = request.param
    return level


@pytest.fixture(params=["sqlite", "postgres"])
async def replica(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[StoreReplica]:
    async with in_own_task(open_only_replica(database_opener(request, tmp_path), clock)) as alone:
        yield alone


@pytest.fixture
def journal(replica: StoreReplica) -> Journal:
    return replica.journal


@pytest.fixture
def sink(replica: StoreReplica) -> RecordingSink:
    return replica.sink


async def test_events_are_numbered_from_one_without_gaps_across_commits(
    journal: Journal, level: Level, sink: RecordingSink
) -> None:
    await journal.open(level("a"))
    journal.put("a", (), unnumbered(MOVED))
    journal.put("a", [recorded_step("0")], [])
    journal.put("a", [recorded_step("1")], unnumbered(STARTED, MOVED))
    journal.put("a", (), unnumbered(COMPLETED))
    await journal.durable("a")
    assert sink.sequence_numbers("a") == [1, 2, 3, 4]


async def test_every_execution_has_its_own_sequence_numbers(
    journal: Journal, level: Level, sink: RecordingSink
) -> None:
    await journal.open(level("a", "r-a"))
    await journal.open(level("b", "r-b"))
    for _ in range(3):
        journal.put("a", (), unnumbered(MOVED))
        journal.put("b", (), unnumbered(MOVED, STARTED))
    await journal.durable("a")
    await journal.durable("b")
    assert sink.sequence_numbers("a") == [1, 2, 3]
    assert sink.sequence_numbers("b") == [1, 2, 3, 4, 5, 6]


async def test_a_durable_history_is_loaded_as_it_was_put(journal: Journal, level: Level, clock: Clock) -> None:
    opened = level("a")
    await journal.open(opened)
    journal.put("a", [recorded_step("prepare")], unnumbered(MOVED))
    put_at = [clock.now(), clock.now() + 5]
    await clock.sleep(5)
    journal.put("a", [recorded_step("0")], unnumbered(STARTED))
    await journal.durable("a")
    record = await journal.load("a")
    assert record is not None
    assert record.header == opened
    assert dict(record.steps) == {"prepare": recorded_step("prepare"), "0": recorded_step("0")}
    assert list(record.steps) == ["prepare", "0"]
    assert [(each.event, each.anchor) for each in record.events] == [(MOVED, "0"), (STARTED, "0")]
    assert [each.at for each in record.events] == pytest.approx(put_at, abs=0.05, rel=0)


async def test_steps_that_are_put_together_are_commits_of_their_own_and_the_events_go_with_the_last(
    replica: StoreReplica, level: Level
) -> None:
    journal = replica.journal
    await journal.open(level("a"))
    journal.put("a", [recorded_step("prepare"), recorded_step("0")], unnumbered(MOVED, STARTED))
    journal.put("a", [recorded_step("0/0")], unnumbered(ENDED))
    await journal.durable("a")
    record = await journal.load("a")
    assert record is not None
    assert list(record.steps) == ["prepare", "0", "0/0"]
    assert [item.event for item in record.events] == [MOVED, STARTED, ENDED]
    assert replica.sink.sequence_numbers("a") == [1, 2, 3]


async def test_a_journaled_step_has_its_own_number(replica: StoreReplica) -> None:
    await replica.journal.open(journaled("a"))
    replica.journal.put("a", [recorded_step("prepare"), recorded_step("0")], unnumbered(MOVED, STARTED))
    replica.journal.put("a", (), unnumbered(ENDED))
    await replica.journal.durable("a")
    record = await replica.journal.load("a")
    assert record is not None
    assert record.commit_count == 3


async def test_a_step_that_is_put_twice_at_once_changes_nothing(
    journal: Journal, level: Level, sink: RecordingSink
) -> None:
    await journal.open(level("a"))
    with pytest.raises(RuntimeError, match="step 0 of a is recorded already"):
        journal.put("a", [recorded_step("0"), recorded_step("0")], unnumbered(MOVED))
    journal.put("a", [recorded_step("0")], unnumbered(STARTED))
    await journal.durable("a")
    assert sink.sequence_numbers("a") == [1]


async def test_a_loaded_history_does_not_change_afterwards(journal: Journal, level: Level) -> None:
    await journal.open(level("a"))
    journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    await journal.durable("a")
    record = await journal.load("a")
    assert record is not None
    journal.put("a", [recorded_step("1")], unnumbered(MOVED))
    await journal.durable("a")
    assert list(record.steps) == ["0"]
    assert len(record.events) == 1
    assert not hasattr(record.steps, "__setitem__")


async def test_a_step_key_is_recorded_only_once(journal: Journal, level: Level, sink: RecordingSink) -> None:
    await journal.open(level("a"))
    journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    with pytest.raises(RuntimeError, match="recorded already"):
        journal.put("a", [recorded_step("0")], unnumbered(MOVED))
    await journal.durable("a")
    assert sink.sequence_numbers("a") == [1]


async def test_a_delta_is_published_in_order_and_not_stored(
    journal: Journal, level: Level, sink: RecordingSink
) -> None:
    await journal.open(level("a"))
    journal.put("a", (), unnumbered(STARTED))
    journal.publish_delta("a", correlation(), DELTA)
    journal.put("a", (), unnumbered(MOVED))
    await journal.durable("a")
    assert [type(item) for _, item in sink.published] == [StoredEvent, LiveDelta, StoredEvent]
    assert sink.sequence_numbers("a") == [1, 2]
    record = await journal.load("a")
    assert record is not None
    assert [each.event for each in record.events] == [STARTED, MOVED]


async def test_the_request_id_of_a_running_execution_is_refused(journal: Journal, level: Level) -> None:
    await journal.open(level("a", "same"))
    with pytest.raises(RequestFailure) as refused:
        await journal.open(level("b", "same"))
    assert refused.value.code is Code.REQUEST_ID_CONFLICT
    assert refused.value.status == 409
    assert await journal.load("b") is None
    journal.put("a", [recorded_step("0")], unnumbered(MOVED))


async def test_the_request_id_of_a_recently_ended_execution_is_refused(journal: Journal, level: Level) -> None:
    await journal.open(level("a", "same"))
    journal.close("a")
    with pytest.raises(RequestFailure):
        await journal.open(level("b", "same"))


async def test_another_tenant_may_use_the_same_request_id(journal: Journal, level: Level) -> None:
    await journal.open(level("a", "same", tenant="one"))
    await journal.open(level("b", "same", tenant="two"))


async def test_putting_after_close_is_refused(journal: Journal, level: Level) -> None:
    await journal.open(level("a"))
    journal.close("a")
    with pytest.raises(RuntimeError, match="not open"):
        journal.put("a", [recorded_step("0")], [])
    with pytest.raises(RuntimeError, match="not open"):
        journal.publish_delta("a", correlation(), DELTA)


async def test_closing_twice_changes_nothing(journal: Journal, level: Level) -> None:
    await journal.open(level("a"))
    journal.close("a")
    journal.close("a")
    journal.close("never opened")


async def test_an_execution_is_opened_once(journal: Journal, level: Level) -> None:
    await journal.open(level("a", "one"))
    with pytest.raises(RuntimeError, match="open already"):
        await journal.open(level("a", "two"))


def _members(union: object) -> set[type]:
    return set(get_args(union))


def test_every_outcome_has_an_example() -> None:
    assert {type(example) for example in OUTCOMES} == _members(Outcome)


def test_every_event_has_an_example() -> None:
    assert {type(example) for example in EVENTS} == _members(Event)


@pytest.mark.parametrize("value", [*OUTCOMES, *EVENTS], ids=lambda value: type(value).__name__)
def test_every_outcome_and_event_survives_json(value: object) -> None:
    adapter = TypeAdapter(type(value))
    assert adapter.validate_json(adapter.dump_json(value, by_alias=True)) == value


def test_a_header_survives_json() -> None:
    adapter = TypeAdapter(ExecutionHeader)
    assert adapter.validate_json(adapter.dump_json(header("a"), by_alias=True)) == header("a")


async def test_an_execution_that_begins_with_steps_stores_them_with_its_header(
    journal: Journal, sink: RecordingSink
) -> None:
    await journal.open(journaled("a"), steps=[recorded_step("prepare"), recorded_step("0")])
    record = await journal.load("a")
    assert record is not None
    assert (list(record.steps), record.events, record.commit_count) == (["prepare", "0"], (), 0)
    assert sink.sequence_numbers("a") == []
    with pytest.raises(RuntimeError, match="recorded already"):
        journal.put("a", [recorded_step("0")], [])
    journal.put("a", [recorded_step("1")], unnumbered(STARTED))
    await journal.durable("a")
    after = await journal.load("a")
    assert after is not None
    assert (list(after.steps), after.commit_count) == (["prepare", "0", "1"], 1)
    assert sink.sequence_numbers("a") == [1]


async def test_of_two_replicas_that_run_one_request_id_in_memory_one_says_that_it_is_not_stored(
    replica: StoreReplica, clock: Clock
) -> None:
    async with open_replica(replica.database, clock, "other") as other:
        for here, execution_id in ((replica, "a"), (other, "b")):
            await here.journal.open(named(execution_id))
        for here, execution_id in ((replica, "a"), (other, "b")):
            here.journal.put(execution_id, (), unnumbered(MOVED, COMPLETED))
            here.journal.close(execution_id)
            await here.journal.flushed()
        with pytest.raises(RequestFailure):
            await other.journal.open(named("c"))
    assert (replica.losses.refused, replica.losses.dropped) == ([], 0)
    ((request_id, refusal),) = other.losses.refused
    assert (request_id, refusal.code, other.losses.dropped) == ("r-1", Code.REQUEST_ID_CONFLICT, 1)


async def test_a_request_id_that_is_refused_is_free_again_once_its_execution_is_erased(replica: StoreReplica) -> None:
    await replica.journal.open(journaled("a"))
    with pytest.raises(RequestFailure):
        await replica.journal.open(named("b"))
    replica.journal.discard("a", if_stored=True)
    replica.journal.put("a", (), unnumbered(moved(State.COMPLETE), COMPLETED))
    await replica.journal.durable("a")
    replica.journal.close("a")
    await replica.journal.open(named("c"))
    assert await replica.store.load("local", "a") is None


def named(execution_id: str) -> ExecutionHeader:
    """Return the header of an execution in memory whose request id the client gave."""
    plain = in_memory(execution_id)
    return replace(plain, request=plain.request.model_copy(update={"request_id": plain.request_id}))
