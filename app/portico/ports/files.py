"""Port of the files that tools and clients keep for a session, an execution or a tenant."""

from collections.abc import Sequence
from typing import Protocol

from portico.domain.tools import Caller
from portico.domain.value import value


@value
class StoredFile:
    """A file: its path beneath the directory, its size in bytes, and when it was changed, in Unix seconds."""

    path: str
    size: int
    modified_at: float


@value
class WrittenFile:
    """A file that was written: its path, its size in bytes, its SHA-256 in hex, and True if there was none before."""

    path: str
    size: int
    sha256: str
    is_new: bool


class FileStore(Protocol):
    """Files in the directory of a caller: that of its session, else that of its execution.

    Raises: RequestFailure (REQUEST_INVALID for a path, REQUEST_NOT_FOUND, REQUEST_TOO_LARGE for a file or the quota);
    StorageFailure (STORAGE_UNAVAILABLE, STORAGE_FULL).
    """

    async def page(self, caller: Caller, *, after: str | None, limit: int) -> tuple[Sequence[StoredFile], str | None]:
        """Return files by path, and the path after which the next page begins."""
        ...

    async def read(self, caller: Caller, path: str) -> bytes:
        """Return the bytes of a file."""
        ...

    async def write(self, caller: Caller, path: str, content: bytes) -> WrittenFile:
        """Write a file at once as a whole, with the directories above it."""
        ...

    async def delete(self, caller: Caller, path: str) -> None:
        """Delete a file."""
        ...

    def check_path(self, path: str) -> None:
        """Refuse a path that no file can have."""
        ...

    @property
    def max_file_bytes(self) -> int:
        """The bytes that a file may have."""
        ...

    def discard(self, caller: Caller) -> None:
        """Take the directory of the caller's session or execution away at once; it is removed later."""
        ...

    async def remove_discarded(self) -> None:
        """Remove what was taken away."""
        ...
