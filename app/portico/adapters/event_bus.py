"""Event bus: passes events to telemetry at once and to live subscriptions through bounded queues.

A sink may be faulty: an exception it raises is passed to `on_fault` and reaches neither the core nor the next sink. A
subscription whose queue is full is dropped and marked as overflowed; the execution never waits for it. A subscription
ends by itself after the terminal event, and after `execution.suspended` unless it was asked to wait for the resume.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from portico.domain.ids import ExecutionId
from portico.domain.journal.events import RESTING_EVENTS, TERMINAL_EVENTS, LiveDelta, StoredEvent
from portico.ports.events import EventSink


class EventBus:
    """Implementation of the `EventSink` and `EventFeed` ports.

    `capacity` is the number of events that may be queued for one subscription. `on_drop` is called for each
    subscription that is dropped because its queue is full.
    """

    def __init__(
        self,
        sinks: Sequence[EventSink],
        *,
        capacity: int,
        on_fault: Callable[[Exception], None],
        on_drop: Callable[[], None],
    ) -> None:
        self._sinks = tuple(sinks)
        self._capacity = capacity
        self._on_fault = on_fault
        self._on_drop = on_drop
        self._subscriptions: dict[ExecutionId, tuple[LiveSubscription, ...]] = {}

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        for sink in self._sinks:
            try:
                sink.publish(execution_id, items)
            except Exception as fault:  # noqa: BLE001 - a faulty sink must not end the execution it observes
                self._on_fault(fault)
        for subscription in self._subscriptions.get(execution_id, ()):
            subscription.offer(items)
            if subscription.overflowed:
                self._on_drop()

    def subscribe(self, execution_id: ExecutionId, *, past_suspension: bool = False) -> "LiveSubscription":
        last_events = TERMINAL_EVENTS if past_suspension else RESTING_EVENTS
        subscription = LiveSubscription(execution_id, self._capacity, self._remove, last_events=last_events)
        self._subscriptions[execution_id] = (*self._subscriptions.get(execution_id, ()), subscription)
        return subscription

    def has_subscribers(self, execution_id: ExecutionId) -> bool:
        return execution_id in self._subscriptions

    def disconnect(self, execution_id: ExecutionId) -> None:
        for subscription in self._subscriptions.get(execution_id, ()):
            subscription.finish()

    def disconnect_all_except(self, running: Collection[ExecutionId]) -> None:
        for execution_id in [each for each in self._subscriptions if each not in running]:
            self.disconnect(execution_id)

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
