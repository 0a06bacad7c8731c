"""Backup of the SQLite file beside a running server, and its restoration while none runs.

A backup is one read transaction: without it each commit of the server starts the copy anew, and under load it never
ends. The copy carries the time at which it was made, has no log of its own, and appears under its name once it is
whole, checked and on the disk. A restored file does, too: what is replaced keeps its own log, since SQLite would read a
log that is left beside another file into it, and its check would say that all is well.
"""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from portico.adapters.stores.schema import IS_LIVE
from portico.adapters.stores.sqlite import (
    FileOwnedError,
    connect_read_only,
    has_schema,
    locked_file,
    require_own_file,
    storage_failure,
)
from portico.domain.failures import Code, ConfigurationFailure, StorageFailure
from portico.domain.ids import RequestId, TenantId
from portico.domain.value import value

_PAGES: Final = 256
_OWNER_ONLY: Final = 0o600
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TAKEN_AT: Final = "CREATE TABLE backup AS SELECT ? AS taken_at"
_CANCEL: Final = (
    "INSERT OR IGNORE INTO cancels (execution_id, tenant, asked_at) "  # noqa: S608 - of constants
    f"SELECT execution_id, tenant, ? FROM executions WHERE {IS_LIVE} AND state <> 'SUSPENDED'"
)
_OPEN_SUSPENSIONS: Final = (
    "SELECT count(*) FROM suspensions JOIN executions USING (execution_id) "  # noqa: S608 - of constants
    f"WHERE answered_at IS NULL AND {IS_LIVE}"
)
_VALID_KEYS: Final = "SELECT count(*) FROM api_keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"
_NEWEST: Final = "SELECT tenant, request_id FROM executions ORDER BY execution_id DESC LIMIT ?"


class Backup(NamedTuple):
    """A backup that was made: its size in bytes, and the number of its executions."""

    size: int
    executions: int


@value
class Restored:
    """Contents of a restored database besides all that had ended: counts, and when the backup was made.

    `cancelled` executions ran or were queued. `taken_at` are Unix seconds; None for a file that is no backup of ours.
    """

    cancelled: int
    open_suspensions: int
    valid_keys: int
    taken_at: float | None


def back_up(database: Path, target: Path, *, now: float) -> Backup:
    """Copy the database into a new file while a server may write it, and return what the copy has.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a database of another version; StorageFailure if the target exists
    or cannot be written. Nothing is left of a copy that is not whole.
    """
    partial = _partial(target)
    for path in (target, partial):
        if path.exists() or path.is_symlink():
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, f"{path} exists; name another file, or remove it")
    with _reading(database) as source, _writing(partial, target) as copy:
        _copy(source, copy, database, partial)
        copy.execute("DROP TABLE IF EXISTS backup")
        copy.execute(_TAKEN_AT, (now,))
        executions: int = copy.execute("SELECT count(*) FROM executions").fetchone()[0]
    return Backup(_publish(partial, target), executions)


def newest_executions(backup: Path, count: int) -> list[tuple[TenantId, RequestId]]:
    """Return the names of the newest executions of a backup, newest first, of all tenants."""
    with _reading(backup) as connection:
        return [(TenantId(tenant), RequestId(name)) for tenant, name in connection.execute(_NEWEST, (count,))]


def restore(backup: Path, database: Path, *, now: float, replace: bool, resume: bool) -> Restored:
    """Put the backup in the place of the database, on which no server may run, and return what it has.

    What ran or was queued when the backup was made is cancelled, since what it did afterwards is not known; with
    `resume` it goes on. With `replace` an existing database is kept as `FILE.replaced`.

    Raises: ConfigurationFailure (CONFIG_INVALID) beneath a server, or for a backup of another version; StorageFailure
    for a file that is no backup, or if a database exists and is not to be replaced. Nothing is changed then.
    """
    replaced = database.with_name(f"{database.name}.replaced")
    require_own_file(database)
    with _reading(backup) as source:
        existed = database.exists()
        if existed and not replace:
            message = f"{database} exists; --replace restores the backup and keeps the file as {replaced.name}"
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, message)
        if existed and replaced.exists():
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, f"{replaced} exists; move it away first")
        partial = _partial(database)
        with _alone(database, existed=existed):
            partial.unlink(missing_ok=True)
            with _writing(partial, database) as copy:
                _copy(source, copy, backup, partial)
                restored = _prepare(copy, now, resume=resume)
            _set_aside(database, replaced, existed=existed)
            _publish(partial, database)
    return restored


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that reads one state of the file.

    Raises: StorageFailure if it is no database of ours; ConfigurationFailure (CONFIG_INVALID) for another version.
    """
    if not path.is_file():
        raise StorageFailure(Code.STORAGE_UNAVAILABLE, f"there is no file {path}")
    try:
        connection = connect_read_only(path)
    except sqlite3.Error as error:
        raise _foreign(path) from error
    with closing(connection):
        try:
            connection.execute("BEGIN")
            is_ours = has_schema(connection)
        except sqlite3.Error as error:
            raise _foreign(path) from error
        except ConfigurationFailure as failure:
            message = f"{path} was made by another version of the service, which this one cannot read"
            raise ConfigurationFailure(failure.code, message) from failure
        if not is_ours:
            raise _foreign(path)
        yield connection


def _foreign(path: Path) -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, f"cannot read {path}: it is no database of Portico, or damaged")


@contextmanager
def _writing(partial: Path, target: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to a new file, which only its owner may read; nothing is left of it after an error.

    Raises: StorageFailure, which names the target.
    """
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY))
    except OSError as error:
        raise _not_written(target, error) from error
    try:
        connection = sqlite3.connect(partial, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")  # `_copy` and `_publish` sync
            connection.execute("PRAGMA journal_mode = OFF")  # a file that is not whole is removed
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        _remove(partial)
        failure = storage_failure(error)
        raise StorageFailure(failure.code, f"cannot write {target}: {failure.message}") from error
    except OSError as error:
        _remove(partial)
        raise _not_written(target, error) from error
    except BaseException:
        _remove(partial)
        raise


def _copy(source: sqlite3.Connection, copy: sqlite3.Connection, path: Path, partial: Path) -> None:
    """Copy all pages of the file at that path, and check the copy, which gets no log of its own.

    Each step is synced: the server's commits would wait for all that was written and is not on the disk yet.
    """
    with partial.open("rb") as written:
        source.backup(copy, pages=_PAGES, progress=lambda *_: os.fdatasync(written.fileno()))
    copy.execute("PRAGMA journal_mode = DELETE")
    try:
        found = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise StorageFailure(Code.STORAGE_UNAVAILABLE, f"cannot read {path}: the file is damaged")


def _prepare(copy: sqlite3.Connection, now: float, *, resume: bool) -> Restored:
    """Cancel in the copy what ran, unless it is to go on, and return what is in it."""
    is_ours = copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'backup'").fetchone() is not None
    taken_at = copy.execute("SELECT max(taken_at) FROM backup").fetchone()[0] if is_ours else None
    copy.execute("DROP TABLE IF EXISTS backup")
    cancelled = 0 if resume else copy.execute(_CANCEL, (now,)).rowcount
    open_suspensions: int = copy.execute(_OPEN_SUSPENSIONS).fetchone()[0]
    valid_keys: int = copy.execute(_VALID_KEYS, (now,)).fetchone()[0]
    return Restored(cancelled, open_suspensions, valid_keys, taken_at)


@contextmanager
def _alone(database: Path, *, existed: bool) -> Iterator[None]:
    """Hold the lock of the database, and leave no file if there was none. Raises: ConfigurationFailure."""
    try:
        with locked_file(database):
            try:
                yield
            except BaseException:
                if not existed:
                    database.unlink(missing_ok=True)
                raise
    except FileOwnedError as owned:
        message = f"a server runs on {database}; stop it first"
        raise ConfigurationFailure(Code.CONFIG_INVALID, message) from owned


def _set_aside(database: Path, replaced: Path, *, existed: bool) -> None:
    """Rename the database, after its log was copied into it; one that cannot be opened keeps its log.

    A log without its database is renamed, too: SQLite would read it into the restored file.
    """
    if existed:
        with suppress(sqlite3.Error):
            connect_read_only(database).close()  # SQLite removes the log of a file that it cannot read
            with closing(sqlite3.connect(database, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    for suffix in ("-wal", "-shm", *([""] if existed else ())):
        with suppress(FileNotFoundError):
            database.with_name(f"{database.name}{suffix}").rename(f"{replaced}{suffix}")


def _publish(partial: Path, target: Path) -> int:
    """Give a whole file its name once it is on the disk, and return its size in bytes. Raises: StorageFailure."""
    try:
        with partial.open("rb") as written:
            os.fsync(written.fileno())
            size = os.fstat(written.fileno()).st_size
        partial.rename(target)
    except OSError as error:
        _remove(partial)
        raise _not_written(target, error) from error
    folder = os.open(target.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def _remove(partial: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        partial.with_name(f"{partial.name}{suffix}").unlink(missing_ok=True)


def _not_written(target: Path, error: OSError) -> StorageFailure:
    code = Code.STORAGE_FULL if error.errno in _NO_ROOM else Code.STORAGE_UNAVAILABLE
    return StorageFailure(code, f"cannot write {target}: {(error.strerror or '').lower()}")
