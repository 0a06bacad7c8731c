"""Brings a database's schema up to date.

Alembic writes the SQL and the database's own connection runs it, in one transaction and under its lock: so there is
one path for both, and no second driver. It is loaded only when there is something to migrate: an empty database is
given today's schema at once. A revision that we do not know is of a later version, whose expanded schema this one can
work with.
"""

from io import StringIO
from pathlib import Path
from typing import Final

from sqlalchemy import ClauseElement, Column, MetaData, PrimaryKeyConstraint, String, Table, insert, literal_column
from sqlalchemy.schema import CreateIndex, CreateTable

from app.adapters.stores.database import DIALECTS, Backend
from app.adapters.stores.schema import metadata

HEAD_REVISION: Final = "0002"
"""The revision this version works with."""
SELECT_REVISION: Final = "SELECT version_num FROM alembic_version"
_VERSION: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade_sql(backend: Backend, current: str | None) -> str:
    """The SQL that leads there from the current revision, None for an empty database; empty when there is none."""
    if current == HEAD_REVISION:
        return ""
    return _created(backend) if current is None else migration_sql(backend, current)


def migration_sql(backend: Backend, current: str) -> str:
    """The migrations that follow the current revision, `base` for none at all."""
    # A fifth of a second and eleven megabytes that nobody needs whose schema is up to date.
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - see above

    written = StringIO()
    config = Config(output_buffer=written, attributes={"dialect": backend})
    config.set_main_option("script_location", str(_SCRIPTS))
    known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
    if current not in {"base", *known}:
        return ""
    command.upgrade(config, f"{current}:{HEAD_REVISION}", sql=True)
    return written.getvalue()


def _created(backend: Backend) -> str:
    """Today's schema, as the migrations make it."""
    tables = metadata.tables.values()
    parts: list[ClauseElement] = [CreateTable(each) for each in (*tables, _VERSION)]
    parts += [CreateIndex(index) for table in tables for index in table.indexes]
    parts.append(insert(_VERSION).inline().values(version_num=literal_column(f"'{HEAD_REVISION}'")))
    return "".join(f"{part.compile(dialect=DIALECTS[backend])};\n" for part in parts)
