"""Catch-up subscriptions: every event once, in order, and a long log in batches."""

from collections.abc import Sequence

from portico.adapters.event_bus import EventBus
from portico.domain.journal.events import LiveDelta, StoredEvent
from portico.orchestration.runtime.subscription import MAX_BATCH, CatchUpSubscription
from tests.support.examples import COMPLETED, MOVED, STARTED, live_delta, stored_events


def bus() -> EventBus:
    return EventBus([], capacity=5_000, on_fault=print, on_drop=lambda: None)


def numbers(items: Sequence[StoredEvent | LiveDelta]) -> list[int]:
    return [item.sequence_number for item in items if isinstance(item, StoredEvent)]


def test_a_long_log_is_returned_in_batches_and_live_events_follow_it() -> None:
    events = bus()
    live = events.subscribe("a")
    log = stored_events(*[MOVED] * (2 * MAX_BATCH + 10), COMPLETED)
    subscription = CatchUpSubscription(log[:-1], 0, live)
    events.publish("a", log[-3:])
    parts = [subscription.take() for _ in range(3)]
    assert [len(part) for part in parts] == [MAX_BATCH, MAX_BATCH, 11]
    assert [number for part in parts for number in numbers(part)] == list(range(1, len(log) + 1))
    assert subscription.ended


async def test_it_has_not_ended_while_events_are_pending() -> None:
    subscription = CatchUpSubscription(stored_events(*[MOVED] * (MAX_BATCH + 1)), 0, None)
    assert not subscription.ended
    assert [len(await subscription.next()), len(await subscription.next())] == [MAX_BATCH, 1]
    assert subscription.ended
    assert await subscription.next() == []


def test_an_end_that_arrives_while_the_log_is_read_is_still_returned() -> None:
    events = bus()
    live = events.subscribe("a")
    log = stored_events(MOVED, STARTED, COMPLETED)
    events.publish("a", log[1:])
    subscription = CatchUpSubscription([], 2, live)
    assert not subscription.ended
    assert numbers(subscription.take()) == [3]
    assert subscription.ended


def test_the_deltas_so_far_come_between_the_log_and_live_events() -> None:
    events = bus()
    live = events.subscribe("a")
    events.publish("a", [live_delta()])
    subscription = CatchUpSubscription([*stored_events(MOVED), live_delta()], 0, live)
    assert [type(item) for item in subscription.take()] == [StoredEvent, LiveDelta, LiveDelta]
