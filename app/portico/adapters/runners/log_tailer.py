"""Subscriptions to executions of other replicas, or to queued ones, by tailing their stored event log.

Events that this process publishes for such an execution, deltas included, reach its subscriptions at once; missing
events before them are read from the store. The store is read when a notification says that a log has grown, and every
`POLL_INTERVAL_S` seconds.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import anyio

from portico.domain.failures import Code, StorageFailure
from portico.domain.ids import ExecutionId, TenantId
from portico.domain.journal.events import (
    RESTING_EVENTS,
    TERMINAL_EVENTS,
    InferenceDelta,
    InferenceStart,
    LiveDelta,
    StoredEvent,
    ToolStart,
)
from portico.domain.value import value
from portico.ports.events import EventFeed, Subscription
from portico.ports.storage import ExecutionStore, StoredExecution

POLL_INTERVAL_S = 1.0
_PAGE_SIZE = 500
_MAX_QUEUED = 2_000
"""Number of queued events from which on no more are read for a subscription."""


class LogTailer:
    """Implementation of the `EventTailer` port; `run` is its only task."""

    def __init__(self, store: ExecutionStore, live_events: EventFeed) -> None:
        self._store = store
        self._live_events = live_events
        self._subscriptions: dict[ExecutionId, list[StoredSubscription]] = {}
        self._wake_up = anyio.Event()
        self._grown: set[ExecutionId] = set()

    def tail(self, stored: StoredExecution, after: int, *, past_suspension: bool = True) -> Subscription:
        live = self._live_events.subscribe(stored.execution_id, past_suspension=True)
        last_events = TERMINAL_EVENTS if past_suspension else RESTING_EVENTS
        position = TailPosition(stored.tenant, stored.execution_id, after, last_events)
        subscription = StoredSubscription(position, live, request=self.notify_grown, remove=self._remove)
        self._subscriptions.setdefault(stored.execution_id, []).append(subscription)
        self.notify_grown(stored.execution_id)
        return subscription

    def notify_grown(self, execution_id: ExecutionId) -> None:
        """Read the log of that execution soon, because it may have grown."""
        if execution_id in self._subscriptions:
            self._grown.add(execution_id)
            self._wake_up.set()

    async def run(self) -> None:
        """Read logs for all subscriptions until cancelled. After a storage failure, read again later."""
        while True:
            with anyio.move_on_after(POLL_INTERVAL_S if self._subscriptions else inf) as waiting:
                await self._wake_up.wait()
            grown = list(self._subscriptions) if waiting.cancelled_caught else list(self._grown)
            self._wake_up = anyio.Event()
            self._grown.clear()
            for execution_id in grown:
                with suppress(StorageFailure):
                    for subscription in list(self._subscriptions.get(execution_id, ())):
                        await self._read(subscription)

    async def _read(self, subscription: "StoredSubscription") -> None:
        while subscription.has_room:
            try:
                page = await self._store.events(
                    subscription.start.tenant,
                    subscription.start.execution_id,
                    after=subscription.last_number,
                    limit=_PAGE_SIZE,
                )
            except StorageFailure as fault:
                if fault.code is not Code.STORAGE_SNAPSHOT_INVALID:
                    raise
                subscription.finish()
                return
            if page is None:
                subscription.finish()
                return
            subscription.offer(page)
            if len(page) < _PAGE_SIZE:
                return

    def _remove(self, subscription: "StoredSubscription") -> None:
        subscriptions = self._subscriptions.get(subscription.start.execution_id, [])
        if subscription in subscriptions:
            subscriptions.remove(subscription)
        if not subscriptions:
            self._subscriptions.pop(subscription.start.execution_id, None)


@value
class TailPosition:
    """Start of a subscription in the log of an execution, and the types of events that end it."""

    tenant: TenantId
    execution_id: ExecutionId
    after: int
    last_events: Collection[type[Any]]


class StoredSubscription:
    """Implementation of the `Subscription` port on a stored log.

    Every event is delivered once and in order, up to the first one of the last events. The subscription also ends
    when this process disconnects its readers.
    """

    def __init__(
        self,
        position: TailPosition,
        live: Subscription,
        *,
        request: Callable[[ExecutionId], None],
        remove: Callable[["StoredSubscription"], None],
    ) -> None:
        """Create a subscription that calls `request` for missing events, and `remove` once when it ends."""
        self.start = position
        self.last_number = position.after
        self.ended = False
        self.overflowed = False
        self._live = live
        self._request = request
        self._remove = remove
        self._queue: list[StoredEvent | LiveDelta] = []
        self._segments: set[str] = set()
        self._is_full = False
        self._notify: Callable[[], None] = _ignore
        live.notify(self._on_live)

    @property
    def has_room(self) -> bool:
        """Return whether more of the log may be read; a full subscription requests the rest itself."""
        self._is_full = len(self._queue) >= _MAX_QUEUED
        return not self.ended and not self._is_full

    def offer(self, page: Sequence[StoredEvent]) -> None:
        """Queue the events of the store that follow the last number."""
        for item in page:
            if not self.ended and item.sequence_number == self.last_number + 1:
                self._append(item)
        if page:
            self._notify()

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        """Wait for events and return them; return nothing if the subscription has ended."""
        if not self._queue and not self.ended:
            arrived = anyio.Event()
            self.notify(arrived.set)
            await arrived.wait()
        return self.take()

    def notify(self, callback: Callable[[], None] | None) -> None:
        self._notify = callback or _ignore

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        taken, self._queue = self._queue, []
        if self._is_full:
            self._request(self.start.execution_id)
        return taken

    def finish(self) -> None:
        """End the subscription, because the rest of the log cannot be read; queued events are still delivered."""
        self._end()
        self._notify()

    def close(self) -> None:
        """End the subscription and discard its queue. Closing twice is allowed."""
        self._queue = []
        self.finish()

    def _on_live(self) -> None:
        """Queue what this process publishes if nothing before it is missing; the rest is read from the store.

        Deltas are queued only for a segment, or a call, whose start was queued here, without a gap since then.
        """
        items = self._live.take()
        for item in items:
            if isinstance(item, LiveDelta):
                begun = item.event.segment if isinstance(item.event, InferenceDelta) else item.event.tool_call_id
                if begun in self._segments and self.has_room:
                    self._queue.append(item)
            elif item.sequence_number > self.last_number:
                self._on_live_event(item)
        if self._live.ended and not self._live.overflowed and not _ends_with_terminal_event(items):
            self._end()
        self._notify()

    def _on_live_event(self, item: StoredEvent) -> None:
        if item.sequence_number > self.last_number + 1 or not self.has_room:
            self._segments.clear()
            self._request(self.start.execution_id)
            return
        if isinstance(item.event, InferenceStart):
            self._segments.add(item.event.segment)
        elif isinstance(item.event, ToolStart):
            self._segments.add(item.event.tool_call_id)
        self._append(item)

    def _append(self, item: StoredEvent) -> None:
        self._queue.append(item)
        self.last_number = item.sequence_number
        if type(item.event) in self.start.last_events:
            self._end()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._live.notify(None)
            self._live.close()
            self._remove(self)


def _ends_with_terminal_event(items: Sequence[StoredEvent | LiveDelta]) -> bool:
    return bool(items) and type(items[-1].event) in TERMINAL_EVENTS


def _ignore() -> None:
    """Do nothing; the callback of a subscription without a waiting reader."""
