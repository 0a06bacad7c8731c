"""What the journal in memory promises beyond the port: what it forgets, and how it goes on with a record."""

from collections.abc import Sequence

import pytest

from app.adapters.stores.memory_journal import MemoryJournal
from app.domain.failures import RequestFailure
from app.domain.journal.events import LiveDelta, StoredEvent
from tests.support.examples import COMPLETED, MOVED, STARTED, header, recorded_step, unnumbered
from tests.support.virtual_time import VirtualClock


class Listener:
    """Hears everything, in order."""

    def __init__(self) -> None:
        self.heard: list[StoredEvent | LiveDelta] = []

    def publish(self, _execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        self.heard.extend(items)


async def test_b4_92_ended_executions_take_no_memory(clock: VirtualClock) -> None:
    journal = MemoryJournal(clock, Listener(), keep_ended=2)
    for number in range(4):
        await journal.open(header(str(number), f"r-{number}"))
        journal.put(str(number), recorded_step("0"), unnumbered(COMPLETED))
        journal.close(str(number))
        assert await journal.load(str(number)) is None
    for number in (2, 3):
        with pytest.raises(RequestFailure):
            await journal.open(header("new", f"r-{number}"))
    await journal.open(header("0", "r-0"))


async def test_without_memory_of_ended_ones_an_id_is_free_at_once(clock: VirtualClock) -> None:
    journal = MemoryJournal(clock, Listener(), keep_ended=0)
    await journal.open(header("a"))
    journal.close("a")
    await journal.open(header("a"))


async def test_what_is_put_is_published_at_once(clock: VirtualClock) -> None:
    listener = Listener()
    journal = MemoryJournal(clock, listener, keep_ended=1)
    await journal.open(header("a"))
    journal.put("a", None, unnumbered(MOVED))
    assert [item.event for item in listener.heard] == [MOVED]


async def test_a_record_is_gone_on_with_where_it_stopped(clock: VirtualClock) -> None:
    first = MemoryJournal(clock, Listener(), keep_ended=1)
    await first.open(header("a"))
    first.put("a", recorded_step("0"), unnumbered(MOVED, STARTED))
    record = await first.load("a")
    assert record is not None

    listener = Listener()
    second = MemoryJournal(clock, listener, keep_ended=1)
    second.attach(record)
    assert await second.load("a") == record
    assert listener.heard == []
    second.put("a", recorded_step("1"), unnumbered(MOVED))
    assert [item.sequence_number for item in listener.heard if isinstance(item, StoredEvent)] == [3]
    with pytest.raises(RuntimeError, match="recorded already"):
        second.put("a", recorded_step("0"), [])


async def test_an_adopted_name_is_in_use(clock: VirtualClock) -> None:
    first = MemoryJournal(clock, Listener(), keep_ended=1)
    await first.open(header("a"))
    record = await first.load("a")
    assert record is not None
    second = MemoryJournal(clock, Listener(), keep_ended=1)
    second.attach(record)
    with pytest.raises(RequestFailure):
        await second.open(header("b"))
    with pytest.raises(RuntimeError, match="open already"):
        second.attach(record)
