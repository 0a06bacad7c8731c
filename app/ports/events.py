"""Event ports: sinks, subscriptions and feeds."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from app.domain.ids import ExecutionId
from app.domain.journal.events import LiveDelta, StoredEvent
from app.ports.storage import StoredExecution


class EventSink(Protocol):
    """Whoever listens to all events: telemetry, live readers."""

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        """Takes events of one execution, in order. Must not block and must not raise."""
        ...


class Subscription(Protocol):
    """A live reader of one execution, behind a bounded queue. It is read by `next`, or by `notify` and `take`."""

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        """All that waits, at least one; empty when the subscription ended."""
        ...

    def notify(self, callback: Callable[[], None] | None) -> None:
        """Calls back whenever something has arrived or the subscription has ended, at once and so in few steps."""
        ...

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        """All that waits, without waiting."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more will arrive than what waits."""
        ...

    @property
    def overflowed(self) -> bool:
        """Whether the reader was dropped because it fell behind."""
        ...

    def close(self) -> None:
        """The reader leaves. Closing twice is fine."""
        ...


class EventFeed(Protocol):
    """Live readers."""

    def subscribe(self, execution_id: ExecutionId, *, past_suspension: bool = False) -> Subscription:
        """A reader of all that is published from now on, to the terminal event, or to a suspension before it."""
        ...

    def disconnect(self, execution_id: ExecutionId) -> None:
        """Ends all readers of that execution behind what waits for them; they may come back."""
        ...

    def disconnect_all_except(self, running: Collection[ExecutionId]) -> None:
        """The same for every execution that is not one of these."""
        ...

    def has_subscribers(self, execution_id: ExecutionId) -> bool:
        """Whether anybody reads this execution live right now."""
        ...


class EventTailer(Protocol):
    """Live readers of executions that run elsewhere, or nowhere yet."""

    def tail(self, stored: StoredExecution, after: int, *, past_suspension: bool = True) -> Subscription:
        """A reader of all events behind that number to the terminal event, or to the next suspension before it."""
        ...
