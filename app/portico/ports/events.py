"""Event ports: publishers, sinks, subscriptions and feeds."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias

from portico.domain.access.principal import AccessScope
from portico.domain.contract.response import Suspension
from portico.domain.ids import ExecutionId, RequestId, SessionId, TenantId, UserId
from portico.domain.journal.events import LiveDelta, StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.value import value
from portico.ports.storage import StoredExecution


class EventPublisher(Protocol):
    """Publisher of the events of all executions, which the journal calls at each commit and for each delta."""

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        """Publish events of one execution, in order, or one delta. Must neither block nor raise."""
        ...


class EventSink(Protocol):
    """Receiver of the events of all executions, such as metrics and logs."""

    @property
    def wanted(self) -> Collection[type[Any]]:
        """The types of events that it is called for; they stay the same."""
        ...

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        """Take what was published at once of one execution; at least one of its events has a wanted type."""
        ...


class StreamSink(Protocol):
    """Receiver of the number of deltas of each streamed attempt."""

    def streamed(self, execution_id: ExecutionId, segment: str, first_at: float | None, count: int) -> None:
        """Take how many deltas of an attempt were published, before its end is.

        `first_at` is the time of the first one, in Unix seconds; None if that was dropped and others were not.
        """
        ...


class Subscription(Protocol):
    """Reader of the events of one execution, behind a bounded queue.

    Read it with `next`, or with `notify` and `take`.
    """

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        """Wait for items and return all that are queued, at least one; none when the subscription has ended."""
        ...

    def notify(self, callback: Callable[[], None] | None) -> None:
        """Call back when items arrive or the subscription ends. The callback runs at once, so it must be short."""
        ...

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        """Return all queued items without waiting."""
        ...

    @property
    def ended(self) -> bool:
        """Return True if nothing arrives after the items that are queued."""
        ...

    @property
    def overflowed(self) -> bool:
        """Return True if the reader fell behind and was disconnected."""
        ...

    def close(self) -> None:
        """End the subscription. A second call has no effect."""
        ...


class EventFeed(Protocol):
    """Live events of the executions that run in this process."""

    def watch(self, watcher: Callable[[ExecutionId, Sequence[StoredEvent]], None] | None) -> None:
        """Call the watcher for all events that are published, deltas excepted, until this is called with None.

        There is one watcher at a time. It must neither block nor raise.
        """
        ...

    def subscribe(self, execution_id: ExecutionId, *, past_suspension: bool = False) -> Subscription:
        """Return a subscription to what is published from now on.

        It ends after the terminal event, or after a suspension unless `past_suspension`.
        """
        ...

    def disconnect(self, execution_id: ExecutionId) -> None:
        """End all subscriptions to the execution after the items that are queued; readers may come back."""
        ...

    def disconnect_all_except(self, running: Collection[ExecutionId]) -> None:
        """End the subscriptions to all executions but these."""
        ...

    def has_subscribers(self, execution_id: ExecutionId) -> bool:
        """Return True if the execution has live subscriptions."""
        ...


@value
class ExecutionChange:
    """The latest state of an execution, and the suspensions of it that were open and are not any more."""

    execution: StoredExecution
    closed: Sequence[Suspension] = ()


@value
class ExecutionRemoval:
    """An execution that was deleted."""

    request_id: RequestId
    user: UserId
    session_id: SessionId | None


Change: TypeAlias = ExecutionChange | ExecutionRemoval
OnChanges: TypeAlias = Callable[[Sequence[Change]], None]


class ChangeFeed(Protocol):
    """Changes of the executions of whole tenants, on all replicas; without a watcher it costs nothing."""

    def watch(self, tenant: TenantId, callback: OnChanges) -> None:
        """Call back with the changes of the tenant's executions. A tenant has one callback at a time."""
        ...

    def unwatch(self, tenant: TenantId) -> None:
        """Call back no more for that tenant."""
        ...

    def remove(self, tenant: TenantId, removals: Sequence[ExecutionRemoval]) -> None:
        """Pass on that these executions were deleted here."""
        ...

    async def running(self, scope: AccessScope) -> Sequence[StoredExecution]:
        """Return the executions that run in this process, but those that no list has."""
        ...


class RunningExecutions(Protocol):
    """Executions that run in this process."""

    def headers(self) -> Sequence[ExecutionHeader]:
        """Return the headers of all of them."""
        ...

    def header_of(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        """Return the header of one of them; None if it does not run here."""
        ...

    def is_running(self, execution_id: ExecutionId) -> bool:
        """Return whether the execution runs here."""
        ...


class EventTailer(Protocol):
    """Stored events of executions that run in another process, or have not started."""

    def tail(self, stored: StoredExecution, after: int, *, past_suspension: bool = True) -> Subscription:
        """Return a subscription to the events after a sequence number.

        It ends after the terminal event, or after the next suspension unless `past_suspension`.
        """
        ...
