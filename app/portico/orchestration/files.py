"""Files of sessions: what clients put there for tools, and fetch of what tools have made."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, Field

from portico.domain.access.principal import Permission, Principal
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, SessionId
from portico.domain.tools import Caller
from portico.domain.value import value
from portico.orchestration.execution.environment import Environment
from portico.orchestration.rights import require
from portico.ports.files import FileStore


class FileView(BaseModel):
    """A file of a session."""

    path: str = Field(description="Its path, relative, with `/` between its parts.")
    bytes: int = Field(description="Its size in bytes.")
    modified_at: datetime = Field(description="The time at which it was last written.")


class WrittenFileView(BaseModel):
    """A file that was written."""

    path: str = Field(description="Its path, relative, with `/` between its parts.")
    bytes: int = Field(description="Its size in bytes.")
    sha256: str = Field(description="SHA-256 of its bytes, in hex.")


@value
class FilePage:
    """A page of files, by path; `next` is the cursor of the following page, None on the last."""

    files: Sequence[FileView]
    next: str | None


class Files:
    """Queries and commands for the files of one's own sessions.

    Raises: RequestFailure (REQUEST_NOT_FOUND for a session or a file that is not there, and where sessions have no
    files; REQUEST_INVALID for a path), AccessFailure (ACCESS_DENIED), StorageFailure.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    @property
    def max_file_bytes(self) -> int:
        """The bytes that a file may have."""
        return self._store.max_file_bytes

    async def require(self, principal: Principal, session_id: SessionId, path: str | None = None) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) if there is no such session; then for a path that none can have."""
        store = self._store
        if await self._environment.conversations.session(principal.own, session_id) is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "no session has this id", condition="path")
        if path is not None:
            store.check_path(path)

    async def require_writable(self, principal: Principal, session_id: SessionId, path: str) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) if the session is another user's; then as `require`."""
        store = self._store
        await self._environment.conversations.session_of_turn(principal.own, session_id)
        store.check_path(path)
        require(principal.permissions, Permission.SEND_MESSAGES, "write files")

    async def page(self, principal: Principal, session_id: SessionId, *, after: str | None, limit: int) -> FilePage:
        """Return a page of the files of a session."""
        files, following = await self._store.page(_caller(principal, session_id), after=after, limit=limit)
        views = [
            FileView(path=each.path, bytes=each.size, modified_at=datetime.fromtimestamp(each.modified_at, UTC))
            for each in files
        ]
        return FilePage(views, following)

    async def read(self, principal: Principal, session_id: SessionId, path: str) -> bytes:
        """Return the bytes of a file, which cannot be redacted."""
        require(principal.permissions, Permission.VIEW_FULL_HISTORY, "read files")
        return await self._store.read(_caller(principal, session_id), path)

    async def write(
        self, principal: Principal, session_id: SessionId, path: str, content: bytes
    ) -> tuple[WrittenFileView, bool]:
        """Write a file as a whole, and return it, and True if there was none; a session that is not there is made.

        Raises: RequestFailure (REQUEST_TOO_LARGE) for a file, or all files, above their limit.
        """
        require(principal.permissions, Permission.SEND_MESSAGES, "write files")
        conversations = self._environment.conversations
        await conversations.create(principal.own, session_id, self._environment.clock.now())
        await self.require_writable(principal, session_id, path)
        written = await self._store.write(_caller(principal, session_id), path, content)
        return WrittenFileView(path=written.path, bytes=written.size, sha256=written.sha256), written.is_new

    async def delete(self, principal: Principal, session_id: SessionId, path: str) -> None:
        """Delete a file."""
        require(principal.permissions, Permission.SEND_MESSAGES, "delete files")
        await self._store.delete(_caller(principal, session_id), path)

    @property
    def _store(self) -> FileStore:
        if self._environment.files is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "sessions have no files here", condition="path")
        return self._environment.files


def _caller(principal: Principal, session_id: SessionId) -> Caller:
    return Caller(principal.tenant, principal.user, session_id, RequestId(""))
