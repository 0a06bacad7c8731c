"""Schema upgrades: migrations lead from any revision to the current schema on both databases."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from portico.adapters.stores import schema_upgrade
from portico.adapters.stores.database import Backend
from portico.adapters.stores.schema import metadata
from portico.adapters.stores.schema_upgrade import HEAD_REVISION, SELECT_REVISION, migration_sql, upgrade_sql
from portico.adapters.stores.sqlite import open_sqlite
from tests.support.virtual_time import VirtualTimeLoop


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
    return [*columns, *indexes]


def test_all_migrations_together_create_the_schema_on_sqlite() -> None:
    made = sqlite_schema(migration_sql("sqlite", "base"))
    assert made == sqlite_schema(upgrade_sql("sqlite", None))
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
    finally:
        await undone.rollback()
        await connection.close()
    return [*columns, *indexes]


async def test_all_migrations_together_create_the_schema_on_postgresql(postgres_url: str) -> None:
    made = await postgres_schema(postgres_url, migration_sql("postgresql", "base"))
    assert made == await postgres_schema(postgres_url, upgrade_sql("postgresql", None))
    assert {each[0] for each in made} > {*metadata.tables}


def test_the_head_revision_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema_upgrade.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD_REVISION]


@pytest.mark.parametrize("backend", get_args(Backend))
def test_a_current_or_newer_schema_is_not_changed(backend: Backend) -> None:
    assert upgrade_sql(backend, HEAD_REVISION) == migration_sql(backend, HEAD_REVISION) == ""
    assert upgrade_sql(backend, "9999") == ""


async def test_a_file_is_created_once_and_then_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "var" / "portico.db"
    for _ in range(2):
        async with open_sqlite(path):
            pass
    with sqlite3.connect(path) as connection:
        assert connection.execute(SELECT_REVISION).fetchall() == [(HEAD_REVISION,)]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert {each for each in tables if not each.startswith(("memory_index", "sqlite_"))} == {
        "alembic_version",
        *metadata.tables,
    }
