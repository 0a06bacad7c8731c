"""The events of one execution from any place on: those that were committed, then those that happen."""

from collections.abc import Callable, Sequence

from app.domain.journal.events import LiveDelta, StoredEvent
from app.ports.events import Subscription

MAX_BATCH = 500


class CatchUpSubscription:
    """Implements `ports.Subscription` over what was committed before and a live reader that was there before that.

    What both have is given once, and of a long log `AT_ONCE` at a time, so that nobody is held up while it is framed.
    Without a live reader the execution is over.
    """

    def __init__(self, committed: Sequence[StoredEvent | LiveDelta], after: int, live: Subscription | None) -> None:
        numbers = [item.sequence_number for item in committed if isinstance(item, StoredEvent)]
        self._last = max([after, *numbers])
        self._live = live
        arrived = () if live is None else self._fresh(live.take())
        self._waiting: Sequence[StoredEvent | LiveDelta] = [*committed, *arrived]

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        """All that waits; empty when there will be nothing more."""
        while not (items := self.take()) and not self.ended:
            assert self._live is not None  # noqa: S101 - without a live reader it has ended
            self._waiting = self._fresh(await self._live.next())
        return items

    def notify(self, callback: Callable[[], None] | None) -> None:
        if self._live is not None:
            self._live.notify(callback)

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        taken, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
        return taken if self._live is None or self._waiting else [*taken, *self._fresh(self._live.take())]

    @property
    def ended(self) -> bool:
        return not self._waiting and (self._live is None or self._live.ended)

    @property
    def overflowed(self) -> bool:
        return self._live is not None and self._live.overflowed

    def close(self) -> None:
        if self._live is not None:
            self._live.close()

    def _fresh(self, items: Sequence[StoredEvent | LiveDelta]) -> Sequence[StoredEvent | LiveDelta]:
        return [item for item in items if isinstance(item, LiveDelta) or item.sequence_number > self._last]
