"""A database that a command opens while servers may run on it."""

import anyio
import asyncpg
import pytest

from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.factory import open_beside, open_database
from portico.adapters.system import SystemClock, SystemEntropy
from portico.domain.failures import Code, ConfigurationFailure
from tests.support.keys import api_key, stored
from tests.support.postgres import own_database
from tests.support.stores import EARLIER_SCHEMA

CLOCK = SystemClock()
ENTROPY = SystemEntropy(CLOCK)


@pytest.fixture
def empty_postgres_url(postgres_url: str) -> str:
    """Return the URL of a new database without tables."""
    return own_database(postgres_url)


async def _execute(url: str, script: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(script)
    await connection.close()


def test_an_empty_postgresql_gets_its_schema_and_an_earlier_one_is_left_to_a_server(empty_postgres_url: str) -> None:
    async def keys() -> int:
        async with open_beside(empty_postgres_url, CLOCK, ENTROPY) as database:
            await DatabaseKeys(database).add(stored(api_key()))
            return len(await DatabaseKeys(database).all())

    async def beside_a_server() -> int:
        async with open_database(empty_postgres_url, CLOCK, ENTROPY):
            return await keys()

    assert anyio.run(keys) == 1
    assert anyio.run(beside_a_server) == 1
    anyio.run(_execute, empty_postgres_url, EARLIER_SCHEMA)
    with pytest.raises(ConfigurationFailure, match="schema of an earlier version") as refused:
        anyio.run(keys)
    assert refused.value.code is Code.CONFIG_INVALID
    assert anyio.run(beside_a_server) == 1
