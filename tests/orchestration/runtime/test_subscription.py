"""Readers that join a log: everything once, in order, and a long log in parts."""

from collections.abc import Sequence

from app.adapters.event_bus import EventBus
from app.domain.journal.events import LiveDelta, StoredEvent
from app.orchestration.runtime.subscription import MAX_BATCH, CatchUpSubscription
from tests.support.examples import COMPLETED, MOVED, STARTED, live_delta, stored_events


def bus() -> EventBus:
    return EventBus([], capacity=5_000, on_fault=print, on_drop=lambda: None)


def numbers(items: Sequence[StoredEvent | LiveDelta]) -> list[int]:
    return [item.sequence_number for item in items if isinstance(item, StoredEvent)]


def test_a_long_log_is_given_in_parts_and_what_happens_comes_behind_it() -> None:
    here = bus()
    watching = here.subscribe("a")
    log = stored_events(*[MOVED] * (2 * MAX_BATCH + 10), COMPLETED)
    reader = CatchUpSubscription(log[:-1], 0, watching)
    here.publish("a", log[-3:])
    parts = [reader.take() for _ in range(3)]
    assert [len(part) for part in parts] == [MAX_BATCH, MAX_BATCH, 11]
    assert [number for part in parts for number in numbers(part)] == list(range(1, len(log) + 1))
    assert reader.ended


async def test_it_is_not_over_while_something_of_it_waits() -> None:
    reader = CatchUpSubscription(stored_events(*[MOVED] * (MAX_BATCH + 1)), 0, None)
    assert not reader.ended
    assert [len(await reader.next()), len(await reader.next())] == [MAX_BATCH, 1]
    assert reader.ended
    assert await reader.next() == []


def test_what_arrives_while_the_log_is_read_is_not_taken_for_an_end() -> None:
    here = bus()
    watching = here.subscribe("a")
    log = stored_events(MOVED, STARTED, COMPLETED)
    here.publish("a", log[1:])
    reader = CatchUpSubscription([], 2, watching)
    assert not reader.ended
    assert numbers(reader.take()) == [3]
    assert reader.ended


def test_what_was_streamed_so_far_stands_between_the_log_and_what_happens() -> None:
    here = bus()
    watching = here.subscribe("a")
    here.publish("a", [live_delta()])
    reader = CatchUpSubscription([*stored_events(MOVED), live_delta()], 0, watching)
    assert [type(item) for item in reader.take()] == [StoredEvent, LiveDelta, LiveDelta]
