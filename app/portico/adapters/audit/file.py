"""Audit log in a file: JSON lines, each with the digest of the line before, so that a changed line is found.

Several processes of one machine may write one file. Each locks it for a line, and reads the last line first. A file
that was moved is left for a new one, whose first line goes on from the last line of the old file.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson
from anyio import to_thread

from portico.domain.failures import Code, StorageFailure
from portico.ports.audit import AuditEntry
from portico.ports.runtime import Clock

CHAIN_START: Final = "0" * 64
"""Digest in the first line of a log."""
_OWNER_ONLY: Final = 0o600
_BLOCK: Final = 4_096
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class AuditFile:
    """Implementation of `AuditLog` on a file, which only its owner may read."""

    def __init__(self, path: Path, clock: Clock, on_failure: Callable[[], None] | None = None) -> None:
        """Prepare the log, which calls `on_failure` for each line that it cannot write."""
        self._on_failure = on_failure
        self._path = path
        self._clock = clock
        self._mutex = threading.Lock()
        self._file: int | None = None

    async def write(self, entry: AuditEntry) -> None:
        fields = _fields(entry, _time(self._clock.now()))
        try:
            await to_thread.run_sync(self._append, fields)
        except StorageFailure:
            if self._on_failure is not None:
                self._on_failure()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._mutex:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _append(self, fields: dict[str, object]) -> None:
        try:
            with self._mutex:
                file, previous = self._locked_file()
                try:
                    _append_line(file, orjson.dumps(fields | {"prev": previous}))
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)
        except OSError as error:
            code = Code.STORAGE_FULL if error.errno in _NO_ROOM else Code.STORAGE_UNAVAILABLE
            raise StorageFailure(code, "the audit log cannot be written", retry_after=1.0) from error

    def _locked_file(self) -> tuple[int, str]:
        """Return the file, locked, and the digest of its last line; that of the old file if it was moved."""
        previous = CHAIN_START
        while True:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _OWNER_ONLY)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            previous = _last_digest(self._file) or previous
            if _is_at(self._file, self._path):
                return self._file, previous
            os.close(self._file)
            self._file = None


def _fields(entry: AuditEntry, time: str) -> dict[str, object]:
    """Return the members of the line, in the order in which they are written."""
    return {
        "time": time,
        "action": entry.action,
        "tenant": entry.tenant,
        "user": entry.user,
        "key": entry.key,
        "target": entry.target,
        "owner": entry.owner,
        "outcome": entry.outcome,
        "code": entry.code,
        "detail": entry.detail,
    }


def _is_at(file: int, path: Path) -> bool:
    """Return whether the open file still has that path."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(file)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _last_digest(file: int) -> str | None:
    """Return the digest of the last line; None for an empty file."""
    size = start = os.fstat(file).st_size
    tail = b""
    while start > 0 and tail.rstrip(b"\n").count(b"\n") == 0:
        start = max(0, start - _BLOCK)
        tail = os.pread(file, size - start, start)
    if not tail:
        return None
    return sha256(tail.rstrip(b"\n").rpartition(b"\n")[2]).hexdigest()


def _append_line(file: int, line: bytes) -> None:
    """Append the line with one write; after one that broke off, the file is as it was. Raises: OSError."""
    size = os.fstat(file).st_size
    is_cut = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    data = b"\n" * is_cut + line + b"\n"
    broken: OSError | None = None
    try:
        if os.write(file, data) != len(data):
            broken = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        broken = error
    if broken is not None:
        with suppress(OSError):  # a device has no size
            os.ftruncate(file, size)
        raise broken


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
