"""A database that a command opens while servers may run on it."""

import anyio
import pytest

from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.factory import open_beside, open_database
from portico.adapters.system import SystemClock, SystemEntropy
from tests.support.keys import api_key, stored
from tests.support.postgres import own_database

CLOCK = SystemClock()
ENTROPY = SystemEntropy(CLOCK)


@pytest.fixture
def empty_postgres_url(postgres_url: str) -> str:
    """Return the URL of a new database without tables."""
    return own_database(postgres_url)


def test_an_empty_postgresql_gets_its_schema_beside_a_server_or_alone(empty_postgres_url: str) -> None:
    async def keys() -> int:
        async with open_beside(empty_postgres_url, CLOCK, ENTROPY) as database:
            await DatabaseKeys(database).add(stored(api_key()))
            return len(await DatabaseKeys(database).all())

    async def beside_a_server() -> int:
        async with open_database(empty_postgres_url, CLOCK, ENTROPY):
            return await keys()

    assert anyio.run(keys) == 1
    assert anyio.run(beside_a_server) == 1
