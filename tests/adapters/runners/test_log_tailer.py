"""Log tailer: every event of a log that grows elsewhere arrives once and in order."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from portico.adapters.event_bus import EventBus
from portico.adapters.runners.log_tailer import POLL_INTERVAL_S, LogTailer
from portico.domain.failures import Code, StorageFailure
from portico.domain.journal.events import CorrelationContext, InferenceDelta, LiveDelta, StoredEvent
from portico.domain.journal.status import ExecutionStatus
from portico.domain.lifecycle import Mode
from portico.ports.events import Subscription
from portico.ports.storage import ExecutionStore, StoredExecution
from tests.support.examples import COMPLETED, SPAN, STARTED, SUSPENDED, TRACE
from tests.support.harness import fail_on_fault

ROOT = CorrelationContext("r-a", None, TRACE, SPAN, None)
A = StoredExecution("a", "local", "r-a", None, Mode.CHAT, 1.0, ExecutionStatus(1.0), "other", 1, 0, "local")


@dataclass
class Log(ExecutionStore):
    """A store with one log and nothing else."""

    stored_events: list[StoredEvent] = field(default_factory=list)
    read_count: int = 0
    fails: bool = False

    async def events(self, tenant: str, execution_id: str, *, after: int = 0, limit: int) -> Sequence[StoredEvent]:
        self.read_count += 1
        if self.fails:
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")
        assert (tenant, execution_id) == ("local", "a")
        return self.stored_events[after : after + limit]

    def grow(self, count: int, *, last: bool = False) -> list[StoredEvent]:
        """Append that many events; `last` makes the final one terminal."""
        first = len(self.stored_events) + 1
        more = [StoredEvent(number, 1.0, "0", ROOT, STARTED) for number in range(first, first + count)]
        if last:
            more[-1] = more[-1]._replace(event=COMPLETED)
        self.stored_events += more
        return more


@dataclass
class TailingReplica:
    """A replica with a log tailer."""

    log: Log
    bus: EventBus
    tailer: LogTailer

    def read(self, after: int = 0) -> Subscription:
        return self.tailer.tail(A, after)


@asynccontextmanager
async def _place() -> AsyncIterator[TailingReplica]:
    log, bus = Log(), EventBus([], capacity=8, on_fault=fail_on_fault, on_drop=lambda: None)
    tailer = LogTailer(log, bus)
    async with anyio.create_task_group() as group:
        group.start_soon(tailer.run)
        yield TailingReplica(log, bus, tailer)
        group.cancel_scope.cancel()


async def rest(reader: Subscription) -> list[int]:
    """Return the numbers of all remaining events."""
    numbers: list[int] = []
    while items := await reader.next():
        numbers += [item.sequence_number for item in items if isinstance(item, StoredEvent)]
    return numbers


async def test_a_stored_log_is_read_from_any_position_to_its_end() -> None:
    async with _place() as here:
        here.log.grow(7, last=True)
        assert await rest(here.read()) == [1, 2, 3, 4, 5, 6, 7]
        assert await rest(here.read(after=5)) == [6, 7]


async def test_a_long_log_is_read_only_as_fast_as_it_is_consumed() -> None:
    async with _place() as here:
        here.log.grow(10_000, last=True)
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        assert here.log.read_count <= 5
        began = anyio.current_time()
        assert await rest(reader) == list(range(1, 10_001))
        assert anyio.current_time() == began


async def test_a_grown_log_is_read_on_notification() -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
        here.log.grow(2)
        here.tailer.notify_grown("a")
        assert len(await reader.next()) == 2
        assert anyio.current_time() == began
        reader.close()


async def test_a_grown_log_is_read_by_polling_without_notification() -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
        here.log.grow(2, last=True)
        assert await rest(reader) == [1, 2]
        assert anyio.current_time() - began <= POLL_INTERVAL_S


@pytest.mark.parametrize("stored", [True, False])
async def test_a_subscription_to_the_next_suspension_ends_there(stored: bool) -> None:
    async with _place() as here:
        suspended = here.log.grow(3)
        here.log.stored_events[-1] = suspended[-1] = suspended[-1]._replace(event=SUSPENDED)
        reader = here.tailer.tail(A, 1, past_suspension=False)
        if not stored:
            here.bus.publish("a", suspended)
        here.log.grow(2, last=True)
        assert await rest(reader) == [2, 3]
        assert await rest(here.read(3)) == [4, 5]
        assert not here.bus.has_subscribers("a")


async def test_reading_is_retried_after_a_storage_failure() -> None:
    async with _place() as here:
        here.log.fails = True
        here.log.grow(2, last=True)
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        here.log.fails = False
        assert await rest(reader) == [1, 2]


async def test_locally_published_events_arrive_at_once_and_once() -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        read_count = here.log.read_count
        here.bus.publish("a", here.log.grow(2))
        here.tailer.notify_grown("a")
        here.bus.publish("a", here.log.grow(1, last=True))
        assert await rest(reader) == [1, 2, 3]
        assert here.log.read_count <= read_count + 1


async def test_events_missing_before_a_published_one_are_read_first() -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        here.log.grow(3)
        here.bus.publish("a", here.log.grow(2, last=True))
        assert await rest(reader) == [1, 2, 3, 4, 5]


async def test_a_single_event_missing_before_published_ones_is_read_first() -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        here.log.grow(1)
        here.bus.publish("a", here.log.grow(2, last=True))
        assert await rest(reader) == [1, 2, 3]


async def test_deltas_behind_a_gap_are_not_delivered() -> None:
    """The missing event may have retracted their segment."""
    delta = LiveDelta(1.0, ROOT, InferenceDelta(STARTED.segment, 0, text="Hello"))
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        here.bus.publish("a", [*here.log.grow(1), delta])
        here.log.grow(1)
        here.bus.publish("a", [*here.log.grow(1), delta])
        assert [type(item) for item in reader.take()] == [StoredEvent, LiveDelta]
        here.bus.publish("a", here.log.grow(1, last=True))
        assert await rest(reader) == [2, 3, 4]


async def test_deltas_are_delivered_only_after_the_start_of_their_segment() -> None:
    delta = LiveDelta(1.0, ROOT, InferenceDelta(STARTED.segment, 0, text="Hello"))
    async with _place() as here:
        late = here.read()
        here.bus.publish("a", [delta])
        here.bus.publish("a", here.log.grow(1))
        here.bus.publish("a", [delta])
        assert [type(item) for item in late.take()] == [StoredEvent, LiveDelta]
        late.close()


async def test_an_idle_subscription_holds_a_bounded_queue_and_misses_nothing() -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        for _ in range(5_000):
            here.bus.publish("a", here.log.grow(1))
        here.bus.publish("a", here.log.grow(1, last=True))
        held = reader.take()
        assert len(held) <= 2_500
        assert len(held) + len(await rest(reader)) == 5_001


async def test_a_subscription_continues_after_a_suspension() -> None:
    async with _place() as here:
        (first,) = here.log.grow(1)
        here.log.stored_events[0] = first._replace(event=SUSPENDED)
        reader = here.read()
        assert len(await reader.next()) == 1
        assert not reader.ended
        here.log.grow(1, last=True)
        assert await rest(reader) == [2]


@pytest.mark.parametrize("published", [0, 2])
async def test_a_disconnected_stored_subscription_gets_its_queued_events(published: int) -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        if published:
            here.bus.publish("a", here.log.grow(published))
        here.bus.disconnect_all_except(())
        assert reader.ended
        assert len(reader.take()) == published


async def test_the_store_is_not_read_for_a_closed_subscription() -> None:
    async with _place() as here:
        reader = here.read()
        await anyio.wait_all_tasks_blocked()
        reader.close()
        read_count = here.log.read_count
        await anyio.sleep(10 * POLL_INTERVAL_S)
        assert here.log.read_count == read_count
        assert not here.bus.has_subscribers("a")
