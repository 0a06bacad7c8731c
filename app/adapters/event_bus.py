"""Fans events out: to telemetry at once, to live readers behind bounded queues.

A sink is other people's code: what one raises is told to `on_fault` and reaches neither the core nor the next
sink. A reader that falls behind is dropped and told so; the execution never waits for it. After the terminal
event a subscription ends by itself, and after `execution.suspended` unless its reader waits for the resume.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from app.domain.ids import ExecutionId
from app.domain.journal.events import RESTING_EVENTS, TERMINAL_EVENTS, LiveDelta, StoredEvent
from app.ports.events import EventSink


class EventBus:
    """Implements `ports.EventSink` and `ports.Watchers`.

    `capacity` is how many events may wait for one reader. `on_drop` is told of every reader that fell behind.
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
        self._readers: dict[ExecutionId, tuple[LiveSubscription, ...]] = {}

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        for sink in self._sinks:
            try:
                sink.publish(execution_id, items)
            except Exception as fault:  # noqa: BLE001 - a sink's bug must not end the execution it listens to
                self._on_fault(fault)
        for reader in self._readers.get(execution_id, ()):
            reader.offer(items)
            if reader.overflowed:
                self._on_drop()

    def subscribe(self, execution_id: ExecutionId, *, past_suspension: bool = False) -> "LiveSubscription":
        last = TERMINAL_EVENTS if past_suspension else RESTING_EVENTS
        reader = LiveSubscription(execution_id, self._capacity, self._leave, last=last)
        self._readers[execution_id] = (*self._readers.get(execution_id, ()), reader)
        return reader

    def has_subscribers(self, execution_id: ExecutionId) -> bool:
        return execution_id in self._readers

    def disconnect(self, execution_id: ExecutionId) -> None:
        for reader in self._readers.get(execution_id, ()):
            reader.dismiss()

    def disconnect_all_except(self, running: Collection[str]) -> None:
        for execution_id in [each for each in self._readers if each not in running]:
            self.disconnect(execution_id)

    def _leave(self, reader: "LiveSubscription") -> None:
        """Forgets the reader; its execution is no longer watched when it was the last."""
        others = tuple(other for other in self._readers.pop(reader.execution_id) if other is not reader)
        if others:
            self._readers[reader.execution_id] = others


class LiveSubscription:
    """Implements `ports.Subscription`."""

    __slots__ = ("_capacity", "_last", "_leave", "_notify", "_waiting", "ended", "execution_id", "overflowed")

    def __init__(
        self,
        execution_id: ExecutionId,
        capacity: int,
        leave: Callable[["LiveSubscription"], None],
        *,
        last: Collection[type[Any]],
    ) -> None:
        """After one of the events that are `last` it has ended."""
        self.execution_id = execution_id
        self._last = last
        self.overflowed = False
        self.ended = False
        self._capacity = capacity
        self._leave = leave
        self._waiting: list[StoredEvent | LiveDelta] = []
        self._notify: Callable[[], None] = _nobody

    def offer(self, items: Sequence[StoredEvent | LiveDelta]) -> None:
        """Queues all of them, or drops the reader with everything that waits when there is no room."""
        if len(self._waiting) + len(items) > self._capacity:
            self.overflowed = True
            self.close()
            return
        self._waiting.extend(items)
        if type(items[-1].event) in self._last:
            self._end()
        self._notify()

    def notify(self, callback: Callable[[], None] | None) -> None:
        self._notify = callback or _nobody

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        taken, self._waiting = self._waiting, []
        return taken

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        if not self._waiting and not self.ended:
            arrived = get_running_loop().create_future()
            self.notify(partial(_resolve, arrived))
            await arrived
        return self.take()

    def dismiss(self) -> None:
        """Nothing more comes than what waits."""
        self._end()
        self._notify()

    def close(self) -> None:
        self._waiting = []
        self.dismiss()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._leave(self)


def _resolve(arrived: Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def _nobody() -> None:
    """Who is told while nobody listens."""
