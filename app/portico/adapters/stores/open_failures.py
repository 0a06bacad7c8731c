"""Failures to open a database at start, for the person who wrote `storage.url`.

They name the database and the reason. Later failures name neither, because clients see them. Those of PostgreSQL are in
`postgres_open_failures.py`, which loads its driver.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from portico.domain.failures import StorageFailure

_SQLITE_REASONS: Mapping[int, str] = MappingProxyType(
    {
        sqlite3.SQLITE_ERROR: "the file has no tables of Portico",
        sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
        sqlite3.SQLITE_CORRUPT: "the file is damaged",
        sqlite3.SQLITE_CANTOPEN: "the path is not a file that can be opened",
        sqlite3.SQLITE_READONLY: "the file is read-only",
        sqlite3.SQLITE_PERM: "the file may not be accessed",
        sqlite3.SQLITE_BUSY: "another process writes it",
        sqlite3.SQLITE_FULL: "the disk is full",
    }
)
_PRIMARY_CODE = 0xFF
"""Mask of the primary part of an extended result code of SQLite."""


@contextmanager
def named_sqlite(path: Path) -> Iterator[None]:
    """Name the file and the reason in a storage failure."""
    try:
        yield
    except StorageFailure as failure:
        code = getattr(failure.__cause__, "sqlite_errorcode", 0) & _PRIMARY_CODE
        reason = _SQLITE_REASONS.get(code, "the file cannot be read or written")
        raise named(failure, f"cannot open {path}: {reason}") from failure


def named(failure: StorageFailure, message: str) -> StorageFailure:
    """Return the failure with that message about `storage.url`."""
    return StorageFailure(failure.code, f"storage.url: {message}", retry_after=failure.retry_after)
