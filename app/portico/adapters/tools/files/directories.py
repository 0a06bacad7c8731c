"""Directories of callers' files: where they are, what fits into them, and when they are removed.

A directory is `ROOT/TENANT/USER/s-SESSION`, without a session `e-REQUEST`, or `ROOT/TENANT/all` for a whole tenant.
Each name is the beginning of a SHA-256. The file `NAME.json` beside it says whose it is, so that one whose session and
execution are gone can be found. What is written appears at once as a whole, and is prepared outside of the directory,
where no program of the caller can see it.
"""

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp, mkstemp
from typing import Final, NamedTuple

from portico.adapters.tools.files.beneath import MAX_PARTS, PathError, is_plain_file, open_beneath, opened, parts_of
from portico.domain.ids import RequestId, SessionId, TenantId, UserId
from portico.domain.tools import Caller
from portico.domain.value import value
from portico.ports.files import StoredFile, WrittenFile

NAME_DIGITS: Final = 32
_DISCARDED: Final = "discarded"
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY
_READ: Final = os.O_RDONLY | os.O_NONBLOCK


class MissingFileError(Exception):
    """There is nothing under the path."""


class UnusableFileError(Exception):
    """The path leads to something that cannot be used, for the reason in the text."""


class FileLimitError(Exception):
    """The file, or what the directory would have, is over a limit, which the text names."""


class FileEntry(NamedTuple):
    """An entry of a directory, by its path beneath the caller's directory."""

    path: str
    status: os.stat_result

    @property
    def kind(self) -> str:
        """`file`, `directory`, `link` or `other`."""
        mode = self.status.st_mode
        if stat.S_ISREG(mode):
            return "file"
        return "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


@value
class FileLimits:
    """Limits of files: bytes of each, and the bytes and the entries of a caller's directory."""

    file_bytes: int
    bytes: int
    entries: int


class FileDirectories:
    """The directories beneath a root: one for each session or execution, or one for each tenant.

    Every method blocks. Raises: PathError, MissingFileError, UnusableFileError, FileLimitError; OSError of the system.
    """

    def __init__(self, root: Path, limits: FileLimits, *, is_for_tenant: bool) -> None:
        self.root = root
        self.limits = limits
        self.is_for_tenant = is_for_tenant
        """True if all callers of a tenant share one directory."""

    def directory_of(self, caller: Caller) -> Path:
        """Return the path of the caller's directory, which need not exist."""
        tenant = self.root / _name(caller.tenant)
        if self.is_for_tenant:
            return tenant / "all"
        own = f"e-{_name(caller.request_id)}" if caller.session_id is None else f"s-{_name(caller.session_id)}"
        return tenant / _name(caller.user) / own

    def made(self, caller: Caller) -> Path:
        """Return the path of the caller's directory, which is made if it is not there."""
        path = self.directory_of(caller)
        if not path.is_dir():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.is_for_tenant:
                owner = {"tenant": caller.tenant, "user": caller.user, "session": caller.session_id}
                _owner_file(path).write_text(json.dumps({**owner, "request": caller.request_id}))
            path.mkdir(mode=0o700, exist_ok=True)
        return path

    def entries(self, caller: Caller, path: str) -> list[FileEntry]:
        """Return the entries of a directory, by name."""
        parts = parts_of(path)
        with self._opened(caller) as root, _opened(root, parts, os.O_RDONLY | os.O_DIRECTORY) as directory:
            return sorted(_entries(directory, ""))

    def files(self, caller: Caller) -> list[StoredFile]:
        """Return all regular files, by path; a name that is no UTF-8, which a program may give, has none."""
        try:
            with self._opened(caller) as root:
                found = list(_walk(root))
        except MissingFileError:
            return []
        files = [each for each in found if each.kind == "file" and _is_text(each.path)]
        return sorted(
            (StoredFile(each.path, each.status.st_size, each.status.st_mtime) for each in files),
            key=lambda each: each.path,
        )

    def read(self, caller: Caller, path: str, max_bytes: int) -> bytes:
        """Return the bytes of a regular file with one name. Raises: FileLimitError above `max_bytes`."""
        parts = parts_of(path)
        with self._opened(caller) as root, _opened(root, parts, _READ) as descriptor:
            return _content(descriptor, max_bytes)

    def write(self, caller: Caller, path: str, content: bytes) -> WrittenFile:
        """Write a file as a whole, in place of one that is there, and the directories above it."""
        parts = parts_of(path)
        if not parts:
            raise UnusableFileError("is a directory")
        if len(content) > self.limits.file_bytes:
            raise FileLimitError(f"a file may have at most {self.limits.file_bytes} bytes")
        directory = self.made(caller)
        with self._locked(directory), self._opened(caller) as root:
            replaced = _replaceable(root, parts)
            self._require_space(root, parts, len(content), replaced)
            with _made_directory(root, parts[:-1]) as parent:
                _replace(directory.parent, parent, parts[-1], content)
        size, sha256 = len(content), hashlib.sha256(content).hexdigest()
        return WrittenFile("/".join(parts), size, sha256, is_new=replaced is None)

    def edit(self, caller: Caller, path: str, change: Callable[[bytes], bytes]) -> tuple[WrittenFile, bool]:
        """Replace a file's content by what `change` makes of it; return the file and whether it has changed."""
        parts = parts_of(path)
        with self._opened(caller), self._locked(self.directory_of(caller)), self._opened(caller) as root:
            with _opened(root, parts, _READ) as descriptor:
                before = _content(descriptor, self.limits.file_bytes)
                size = os.fstat(descriptor).st_size
            after = change(before)
            if len(after) > self.limits.file_bytes:
                raise FileLimitError(f"a file may have at most {self.limits.file_bytes} bytes")
            if after != before:
                self._require_space(root, parts, len(after), size)
                with _opened(root, parts[:-1], _DIRECTORY) as parent:
                    _replace(self.directory_of(caller).parent, parent, parts[-1], after)
        written = WrittenFile("/".join(parts), len(after), hashlib.sha256(after).hexdigest(), is_new=False)
        return written, after != before

    def delete(self, caller: Caller, path: str) -> None:
        """Delete a file, or a link itself."""
        parts = parts_of(path)
        if not parts:
            raise UnusableFileError("is a directory")
        with self._opened(caller) as root, _opened(root, parts[:-1], _DIRECTORY) as parent:
            with _as_missing():
                status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise UnusableFileError("is a directory")
            os.unlink(parts[-1], dir_fd=parent)

    def space_left(self, directory: Path) -> tuple[int, int]:
        """Return the bytes and the entries that may be added to a caller's directory; negative for what is too much."""
        descriptor = os.open(directory, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size, entries = _usage(descriptor, self.limits)
        finally:
            os.close(descriptor)
        return self.limits.bytes - size, self.limits.entries - entries

    def discard(self, caller: Caller) -> None:
        """Take the directory of a session or an execution away at once; `remove_discarded` removes it."""
        if not self.is_for_tenant:
            self._discard(self.directory_of(caller))

    def remove_discarded(self) -> None:
        """Remove what was discarded, of any depth, unless another call, or another replica, does so."""
        discarded = self.root / _DISCARDED
        if not discarded.is_dir():
            return
        lock = os.open(discarded, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_children(discarded)
        finally:
            os.close(lock)

    def owners(self, older_than: float) -> Iterator[Caller]:
        """Yield whose directories there are, as far as these were made before that time in Unix seconds."""
        for path in self.root.glob(f"{'?' * NAME_DIGITS}/{'?' * NAME_DIGITS}/*.json"):
            with suppress(OSError, ValueError, KeyError):
                if path.stat().st_mtime < older_than:
                    said = json.loads(path.read_text())
                    session = None if said["session"] is None else SessionId(said["session"])
                    tenant, user = TenantId(said["tenant"]), UserId(said["user"])
                    yield Caller(tenant, user, session, RequestId(said["request"]))

    def _discard(self, path: Path) -> None:
        discarded = self.root / _DISCARDED
        with suppress(FileNotFoundError):
            _owner_file(path).unlink()
        if path.is_dir():
            discarded.mkdir(mode=0o700, exist_ok=True)
            path.rename(Path(mkdtemp(dir=discarded)) / "files")

    @contextmanager
    def _opened(self, caller: Caller) -> Iterator[int]:
        """Yield a descriptor of the caller's directory. Raises: MissingFileError."""
        with _as_missing():
            descriptor = os.open(self.directory_of(caller), _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self, directory: Path) -> Iterator[None]:
        """Let no other call write meanwhile. The lock is outside of the directory, out of reach of its programs."""
        descriptor = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _require_space(self, root: int, parts: Sequence[str], size: int, replaced: int | None) -> None:
        """Raise FileLimitError if the directory has no space for a file of that size in place of one of the other."""
        used, entries = _usage(root, self.limits)
        if used - (replaced or 0) + size > self.limits.bytes:
            raise FileLimitError(f"all files together may have at most {self.limits.bytes} bytes")
        added = 0 if replaced is not None else 1 + _missing_directories(root, parts[:-1])
        if entries + added > self.limits.entries:
            raise FileLimitError(f"there may be at most {self.limits.entries} files and directories")


def _is_text(path: str) -> bool:
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def _name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:NAME_DIGITS]


def _owner_file(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.json")


@contextmanager
def _as_missing() -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError("there is no such file") from None


@contextmanager
def _opened(root: int, parts: Sequence[str], flags: int) -> Iterator[int]:
    """Yield a descriptor of what has that path. Raises: MissingFileError, UnusableFileError, PathError."""
    try:
        descriptor = open_beneath(root, parts, flags)
    except FileNotFoundError:
        raise MissingFileError("there is no such file") from None
    except NotADirectoryError:
        raise MissingFileError("there is no such directory") from None
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM, errno.ENXIO, errno.EISDIR}:
            raise UnusableFileError(os.strerror(error.errno).lower()) from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int, max_bytes: int) -> bytes:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise UnusableFileError("is a directory")
    if not is_plain_file(descriptor):
        raise UnusableFileError("is no regular file with one name")
    size = os.fstat(descriptor).st_size
    if size > max_bytes:
        raise FileLimitError(f"the file has {size} bytes, and at most {max_bytes} are read")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(max_bytes)


def _entries(directory: int, prefix: str) -> Iterator[FileEntry]:
    """Yield the entries of a directory; those that go away meanwhile are left out."""
    for name in os.listdir(directory):
        with suppress(FileNotFoundError):
            yield FileEntry(prefix + name, os.stat(name, dir_fd=directory, follow_symlinks=False))


def _walk(root: int) -> Iterator[FileEntry]:
    """Yield all entries beneath a directory. Raises: FileLimitError for one that is too deep or closed."""
    waiting = deque[tuple[str, ...]]([()])
    while waiting:
        parts = waiting.popleft()
        if len(parts) >= MAX_PARTS:
            raise FileLimitError(f"directories may be at most {MAX_PARTS - 1} deep")
        try:
            with opened(root, parts, os.O_RDONLY | os.O_DIRECTORY) as directory:
                found = list(_entries(directory, "".join(f"{part}/" for part in parts)))
        except (FileNotFoundError, NotADirectoryError, PathError):
            continue
        except OSError as error:
            raise FileLimitError("a directory cannot be looked into") from error
        yield from found
        waiting += [(*parts, each.path.rpartition("/")[2]) for each in found if each.kind == "directory"]


def _usage(root: int, limits: FileLimits) -> tuple[int, int]:
    """Return the bytes and the entries of a directory. Raises: FileLimitError for more entries than may be."""
    size = entries = 0
    for each in _walk(root):
        entries += 1
        size += 0 if each.kind == "directory" else each.status.st_size
        if entries > limits.entries:
            raise FileLimitError(f"there may be at most {limits.entries} files and directories")
    return size, entries


def _replaceable(root: int, parts: Sequence[str]) -> int | None:
    """Return the bytes of the file that a new one replaces; None if there is none. Raises: UnusableFileError."""
    try:
        with opened(root, parts[:-1], _DIRECTORY) as parent:
            status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UnusableFileError("a part of the path is no directory") from None
    if stat.S_ISDIR(status.st_mode):
        raise UnusableFileError("is a directory")
    return status.st_size


def _missing_directories(root: int, parts: Sequence[str]) -> int:
    for length in range(len(parts), 0, -1):
        with suppress(FileNotFoundError), opened(root, parts[:length], _DIRECTORY):
            return len(parts) - length
    return len(parts)


@contextmanager
def _made_directory(root: int, parts: Sequence[str]) -> Iterator[int]:
    """Yield a descriptor of the directory of that path, which is made with those above it."""
    for length in range(1, len(parts) + 1):
        with _opened(root, parts[: length - 1], _DIRECTORY) as parent, suppress(FileExistsError):
            os.mkdir(parts[length - 1], mode=0o700, dir_fd=parent)
    with _opened(root, parts, _DIRECTORY) as directory:
        yield directory


def _replace(prepared_in: Path, directory: int, name: str, content: bytes) -> None:
    """Write the content beside the caller's directory, and move it to its place."""
    descriptor, prepared = mkstemp(prefix="new-", dir=prepared_in)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(prepared, name, dst_dir_fd=directory)
    except BaseException:
        os.unlink(prepared)
        raise


def _remove_children(directory: Path) -> None:
    """Remove what is in a directory. What is nested moves up first, so that no depth is too much."""
    with os.scandir(directory) as found:
        waiting = deque(Path(each.path) for each in found)
    while waiting:
        path = waiting.popleft()
        path.chmod(0o700)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
                    moved = Path(mkdtemp(dir=directory))
                    os.rename(entry.path, moved)
                    waiting.append(moved)
                else:
                    os.unlink(entry.path)
        path.rmdir()
