"""Event bus: faulty sinks and slow subscriptions affect nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from portico.adapters.event_bus import EventBus
from portico.domain.journal.events import (
    EVENT_TYPES,
    Event,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
    LiveDelta,
    StoredEvent,
)
from tests.support.examples import (
    CANCELLED,
    COMPLETED,
    DELTA,
    ENDED,
    FAILED,
    MOVED,
    STARTED,
    SUSPENDED,
    live_delta,
    stored_events,
)
from tests.support.virtual_time import EPOCH

CAPACITY = 8


class EventRecorder:
    """A sink that records all events of the types that it wants, and the streams."""

    def __init__(self, *wanted: type[Any]) -> None:
        self.wanted = wanted or EVENT_TYPES
        self.events: list[StoredEvent | LiveDelta] = []
        self.log: list[Any] = []

    def publish(self, _execution_id: str, items: Sequence[StoredEvent | LiveDelta]) -> None:
        self.events.extend(items)
        self.log.extend(item.event for item in items)

    def streamed(self, execution_id: str, segment: str, first_at: float | None, count: int) -> None:
        self.log.append((execution_id, segment, first_at, count))


class Broken:
    """A sink that always fails."""

    wanted = EVENT_TYPES

    def publish(self, _execution_id: str, _items: Sequence[StoredEvent | LiveDelta]) -> None:
        raise ZeroDivisionError("a sink's bug")

    def streamed(self, _execution_id: str, _segment: str, _first_at: float | None, _count: int) -> None:
        raise ZeroDivisionError("a sink's bug")


class ObservedBus:
    """A bus with the faults and drops that it reported."""

    def __init__(self, *sinks: EventRecorder | Broken) -> None:
        self.faults: list[Exception] = []
        self.drops = 0
        self.bus = EventBus(sinks, sinks, capacity=CAPACITY, on_fault=self.faults.append, on_drop=self._dropped)

    def _dropped(self) -> None:
        self.drops += 1


def test_a_sink_gets_all_events_before_publish_returns() -> None:
    recorder = EventRecorder()
    ObservedBus(recorder).bus.publish("a", stored_events(MOVED, STARTED))
    assert [item.event for item in recorder.events] == [MOVED, STARTED]


def test_a_failing_sink_affects_neither_the_core_nor_the_next_sink() -> None:
    recorder = EventRecorder()
    observed = ObservedBus(Broken(), recorder)
    observed.bus.publish("a", stored_events(MOVED))
    assert [type(fault) for fault in observed.faults] == [ZeroDivisionError]
    assert [item.event for item in recorder.events] == [MOVED]


def test_a_sink_is_called_where_a_type_of_event_that_it_wants_is_published_and_gets_all_of_the_commit() -> None:
    recorder, everything = EventRecorder(InferenceStart), EventRecorder()
    bus = ObservedBus(recorder, everything).bus
    bus.publish("a", stored_events(MOVED))
    bus.publish("a", stored_events(MOVED, STARTED))
    bus.publish("a", [live_delta()])
    assert recorder.log == [MOVED, STARTED]
    assert everything.log == [MOVED, MOVED, STARTED, DELTA]


def stream(bus: EventBus, *offsets: int, segment: str = DELTA.segment) -> None:
    """Publish deltas at these offsets, one a second."""
    for second, offset in enumerate(offsets):
        bus.publish("a", [live_delta(replace(DELTA, segment=segment, offset=offset), EPOCH + second)])


@pytest.mark.parametrize("end", [ENDED, InferenceRetracted(ENDED.segment), SUSPENDED, COMPLETED, FAILED, CANCELLED])
def test_the_deltas_of_an_attempt_are_counted_once_before_its_end_is_published(end: Event) -> None:
    recorder = EventRecorder(type(end))
    bus = ObservedBus(recorder).bus
    stream(bus, 0, 5, 9)
    bus.publish("a", stored_events(end))
    bus.publish("a", stored_events(end))
    assert recorder.log == [("a", DELTA.segment, EPOCH, 3), end, end]


def test_the_deltas_of_attempts_that_stream_at_once_are_counted_apart() -> None:
    recorder = EventRecorder(InferenceEnd)
    bus = ObservedBus(recorder).bus
    stream(bus, 0, 5)
    stream(bus, 0, segment="2/0")
    bus.publish("b", stored_events(ENDED))
    bus.publish("a", stored_events(ENDED))
    assert recorder.log == [ENDED, ("a", DELTA.segment, EPOCH, 2), ENDED]
    bus.publish("a", stored_events(COMPLETED))
    assert recorder.log[3:] == [("a", "2/0", EPOCH, 1)]


def test_a_stream_whose_first_delta_was_dropped_has_no_time() -> None:
    recorder = EventRecorder(InferenceEnd)
    bus = ObservedBus(recorder).bus
    stream(bus, 5, 9)
    bus.publish("a", stored_events(ENDED))
    assert recorder.log[0] == ("a", DELTA.segment, None, 2)


@pytest.mark.parametrize("leave", [lambda bus: bus.disconnect("a"), lambda bus: bus.disconnect_all_except({"b"})])
def test_the_deltas_of_an_execution_that_does_not_run_here_any_more_are_counted(
    leave: Callable[[EventBus], None],
) -> None:
    recorder = EventRecorder(InferenceEnd)
    bus = ObservedBus(recorder).bus
    stream(bus, 0, 5)
    bus.disconnect_all_except({"a"})
    assert recorder.log == []
    leave(bus)
    leave(bus)
    assert recorder.log == [("a", DELTA.segment, EPOCH, 2)]


def test_a_sink_that_fails_on_a_stream_affects_neither_the_core_nor_the_next_sink() -> None:
    recorder = EventRecorder(InferenceEnd)
    observed = ObservedBus(Broken(), recorder)
    stream(observed.bus, 0)
    observed.bus.disconnect("a")
    assert recorder.log == [("a", DELTA.segment, EPOCH, 1)]
    assert len(observed.faults) == 2


async def test_a_subscription_returns_all_queued_events_at_once() -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    bus.publish("a", stored_events(MOVED))
    bus.publish("a", [live_delta()])
    assert [type(item) for item in await subscription.next()] == [StoredEvent, LiveDelta]


async def test_a_waiting_subscription_is_woken() -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    got: list[StoredEvent | LiveDelta] = []

    async def read() -> None:
        got.extend(await subscription.next())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        bus.publish("a", stored_events(MOVED))
        bus.publish("a", [live_delta()])
    assert len(got) == 2


def test_a_subscription_is_notified_of_events_and_of_its_end() -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    calls: list[tuple[int, bool]] = []
    subscription.notify(lambda: calls.append((len(subscription.take()), subscription.ended)))
    bus.publish("a", [*stored_events(MOVED, STARTED), live_delta()])
    bus.publish("a", stored_events(COMPLETED))
    assert calls == [(3, False), (1, True)]
    subscription.notify(None)
    subscription.close()
    assert calls == [(3, False), (1, True)]


async def test_a_subscription_gets_only_events_of_its_execution() -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    bus.publish("b", stored_events(STARTED))
    bus.publish("a", stored_events(MOVED))
    assert [item.event for item in await subscription.next()] == [MOVED]


async def test_all_subscriptions_of_an_execution_get_the_same_events() -> None:
    bus = ObservedBus().bus
    subscriptions = [bus.subscribe("a") for _ in range(3)]
    bus.publish("a", stored_events(MOVED, STARTED))
    assert len({tuple(await subscription.next()) for subscription in subscriptions}) == 1


@pytest.mark.parametrize("last", [COMPLETED, FAILED, CANCELLED, SUSPENDED], ids=lambda event: event.type)
async def test_a_subscription_ends_after_the_last_event_was_delivered(last: Event) -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    bus.publish("a", stored_events(MOVED, last))
    assert not bus.has_subscribers("a")
    assert [item.event for item in await subscription.next()] == [MOVED, last]
    assert await subscription.next() == []
    assert await subscription.next() == []
    assert not subscription.overflowed


async def test_only_a_subscription_with_a_full_queue_is_dropped() -> None:
    observed = ObservedBus(recorder := EventRecorder())
    slow, quick = observed.bus.subscribe("a"), observed.bus.subscribe("a")
    events: list[StoredEvent | LiveDelta] = []
    for _ in range(CAPACITY + 1):
        observed.bus.publish("a", stored_events(MOVED))
        events.extend(await quick.next())
    assert slow.overflowed
    assert await slow.next() == []
    assert observed.drops == 1
    assert len(events) == len(recorder.events) == CAPACITY + 1
    assert not quick.overflowed


async def test_a_dropped_subscription_has_no_events_and_is_not_counted_again() -> None:
    observed = ObservedBus()
    observed.bus.subscribe("a")
    for _ in range(CAPACITY * 3):
        observed.bus.publish("a", stored_events(MOVED))
    assert observed.drops == 1
    assert not observed.bus.has_subscribers("a")


async def test_a_queue_may_be_filled_to_its_capacity() -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    bus.publish("a", stored_events(*[MOVED] * CAPACITY))
    assert len(await subscription.next()) == CAPACITY
    assert not subscription.overflowed


async def test_closing_a_waiting_subscription_returns_no_events() -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    got: list[Sequence[StoredEvent | LiveDelta]] = []

    async def read() -> None:
        got.append(await subscription.next())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        subscription.close()
    assert got == [[]]


async def test_a_cancelled_wait_loses_no_event() -> None:
    bus = ObservedBus().bus
    subscription = bus.subscribe("a")
    with anyio.move_on_after(5):
        await subscription.next()
    bus.publish("a", stored_events(MOVED))
    assert [item.event for item in await subscription.next()] == [MOVED]


def test_an_execution_has_subscribers_until_the_last_one_is_closed() -> None:
    bus = ObservedBus().bus
    assert not bus.has_subscribers("a")
    first, second = bus.subscribe("a"), bus.subscribe("a")
    first.close()
    first.close()
    assert bus.has_subscribers("a")
    second.close()
    assert not bus.has_subscribers("a")


def test_closed_subscriptions_hold_no_memory() -> None:
    bus = ObservedBus().bus
    for number in range(100):
        subscription = bus.subscribe(str(number))
        bus.publish(str(number), stored_events(MOVED, *([COMPLETED] if number % 2 else [])))
        subscription.close()
        assert not bus.has_subscribers(str(number))


async def test_a_subscription_past_suspensions_continues_after_a_suspension() -> None:
    bus = ObservedBus().bus
    short, long = bus.subscribe("a"), bus.subscribe("a", past_suspension=True)
    bus.publish("a", stored_events(SUSPENDED))
    assert (short.ended, long.ended) == (True, False)
    bus.publish("a", stored_events(MOVED, COMPLETED))
    assert [item.event for item in await long.next()] == [SUSPENDED, MOVED, COMPLETED]
    assert long.ended


async def test_a_disconnected_subscription_gets_its_queued_events_and_ends() -> None:
    bus = ObservedBus().bus
    dismissed, other = bus.subscribe("a", past_suspension=True), bus.subscribe("b")
    bus.publish("a", stored_events(MOVED))
    bus.disconnect_all_except({"b"})
    bus.disconnect("unknown")
    bus.publish("a", stored_events(MOVED))
    assert dismissed.ended
    assert [item.event for item in await dismissed.next()] == [MOVED]
    assert await dismissed.next() == []
    assert not other.ended
    assert not bus.has_subscribers("a")
