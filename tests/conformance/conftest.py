"""Two replicas on one database, of either kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.ports import Clock
from tests.support.stores import Replica, database_of, in_a_task, lone_replica, replica


@pytest.fixture(params=["sqlite", "postgres"])
async def here(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[Replica]:
    async with in_a_task(lone_replica(database_of(request, tmp_path), clock)) as alone:
        yield alone


@pytest.fixture
async def there(here: Replica, clock: Clock) -> AsyncIterator[Replica]:
    """Another replica on the same database."""
    async with in_a_task(replica(here.database, clock, "other")) as other:
        yield other
