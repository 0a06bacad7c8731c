"""Opening of files beneath a directory, so that no link and no race leads out of it.

`openat2` resolves a path as a whole and refuses to leave the directory [openat2(2)]. Where a filter of system calls
refuses it, each part is opened on its own without following links: then links do not work, and nothing else changes.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

MAX_PATH_BYTES: Final = 1024
MAX_PARTS: Final = 32
_OPENAT2: Final = 437
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_RACES: Final = 100
"""Attempts at a path that a rename changes while it is resolved."""
_REFUSED: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG})
_OUTSIDE: Final = frozenset({errno.EXDEV, errno.ELOOP})


class PathError(Exception):
    """The path is not one of a file beneath the directory, for the reason in its text."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def parts_of(path: str) -> tuple[str, ...]:
    """Return the parts of a relative path; none for the directory itself. Raises: PathError."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise PathError("must be valid Unicode") from None
    if not encoded or len(encoded) > MAX_PATH_BYTES:
        raise PathError(f"must have 1 to {MAX_PATH_BYTES} bytes")
    if path.startswith("/") or "\0" in path:
        raise PathError("must be relative, without NUL")
    parts = tuple([part for part in path.split("/") if part not in {"", "."}])
    if ".." in parts:
        raise PathError("must not contain `..`")
    if len(parts) > MAX_PARTS:
        raise PathError(f"must have at most {MAX_PARTS} parts")
    if any(len(part.encode()) > os.pathconf("/", "PC_NAME_MAX") for part in parts):
        raise PathError("has a part that is too long")
    return parts


@contextmanager
def opened(directory: int, parts: Sequence[str], flags: int) -> Iterator[int]:
    """Yield a descriptor of what has that path beneath a directory.

    Raises: OSError if it cannot be opened; PathError if it is outside.
    """
    descriptor = open_beneath(directory, parts, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_beneath(directory: int, parts: Sequence[str], flags: int) -> int:
    """Return a descriptor of what has that path beneath a directory. Raises: as `opened`."""
    flags |= os.O_CLOEXEC
    try:
        return _open_whole(directory, "/".join(parts) or ".", flags)
    except OSError as error:
        if error.errno in _OUTSIDE:
            raise PathError("leads out of the directory") from error
        if error.errno not in _REFUSED:
            raise
    return open_in_parts(directory, parts, flags)


def open_in_parts(directory: int, parts: Sequence[str], flags: int) -> int:
    """Return a descriptor of what has that path, opened part by part without following links. Raises: as `opened`."""
    current = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        for part in parts[:-1]:
            following = _open_part(part, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, current)
            os.close(current)
            current = following
        return _open_part(parts[-1] if parts else ".", flags, current)
    finally:
        os.close(current)


def is_plain_file(descriptor: int) -> bool:
    """Return True for a regular file that has one name only."""
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _open_part(part: str, flags: int, directory: int) -> int:
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(part, directory)):
            raise PathError("has a link, which cannot be followed safely here") from error
        raise


def _is_link(part: str, directory: int) -> bool:
    return stat.S_ISLNK(os.stat(part, dir_fd=directory, follow_symlinks=False).st_mode)


def _open_whole(directory: int, path: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    name = os.fsencode(path)
    for _ in range(_RACES):
        descriptor: int = _libc().syscall(_OPENAT2, directory, name, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(code, os.strerror(code), path)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
