"""Implementation of the `FileStore` port over the directories of callers."""

import errno
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from anyio import to_thread

from portico.adapters.tools.files.beneath import PathError, parts_of
from portico.adapters.tools.files.directories import (
    FileDirectories,
    FileLimitError,
    MissingFileError,
    UnusableFileError,
)
from portico.domain.failures import Code, RequestFailure, StorageFailure, invalid_request
from portico.domain.tools import Caller
from portico.ports.files import StoredFile, WrittenFile

T = TypeVar("T")
UNOWNED_SECONDS: Final = 24 * 3600.0
"""Time after which a directory is removed that belongs to no session and to no execution."""
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class DirectoryFiles:
    """Files in directories; the file system is used on threads."""

    def __init__(self, directories: FileDirectories) -> None:
        self._directories = directories

    @property
    def max_file_bytes(self) -> int:
        return self._directories.limits.file_bytes

    async def page(self, caller: Caller, *, after: str | None, limit: int) -> tuple[Sequence[StoredFile], str | None]:
        files = await _on_thread(lambda: self._directories.files(caller))
        rest = [each for each in files if after is None or each.path > after]
        return rest[:limit], rest[limit - 1].path if len(rest) > limit else None

    async def read(self, caller: Caller, path: str) -> bytes:
        return await _on_thread(lambda: self._directories.read(caller, path, self._directories.limits.bytes))

    async def write(self, caller: Caller, path: str, content: bytes) -> WrittenFile:
        return await _on_thread(lambda: self._directories.write(caller, path, content))

    async def delete(self, caller: Caller, path: str) -> None:
        await _on_thread(lambda: self._directories.delete(caller, path))

    def check_path(self, path: str) -> None:
        with _as_failures():
            if not parts_of(path):
                raise PathError("must name a file")

    def discard(self, caller: Caller) -> None:
        with _as_failures():
            self._directories.discard(caller)

    async def remove_discarded(self) -> None:
        await _on_thread(self._directories.remove_discarded)

    async def sweep(self, exists: Callable[[Caller], Awaitable[bool]], now: float) -> None:
        """Remove what was discarded, and the directories of sessions and executions that do not exist any more.

        Those that are younger than 24 hours stay, since an execution in memory is not stored before its end.
        """
        for caller in await _on_thread(lambda: list(self._directories.owners(now - UNOWNED_SECONDS))):
            if not await exists(caller):
                self.discard(caller)
        await self.remove_discarded()


async def _on_thread(work: Callable[[], T]) -> T:
    with _as_failures():
        return await to_thread.run_sync(work)


@contextmanager
def _as_failures() -> Iterator[None]:
    """Raise what the directories raise as failures."""
    try:
        yield
    except (PathError, UnusableFileError) as refused:
        raise invalid_request(("path", str(refused))) from None
    except MissingFileError:
        raise RequestFailure(Code.REQUEST_NOT_FOUND, "no file has this path", condition="path") from None
    except FileLimitError as refused:
        raise RequestFailure(Code.REQUEST_TOO_LARGE, str(refused)) from None
    except OSError as error:
        code = Code.STORAGE_FULL if error.errno in _NO_SPACE else Code.STORAGE_UNAVAILABLE
        raise StorageFailure(code, f"the directory of files: {os.strerror(error.errno or 0)}") from error
