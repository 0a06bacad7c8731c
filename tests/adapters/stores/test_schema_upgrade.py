"""Schema upgrades: migrations lead from any revision to the current schema on both databases."""

import sqlite3
from pathlib import Path
from typing import get_args

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from app.adapters.stores import schema_upgrade
from app.adapters.stores.database import Backend
from app.adapters.stores.schema import metadata
from app.adapters.stores.schema_upgrade import HEAD_REVISION, SELECT_REVISION, migration_sql, upgrade_sql
from app.adapters.stores.sqlite import open_sqlite


def statements(script: str) -> set[str]:
    """Return the statements of a script, each on one line."""
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return {" ".join(each.split()) for each in "\n".join(lines).split(";") if each.strip()}


@pytest.mark.parametrize("backend", get_args(Backend))
def test_all_migrations_together_create_the_tables_of_the_schema(backend: Backend) -> None:
    made, today = statements(migration_sql(backend, "base")), statements(upgrade_sql(backend, None))
    schema = {each for each in made if each.startswith("CREATE ")}
    assert schema == {each for each in today if each.startswith("CREATE ")}
    assert all("alembic_version" in each for each in (made | today) - schema)
    assert len(schema) == len(metadata.tables) + sum(len(each.indexes) for each in metadata.tables.values()) + 1


def test_the_head_revision_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(schema_upgrade.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD_REVISION]


@pytest.mark.parametrize("backend", get_args(Backend))
def test_b4_91_a_current_or_newer_schema_is_not_changed(backend: Backend) -> None:
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
    assert tables == {"alembic_version", *metadata.tables}
