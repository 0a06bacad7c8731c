"""Upgrade of a database's schema.

Alembic only writes SQL, which the database's own connection runs in one transaction under its lock. So both databases
have the same way of upgrading and need no second driver. Alembic is imported only if there is something to migrate; an
empty database gets the current schema at once. An unknown revision belongs to a later version, whose extended schema
works with this version too.
"""

from io import StringIO
from pathlib import Path
from typing import Final

from sqlalchemy import ClauseElement, Column, MetaData, PrimaryKeyConstraint, String, Table, insert, literal_column
from sqlalchemy.schema import CreateIndex, CreateTable

from portico.adapters.stores.database import DIALECTS, Backend
from portico.adapters.stores.schema import MEMORY_INDEX, metadata

HEAD_REVISION: Final = "0010"
"""Schema revision of this version."""
EARLIER_SCHEMA: Final = "storage.url: the database has the schema of an earlier version; start this version once"
"""Message of a command that must not upgrade the schema beneath a running server."""
SELECT_REVISION: Final = "SELECT version_num FROM alembic_version"
_VERSION: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade_sql(backend: Backend, current: str | None) -> str:
    """Return the SQL from the current revision, None for an empty database, to `HEAD_REVISION`; it may be empty."""
    if current == HEAD_REVISION:
        return ""
    return _create_sql(backend) if current is None else migration_sql(backend, current)


def migration_sql(backend: Backend, current: str) -> str:
    """Return the SQL of the migrations after the current revision; `base` stands for none."""
    # Importing Alembic takes 0.2 s and 11 MB, so only an upgrade does.
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    output = StringIO()
    config = Config(output_buffer=output, attributes={"dialect": backend})
    config.set_main_option("script_location", str(_SCRIPTS))
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    if current not in {"base", *known}:
        return ""
    command.upgrade(config, f"{current}:{HEAD_REVISION}", sql=True)
    return output.getvalue()


def _create_sql(backend: Backend) -> str:
    """Return the SQL of the current schema, equal to that of all migrations."""
    tables = metadata.tables.values()
    parts: list[ClauseElement] = [CreateTable(each) for each in (*tables, _VERSION)]
    parts += [CreateIndex(index) for table in tables for index in table.indexes]
    parts.append(insert(_VERSION).inline().values(version_num=literal_column(f"'{HEAD_REVISION}'")))
    created = [str(part.compile(dialect=DIALECTS[backend])) for part in parts]
    return "".join(f"{statement};\n" for statement in (*created, *MEMORY_INDEX[backend]))
