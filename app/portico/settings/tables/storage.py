"""The table `[storage]` of the configuration: where executions are stored, and for how long."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from portico.settings.values import Table

_SQLITE_URL = re.compile(r"sqlite://(/[^?#\x00-\x1f]*[^/?#\x00-\x1f])?")
_POSTGRESQL_URL = re.compile(r"postgres(ql)?://[^\s/?#]*/[^\s/?#]+(\?[^\s#]*)?")


def _storage_url(url: str) -> str:
    if not (_SQLITE_URL.fullmatch(url) or _POSTGRESQL_URL.fullmatch(url)):
        raise ValueError("must be sqlite:///path/to/a/file or postgresql://user@host/database")
    return url


class StorageSettings(Table):
    """Storage of executions."""

    url: Annotated[str, AfterValidator(_storage_url)] = Field(
        "sqlite:///var/portico.db",
        description="`sqlite:///path`, `sqlite://` (in memory) or `postgresql://user@host/database`",
    )
    event_retention_days: Annotated[float, Field(gt=0, le=36_500)] = Field(
        7, description="Days after its end until steps and events of an execution are deleted"
    )
    statement_timeout: Annotated[float, Field(ge=0.5, le=600)] = Field(
        5, description="Seconds after which PostgreSQL is given up; the creation of tables and maintenance take longer"
    )
    answer_retention_days: Annotated[float, Field(gt=0, le=36_500)] = Field(
        90, description="Days after its end until an execution is deleted, and after its last turn until a session is"
    )
    replica_timeout: Annotated[float, Field(ge=1, le=600)] = Field(
        10, description="Silence after which a replica on PostgreSQL is considered dead"
    )

    @property
    def file(self) -> Path | None:
        """Return the database's file; None for one in memory and for PostgreSQL."""
        path = self.url.removeprefix("sqlite:///")
        return Path(path) if path not in {self.url, ""} else None
