"""Creation of the schema in an empty database.

The tables of `schema` are created at once. The migrations make the same schema, but Alembic costs 0.2 s and 11 MB at
start, and no database needs one yet: until the first release a change of the schema is made in the first migration, and
gives the schema another id.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Column, Index, MetaData, PrimaryKeyConstraint, String, Table, insert, literal_column
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from portico.adapters.stores.database import Backend, dialect_of
from portico.adapters.stores.schema import CONDITION, MEMORY_INDEX, metadata
from portico.domain.failures import Code, ConfigurationFailure

SCHEMA_ID: Final = "1n"
"""Id of the schema. Until the first release every change of it takes a new one: `1a`, `1b` and so on."""
SELECT_SCHEMA_ID: Final = "SELECT coalesce(max(version_num), '') FROM alembic_version"
_VERSION: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def require_schema(found: str) -> None:
    """Raise ConfigurationFailure (CONFIG_INVALID) if a database with tables has a schema of another id."""
    if found != SCHEMA_ID:
        message = "storage.url: the database was made by an unreleased version; use a new one"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message)


def creation_sql(backend: Backend) -> Sequence[str]:
    """Return the statements that create the schema and store its id."""
    tables, dialect = metadata.tables.values(), dialect_of(backend)
    version = insert(_VERSION).inline().values(version_num=literal_column(f"'{SCHEMA_ID}'"))
    return [
        *(str(CreateTable(each).compile(dialect=dialect)) for each in (*tables, _VERSION)),
        *(_index_sql(index, dialect) for table in tables for index in table.indexes),
        str(version.compile(dialect=dialect)),
        *MEMORY_INDEX[backend],
    ]


def _index_sql(index: Index, dialect: Dialect) -> str:
    sql = str(CreateIndex(index).compile(dialect=dialect))
    return f"{sql} WHERE {index.info[CONDITION]}" if CONDITION in index.info else sql
