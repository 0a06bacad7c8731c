"""Live lists: the feed of what changes, and those who read it."""

from collections.abc import Mapping

from anyio.abc import TaskGroup

from portico.adapters.change_feed import StoredChangeFeed
from portico.orchestration.changes import Changes
from portico.orchestration.execution.environment import Environment
from portico.orchestration.facade import FacadeStores
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.records import Records
from portico.orchestration.runtime.launcher import Launcher


def start_changes(
    environment: Environment,
    stores: FacadeStores,
    *,
    launcher: Launcher,
    flows: Mapping[str, ServedFlow],
    group: TaskGroup,
) -> tuple[StoredChangeFeed, Changes]:
    """Start the feed in the group, and return it with the live lists that it feeds."""
    store, clock, bus = stores.executions, environment.clock, environment.event_feed
    feed = StoredChangeFeed(store, environment.journal, bus, launcher.local, clock=clock)
    group.start_soon(feed.run)
    return feed, Changes(feed, store, Records(environment, store, stores.records, launcher, flows), clock)
