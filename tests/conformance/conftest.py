"""Fixtures: two replicas on one database of each kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from portico.ports.runtime import Clock
from tests.support.stores import StoreReplica, database_opener, in_own_task, open_only_replica, open_replica


@pytest.fixture(params=["sqlite", "postgres"])
async def here(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[StoreReplica]:
    async with in_own_task(open_only_replica(database_opener(request, tmp_path), clock)) as alone:
        yield alone


@pytest.fixture
async def there(here: StoreReplica, clock: Clock) -> AsyncIterator[StoreReplica]:
    """Open another replica on the same database."""
    async with in_own_task(open_replica(here.database, clock, "other")) as other:
        yield other
