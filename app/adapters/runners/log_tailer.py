"""Readers of executions that run on another replica, or nowhere yet: the stored log, as it grows.

What this replica publishes of such an execution reaches its readers at once, deltas too; whatever is missing before it
is read from the store. The store is looked at when somebody says that a log has grown, and every `POLL_S` anyway.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import anyio

from app.domain.failures import Code, StorageFailure
from app.domain.ids import ExecutionId, TenantId
from app.domain.journal.events import RESTING_EVENTS, TERMINAL_EVENTS, InferenceStart, LiveDelta, StoredEvent
from app.ports.events import EventFeed, Subscription
from app.ports.storage import ExecutionStore, StoredExecution

POLL_INTERVAL_S = 1.0
_PAGE = 500
_ENOUGH = 2_000
"""Events that wait for a reader before no more are read for it."""


class LogTailer:
    """Implements `keeping.Followers`. `run` is its only task."""

    def __init__(self, store: ExecutionStore, watchers: EventFeed) -> None:
        self._store = store
        self._watchers = watchers
        self._readers: dict[str, list[StoredSubscription]] = {}
        self._wanted = anyio.Event()
        self._grown: set[ExecutionId] = set()

    def tail(self, stored: StoredExecution, after: int, *, past_suspension: bool = True) -> Subscription:
        live = self._watchers.subscribe(stored.execution_id, past_suspension=True)
        place = TailPosition(
            stored.tenant, stored.execution_id, after, TERMINAL_EVENTS if past_suspension else RESTING_EVENTS
        )
        reader = StoredSubscription(place, live, wants=self.notify_grown, leave=self._leave)
        self._readers.setdefault(stored.execution_id, []).append(reader)
        self.notify_grown(stored.execution_id)
        return reader

    def notify_grown(self, execution_id: ExecutionId) -> None:
        """Somebody says that there may be more of this log."""
        if execution_id in self._readers:
            self._grown.add(execution_id)
            self._wanted.set()

    async def run(self) -> None:
        """Reads on for everybody, until it is cancelled. What a fault leaves is read later."""
        while True:
            with anyio.move_on_after(POLL_INTERVAL_S if self._readers else inf) as waiting:
                await self._wanted.wait()
            grown = list(self._readers) if waiting.cancelled_caught else list(self._grown)
            self._wanted = anyio.Event()
            self._grown.clear()
            for execution_id in grown:
                with suppress(StorageFailure):
                    for reader in list(self._readers.get(execution_id, ())):
                        await self._read_on(reader)

    async def _read_on(self, reader: "StoredSubscription") -> None:
        while reader.has_room:
            try:
                page = await self._store.events(reader.tenant, reader.execution_id, after=reader.last, limit=_PAGE)
            except StorageFailure as fault:
                if fault.code is not Code.STORAGE_SNAPSHOT_INVALID:
                    raise
                reader.dismiss()
                return
            reader.offer(page)
            if len(page) < _PAGE:
                return

    def _leave(self, reader: "StoredSubscription") -> None:
        readers = self._readers.get(reader.execution_id, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(reader.execution_id, None)


@dataclass(frozen=True, slots=True)
class TailPosition:
    """Where in whose log reading begins, and with which events it ends."""

    tenant: TenantId
    execution_id: ExecutionId
    after: int
    last: Collection[type[Any]]


class StoredSubscription:
    """Implements `ports.Subscription`: every number once and in order, to the first event that is one of the last.

    It ends before where this replica sends its readers away.
    """

    def __init__(
        self,
        place: TailPosition,
        live: Subscription,
        *,
        wants: Callable[[ExecutionId], None],
        leave: Callable[["StoredSubscription"], None],
    ) -> None:
        """`wants` is told when something is missing, `leave` once when nothing more will be read."""
        self.tenant = place.tenant
        self.execution_id = place.execution_id
        self.last = place.after
        self._ends_with = place.last
        self.ended = False
        self.overflowed = False
        self._live = live
        self._wants = wants
        self._leave = leave
        self._waiting: list[StoredEvent | LiveDelta] = []
        self._segments: set[str] = set()
        self._held_up = False
        self._notify: Callable[[], None] = _nobody
        live.notify(self._hear)

    @property
    def has_room(self) -> bool:
        """Whether it takes more of the stored log; what it is not given for want of room it asks for later."""
        self._held_up = len(self._waiting) >= _ENOUGH
        return not self.ended and not self._held_up

    def offer(self, page: Sequence[StoredEvent]) -> None:
        """Takes what the store has behind its last number."""
        for item in page:
            if not self.ended and item.sequence_number == self.last + 1:
                self._append(item)
        if page:
            self._notify()

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        """All that waits; empty when the subscription ended."""
        if not self._waiting and not self.ended:
            arrived = anyio.Event()
            self.notify(arrived.set)
            await arrived.wait()
        return self.take()

    def notify(self, callback: Callable[[], None] | None) -> None:
        self._notify = callback or _nobody

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        taken, self._waiting = self._waiting, []
        if self._held_up:
            self._wants(self.execution_id)
        return taken

    def dismiss(self) -> None:
        """Nothing more comes than what waits: what follows cannot be read."""
        self._end()
        self._notify()

    def close(self) -> None:
        """The reader leaves. Closing twice is fine."""
        self._waiting = []
        self.dismiss()

    def _hear(self) -> None:
        """Takes what this replica publishes, as far as nothing is missing before it; the rest is in the store.

        Of a segment whose start was not heard, or was followed by something that was not, no deltas are taken.
        """
        heard = self._live.take()
        for item in heard:
            if isinstance(item, LiveDelta):
                if item.event.segment in self._segments and self.has_room:
                    self._waiting.append(item)
            elif item.sequence_number > self.last:
                self._hear_event(item)
        if self._live.ended and not self._live.overflowed and not _ends(heard):
            self._end()
        self._notify()

    def _hear_event(self, item: StoredEvent) -> None:
        if item.sequence_number > self.last + 1 or not self.has_room:
            self._segments.clear()
            self._wants(self.execution_id)
            return
        if isinstance(item.event, InferenceStart):
            self._segments.add(item.event.segment)
        self._append(item)

    def _append(self, item: StoredEvent) -> None:
        self._waiting.append(item)
        self.last = item.sequence_number
        if type(item.event) in self._ends_with:
            self._end()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._live.notify(None)
            self._live.close()
            self._leave(self)


def _ends(items: Sequence[StoredEvent | LiveDelta]) -> bool:
    return bool(items) and type(items[-1].event) in TERMINAL_EVENTS


def _nobody() -> None:
    """Who is told while nobody listens."""
