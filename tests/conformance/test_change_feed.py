"""The change feed on both stores: executions that run on another replica, and those that were deleted there."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

from portico.adapters.change_feed import REREAD_SECONDS, StoredChangeFeed
from portico.adapters.stores.erasure import erase_rows
from portico.domain.access.principal import LOCAL
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.lifecycle import State
from portico.ports.events import Change, ExecutionChange, ExecutionRemoval, Subscription
from portico.ports.runtime import Clock
from tests.support.stored_executions import begun, moved, suspended
from tests.support.stores import StoreReplica


class NothingRuns:
    """The executions of a replica that runs none, and its bus."""

    def __init__(self) -> None:
        self.watcher: Callable[[ExecutionId, Sequence[StoredEvent]], None] | None = None

    def headers(self) -> Sequence[ExecutionHeader]:
        return ()

    def header_of(self, execution_id: ExecutionId) -> None:
        return None

    def is_running(self, execution_id: ExecutionId) -> bool:
        return False

    def watch(self, watcher: Callable[[ExecutionId, Sequence[StoredEvent]], None] | None) -> None:
        self.watcher = watcher

    def subscribe(self, execution_id: ExecutionId, *, past_suspension: bool = False) -> Subscription:
        raise NotImplementedError

    def disconnect(self, execution_id: ExecutionId) -> None:
        raise NotImplementedError

    def disconnect_all_except(self, running: object) -> None:
        raise NotImplementedError

    def has_subscribers(self, execution_id: ExecutionId) -> bool:
        return False


@asynccontextmanager
async def watching(
    here: StoreReplica, clock: Clock
) -> AsyncIterator[tuple[StoredChangeFeed, NothingRuns, list[Change]]]:
    """Watch the local tenant on a replica that runs nothing."""
    nothing, changes = NothingRuns(), list[Change]()
    feed = StoredChangeFeed(here.store, here.journal, nothing, nothing, clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(feed.run)
        assert nothing.watcher is None
        feed.watch(LOCAL.tenant, changes.extend)
        assert nothing.watcher is not None
        await clock.sleep(1)
        yield feed, nothing, changes
        feed.unwatch(LOCAL.tenant)
        assert nothing.watcher is None
        group.cancel_scope.cancel()


def states(changes: Sequence[Change]) -> list[tuple[str, State]]:
    return [
        (each.execution.request_id, each.execution.status.state)
        for each in changes
        if isinstance(each, ExecutionChange)
    ]


async def test_a_log_that_has_grown_is_read_and_a_notification_that_was_lost_is_made_up_for(
    here: StoreReplica, clock: Clock
) -> None:
    async with watching(here, clock) as (feed, _, changes):
        await begun(here, "a", "r-a", moved(State.VALIDATE))
        feed.notify_grown("a")
        feed.notify_grown("no-such-execution")
        await clock.sleep(1)
        assert states(changes) == [("r-a", State.VALIDATE)]
        await begun(here, "b", "r-b", moved(State.EXECUTE))
        await clock.sleep(1)
        assert len(changes) == 1
        await clock.sleep(REREAD_SECONDS)
        assert states(changes) == [("r-a", State.VALIDATE), ("r-b", State.EXECUTE)]
        await clock.sleep(REREAD_SECONDS)
        assert len(changes) == 2


async def test_a_deletion_on_another_replica_is_found_when_the_unfinished_are_read_again(
    here: StoreReplica, clock: Clock
) -> None:
    await suspended(here, "a", "1", "2")
    async with watching(here, clock) as (_, _, changes):
        (found,) = changes
        assert isinstance(found, ExecutionChange)
        assert [each.suspension_id for each in found.execution.suspensions] == ["1", "2"]
        changes.clear()
        await here.database.write(lambda: erase_rows(["a"]))
        await clock.sleep(REREAD_SECONDS)
        assert changes == [ExecutionRemoval("r-a", LOCAL.user, None)]
