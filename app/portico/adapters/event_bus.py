"""Event bus: passes events to telemetry at once and to live subscriptions through bounded queues.

A sink may be faulty: an exception it raises is passed to `on_fault` and reaches neither the core nor the next sink. A
subscription whose queue is full is dropped and marked as overflowed; the execution never waits for it. A subscription
ends by itself after the terminal event, and after `execution.suspended` unless it was asked to wait for the resume.
"""

from asyncio import Future, get_running_loop
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from portico.domain.ids import ExecutionId
from portico.domain.journal.events import (
    RESTING_EVENTS,
    TERMINAL_EVENTS,
    InferenceDelta,
    InferenceEnd,
    InferenceRetracted,
    LiveDelta,
    StoredEvent,
)
from portico.ports.events import EventSink, StreamSink


@dataclass(slots=True)
class _Stream:
    """Deltas of one attempt that were published; `first_at` is the time of the one at the beginning."""

    first_at: float | None = None
    count: int = 0


class EventBus:
    """Implementation of the `EventPublisher` and `EventFeed` ports.

    A sink is called where a type of event that it wants is published. Deltas are counted by attempt; `stream_sinks` get
    their number before the end of the attempt, or of what runs here of the execution, is published. `capacity` is the
    number of events that may be queued for one subscription. `on_drop` is called for each subscription that is dropped
    because its queue is full.
    """

    def __init__(
        self,
        sinks: Sequence[EventSink],
        stream_sinks: Sequence[StreamSink] = (),
        *,
        capacity: int,
        on_fault: Callable[[Exception], None],
        on_drop: Callable[[], None],
    ) -> None:
        self._stream_sinks = tuple(stream_sinks)
        self._sinks_by_type = {
            kind: tuple(sink for sink in sinks if kind in sink.wanted)
            for kind in frozenset[type[Any]]().union(*(sink.wanted for sink in sinks))
        }
        self._capacity = capacity
        self._on_fault = on_fault
        self._on_drop = on_drop
        self._watcher: Callable[[ExecutionId, Sequence[StoredEvent]], None] | None = None
        self._subscriptions: dict[ExecutionId, tuple[LiveSubscription, ...]] = {}
        self._streams: defaultdict[ExecutionId, defaultdict[str, _Stream]] = defaultdict(partial(defaultdict, _Stream))

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        event = items[0].event
        if type(event) is InferenceDelta:
            stream = self._streams[execution_id][event.segment]
            stream.count += 1
            if stream.first_at is None and not event.offset:
                stream.first_at = items[0].at
        elif execution_id in self._streams:
            self._end_streams(execution_id, items)
        for sink in dict.fromkeys([each for item in items for each in self._sinks_by_type.get(type(item.event), ())]):
            try:
                sink.publish(execution_id, items)
            except Exception as fault:  # noqa: BLE001 - a faulty sink must not end the execution it observes
                self._on_fault(fault)
        if self._watcher is not None and isinstance(items[0], StoredEvent):
            self._watcher(execution_id, cast("Sequence[StoredEvent]", items))  # a delta is published alone
        for subscription in self._subscriptions.get(execution_id, ()):
            subscription.offer(items)
            if subscription.overflowed:
                self._on_drop()

    def watch(self, watcher: Callable[[ExecutionId, Sequence[StoredEvent]], None] | None) -> None:
        self._watcher = watcher

    def subscribe(self, execution_id: ExecutionId, *, past_suspension: bool = False) -> "LiveSubscription":
        last_events = TERMINAL_EVENTS if past_suspension else RESTING_EVENTS
        subscription = LiveSubscription(execution_id, self._capacity, self._remove, last_events=last_events)
        self._subscriptions[execution_id] = (*self._subscriptions.get(execution_id, ()), subscription)
        return subscription

    def has_subscribers(self, execution_id: ExecutionId) -> bool:
        return execution_id in self._subscriptions

    def disconnect(self, execution_id: ExecutionId) -> None:
        if execution_id in self._streams:
            self._end_all_streams(execution_id)
        for subscription in self._subscriptions.get(execution_id, ()):
            subscription.finish()

    def disconnect_all_except(self, running: Collection[ExecutionId]) -> None:
        for execution_id in [each for each in {**self._subscriptions, **self._streams} if each not in running]:
            self.disconnect(execution_id)

    def _end_streams(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        """Give the sinks the streams of the attempts that end with these events."""
        streams = self._streams[execution_id]
        for event in (item.event for item in items):
            if isinstance(event, InferenceEnd | InferenceRetracted) and event.segment in streams:
                self._give_stream(execution_id, event.segment, streams.pop(event.segment))
        if not streams or type(items[-1].event) in RESTING_EVENTS:
            self._end_all_streams(execution_id)

    def _end_all_streams(self, execution_id: ExecutionId) -> None:
        for segment, stream in self._streams.pop(execution_id).items():
            self._give_stream(execution_id, segment, stream)

    def _give_stream(self, execution_id: ExecutionId, segment: str, stream: _Stream) -> None:
        for sink in self._stream_sinks:
            try:
                sink.streamed(execution_id, segment, stream.first_at, stream.count)
            except Exception as fault:  # noqa: BLE001 - a faulty sink must not end the execution it observes
                self._on_fault(fault)

    def _remove(self, subscription: "LiveSubscription") -> None:
        """Remove the subscription, and its execution's entry if it was the last one."""
        others = tuple(each for each in self._subscriptions.pop(subscription.execution_id) if each is not subscription)
        if others:
            self._subscriptions[subscription.execution_id] = others


class LiveSubscription:
    """Implementation of the `Subscription` port on events that this process publishes."""

    __slots__ = ("_capacity", "_last_events", "_notify", "_queue", "_remove", "ended", "execution_id", "overflowed")

    def __init__(
        self,
        execution_id: ExecutionId,
        capacity: int,
        remove: Callable[["LiveSubscription"], None],
        *,
        last_events: Collection[type[Any]],
    ) -> None:
        """Create a subscription that ends after the first event of one of these types."""
        self.execution_id = execution_id
        self._last_events = last_events
        self.overflowed = False
        self.ended = False
        self._capacity = capacity
        self._remove = remove
        self._queue: list[StoredEvent | LiveDelta] = []
        self._notify: Callable[[], None] = _ignore

    def offer(self, items: Sequence[StoredEvent | LiveDelta]) -> None:
        """Queue all items; if they do not fit, end the subscription and discard its queue."""
        if len(self._queue) + len(items) > self._capacity:
            self.overflowed = True
            self.close()
            return
        self._queue.extend(items)
        if type(items[-1].event) in self._last_events:
            self._end()
        self._notify()

    def notify(self, callback: Callable[[], None] | None) -> None:
        self._notify = callback or _ignore

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        taken, self._queue = self._queue, []
        return taken

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        if not self._queue and not self.ended:
            arrived = get_running_loop().create_future()
            self.notify(partial(_resolve, arrived))
            await arrived
        return self.take()

    def finish(self) -> None:
        """End the subscription; its reader still gets the queued events."""
        self._end()
        self._notify()

    def close(self) -> None:
        self._queue = []
        self.finish()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._remove(self)


def _resolve(arrived: Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def _ignore() -> None:
    """Do nothing; the callback of a subscription without a waiting reader."""
