"""Schema: both ways of making it agree on both databases, and a database of another schema is refused."""

import asyncio
import sqlite3
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from portico.adapters.stores import migrations
from portico.adapters.stores.database import Backend
from portico.adapters.stores.factory import check_database, open_beside, open_database, open_read_only
from portico.adapters.stores.schema import metadata
from portico.adapters.stores.schema_creation import SCHEMA_ID, SELECT_SCHEMA_ID, creation_sql
from portico.adapters.stores.sqlite import open_sqlite
from portico.adapters.system import SystemClock, SystemEntropy
from portico.domain.failures import Code, ConfigurationFailure
from tests.support.stores import set_schema_id
from tests.support.virtual_time import VirtualTimeLoop

SCRIPTS = str(Path(migrations.__file__).parent)
CLOCK = SystemClock()
ENTROPY = SystemEntropy(CLOCK)
UNRELEASED = "storage.url: the database was made by an unreleased version; use a new one"
OTHER_IDS = ("0001", "0006", "0010", "1", "2", "")
"""Ids of development states, of a change before the release, of a later version; the last stands for no id."""


def migration_script(backend: Backend) -> str:
    """Return the SQL of all migrations."""
    output = StringIO()
    config = Config(output_buffer=output, attributes={"dialect": backend})
    config.set_main_option("script_location", SCRIPTS)
    command.upgrade(config, "head", sql=True)
    return output.getvalue()


def creation_script(backend: Backend) -> str:
    return ";\n".join((*creation_sql(backend), ""))


def sqlite_schema(script: str) -> list[tuple[Any, ...]]:
    """Return the columns and the indexes of an empty database after the script."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        columns = connection.execute(
            'SELECT m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk'
            " FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid"
        ).fetchall()
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name"
        ).fetchall()
        stored = connection.execute(SELECT_SCHEMA_ID).fetchall()
    return [*columns, *indexes, *stored]


def test_the_migration_makes_the_schema_on_sqlite() -> None:
    made = sqlite_schema(migration_script("sqlite"))
    assert made == sqlite_schema(creation_script("sqlite"))
    assert {each[0] for each in made} > {*metadata.tables}


async def postgres_schema(url: str, script: str) -> list[Any]:
    """Return the columns and the indexes of an empty database after the script, which is undone."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with loop.in_real_time():
        return await _postgres_schema(url, script)


async def _postgres_schema(url: str, script: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    undone = connection.transaction()
    await undone.start()
    try:
        await connection.execute("CREATE SCHEMA made; SET LOCAL search_path TO made")
        await connection.execute(script)
        columns = await connection.fetch(
            "SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default"
            " FROM information_schema.columns WHERE table_schema = 'made' ORDER BY table_name, ordinal_position"
        )
        indexes = await connection.fetch(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'made' ORDER BY indexname"
        )
        stored = await connection.fetch(SELECT_SCHEMA_ID)
    finally:
        await undone.rollback()
        await connection.close()
    return [*columns, *indexes, *stored]


async def test_the_migration_makes_the_schema_on_postgresql(postgres_url: str) -> None:
    made = await postgres_schema(postgres_url, migration_script("postgresql"))
    assert made == await postgres_schema(postgres_url, creation_script("postgresql"))
    assert {each[0] for each in made} > {*metadata.tables}


def test_the_id_of_the_schema_is_that_of_the_only_migration() -> None:
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    assert [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()] == [SCHEMA_ID]


async def test_a_file_is_created_once_and_then_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "var" / "portico.db"
    for _ in range(2):
        async with open_sqlite(path):
            pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA_ID,)]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {each for each in tables if not each.startswith(("memory_index", "sqlite_"))} == {
        "alembic_version",
        *metadata.tables,
    }


async def _open(url: str) -> None:
    async with open_database(url, CLOCK, ENTROPY):
        pass


async def _open_beside(url: str) -> None:
    async with open_beside(url, CLOCK, ENTROPY):
        pass


async def _open_read_only(url: str) -> None:
    async with open_read_only(url, CLOCK, ENTROPY):
        pass


def test_a_database_of_another_schema_is_refused_and_unchanged(empty_database_url: str) -> None:
    asyncio.run(_open(empty_database_url))
    for schema_id in OTHER_IDS:
        set_schema_id(empty_database_url, schema_id)
        for access in (_open, _open_beside, _open_read_only):
            with pytest.raises(ConfigurationFailure) as refused:
                asyncio.run(access(empty_database_url))
            assert (refused.value.code, refused.value.message) == (Code.CONFIG_INVALID, UNRELEASED)
        with pytest.raises(ConfigurationFailure, match="unreleased"):
            asyncio.run(check_database(empty_database_url, CLOCK, ENTROPY))
    set_schema_id(empty_database_url, SCHEMA_ID)
    asyncio.run(_open(empty_database_url))
