"""Watch over a run: its processes, their memory, and what they write to disk, which no limit of the system bounds.

The kernel's limits hold for each process; these hold for the run. Memory is that of all processes together, shared
pages divided among those that share them. Bytes written are counted by the kernel, also those to files that have no
name any more and through mapped memory, and those of processes that have ended. A run that hides its counters is ended,
too.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Final

from portico.adapters.tools.sandbox.box import HOME_BYTES, ProcessLimits
from portico.adapters.tools.sandbox.process_table import Process

MAX_ENTRIES: Final = 10_000
"""Files and directories that a run may make."""
FREE_BYTES: Final = 1 << 30
FREE_SHARE: Final = 0.05
"""A run that writes must leave this much of a file system free: the smaller one of the two."""
_BLOCK: Final = 512
"""Bytes of the blocks in which the size of a file is counted [stat(2)]."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_DISK_INTERVAL: Final = 5
"""Rounds between two looks at the disk: each is 20 ms."""
_HIDDEN_ROUNDS: Final = 5
"""Rounds in which counters may be out of sight: a program that makes the box is, while it changes its rights."""
_COUNTS_BYTES: Final = Path("/proc/self/io").exists()


class DiskWatch:
    """The watch over what a run writes to disk: at most `written` bytes.

    `writable` are the directories that it may change, and `home` is another one, unless that is in memory only and has
    its bound. `began` is when it began, in seconds of the clock by which file systems date their entries. `quota` says
    what its files exceed.
    """

    def __init__(
        self,
        written: int,
        writable: Sequence[Path],
        home: Path | None,
        began: float,
        quota: Callable[[], str | None] | None = None,
    ) -> None:
        self._written = written
        self._writable = writable if home is None else (*writable, home)
        self._home = home
        self._began = began
        self._quota = quota
        self._inodes = {path: _used_inodes(path) for path in self._writable}
        self._bytes = {path: _used_bytes(path) for path in self._writable}

    def excess(self, pids: Sequence[int]) -> str | None:
        """Return what these processes exceed, in words for a model.

        Raises: PermissionError if one hides its counters.
        """
        written = sum(map(_written_bytes, pids)) if _COUNTS_BYTES else 0
        if written > self._written:
            return f"it wrote more than {self._written} bytes to disk"
        grown = {path: _used_bytes(path) - before for path, before in self._bytes.items()}
        if any((written or more > HOME_BYTES) and not _has_space(path) for path, more in grown.items()):
            return "it filled the disk"
        if self._home is not None and _size(self._home) > HOME_BYTES:
            return f"its home has more than {HOME_BYTES} bytes"
        if self._made_too_many_entries():
            return f"it made more than {MAX_ENTRIES} files and directories"
        return None if self._quota is None else self._quota()

    def _made_too_many_entries(self) -> bool:
        """Return True if there are too many new entries; they are counted where the file system has as many more."""
        grown = [path for path, before in self._inodes.items() if _used_inodes(path) - before > MAX_ENTRIES]
        entries = chain.from_iterable(_entries_since(path, self._began) for path in grown)
        return next(islice(entries, MAX_ENTRIES, None), None) is not None


class RunWatch:
    """The watch over one run, which is asked every 20 ms; `makers` is the number of processes that make the box."""

    def __init__(self, limits: ProcessLimits, disk: DiskWatch, makers: int) -> None:
        self._limits = limits
        self._disk = disk
        self._makers = makers
        self._round = 0
        self._hidden = 0

    def excess(self, processes: Sequence[Process]) -> str | None:
        """Return what these processes of the run exceed, in words for a model; None if they keep the limits."""
        alive = [each.pid for each in processes if not each.has_ended]
        if len(alive) - self._makers > self._limits.processes:
            return f"it started more than {self._limits.processes} processes"
        try:
            if self._uses_too_much_memory(alive):
                return f"its processes used more than {self._limits.memory} bytes of memory"
            self._round += 1
            if self._round % _DISK_INTERVAL == 0:
                return self._disk.excess([each.pid for each in processes])
        except PermissionError:
            self._hidden += 1
            return "it hid what it uses" if self._hidden > _HIDDEN_ROUNDS else None
        self._hidden = 0
        return None

    def _uses_too_much_memory(self, pids: Sequence[int]) -> bool:
        """Return True if the memory is too much: counted coarsely, and exactly where that alone would be too much."""
        if sum(map(_resident_bytes, pids)) <= self._limits.memory:
            return False
        return sum(map(_proportional_bytes, pids)) > self._limits.memory


def _resident_bytes(pid: int) -> int:
    fields = _read(pid, "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _proportional_bytes(pid: int) -> int:
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _written_bytes(pid: int) -> int:
    for line in _read(pid, "io").splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def _read(pid: int, name: str) -> str:
    """Return the text of a process; an empty one if it has ended. Raises: PermissionError if it hides it."""
    try:
        return Path("/proc", str(pid), name).read_text()
    except PermissionError:
        raise
    except OSError:
        return ""


def _file_system(path: Path) -> os.statvfs_result | None:
    """Return the state of the file system; None once the directory, such as a run's home, is gone."""
    try:
        return os.statvfs(path)
    except FileNotFoundError:
        return None


def _used_inodes(path: Path) -> int:
    """Return how many entries the file system has; 0 once the directory is gone."""
    system = _file_system(path)
    return 0 if system is None else system.f_files - system.f_ffree


def _used_bytes(path: Path) -> int:
    """Return how many bytes of the file system are used; 0 once the directory is gone."""
    system = _file_system(path)
    return 0 if system is None else (system.f_blocks - system.f_bfree) * system.f_frsize


def _size(home: Path) -> int:
    """Return how many bytes the files in a directory take, without those that vanish meanwhile."""
    size = 0
    for directory, _, names in os.walk(home):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.lstat(f"{directory}/{name}").st_blocks * _BLOCK
    return size


def _has_space(path: Path) -> bool:
    system = _file_system(path)
    if system is None:
        return True
    free, size = system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize
    return free >= min(FREE_BYTES, FREE_SHARE * size)


def _entries_since(path: Path, began: float) -> Iterator[str]:
    for directory, _, _ in os.walk(path):
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_ctime >= began:
                    yield entry.path
