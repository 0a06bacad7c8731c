"""Size of a write-ahead log, and a limit of the size of this process's files."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def wal_size(database: Path) -> int:
    """Return the size of the write-ahead log of that SQLite file."""
    return database.with_name(f"{database.name}-wal").stat().st_size


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """Limit the size of the files of this process, as `ulimit -f` does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
