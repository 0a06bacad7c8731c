"""Catch-up subscription: the events of one execution from any number on, stored ones first, then live ones."""

from collections.abc import Callable, Sequence

from portico.domain.journal.events import LiveDelta, StoredEvent
from portico.ports.events import Subscription

MAX_BATCH = 500
"""Items that one read returns at most, so that framing a long log delays nothing else."""


class CatchUpSubscription:
    """Implements `ports.events.Subscription` over stored events and a live subscription that is older than their read.

    Events that both contain are returned once. Without a live subscription the execution has ended.
    """

    def __init__(self, stored: Sequence[StoredEvent | LiveDelta], after: int, live: Subscription | None) -> None:
        numbers = [item.sequence_number for item in stored if isinstance(item, StoredEvent)]
        self._last = max([after, *numbers])
        self._live = live
        arrived = () if live is None else self._new_items(live.take())
        self._pending: Sequence[StoredEvent | LiveDelta] = [*stored, *arrived]

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        """Return the pending items, at least one; empty once the subscription has ended."""
        while not (items := self.take()) and not self.ended:
            assert self._live is not None  # noqa: S101 - without a live subscription it has ended
            self._pending = self._new_items(await self._live.next())
        return items

    def notify(self, callback: Callable[[], None] | None) -> None:
        if self._live is not None:
            self._live.notify(callback)

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        taken, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
        return taken if self._live is None or self._pending else [*taken, *self._new_items(self._live.take())]

    @property
    def ended(self) -> bool:
        return not self._pending and (self._live is None or self._live.ended)

    @property
    def overflowed(self) -> bool:
        return self._live is not None and self._live.overflowed

    def close(self) -> None:
        if self._live is not None:
            self._live.close()

    def _new_items(self, items: Sequence[StoredEvent | LiveDelta]) -> Sequence[StoredEvent | LiveDelta]:
        return [item for item in items if isinstance(item, LiveDelta) or item.sequence_number > self._last]
