"""The child processes of a process, as Linux lists them."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the ids of the children that have not ended; none of a process that is gone."""
    children = []
    for listed in glob(f"/proc/{pid}/task/*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            children += [int(child) for child in Path(listed).read_text().split()]
    return list(filter(_is_running, children))


def programs_below(pid: int, name: str) -> list[int]:
    """Return the descendants of a process whose program ends in that name, and that have not ended."""
    found: list[int] = []
    for child in children_of(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{child}/cmdline").read_text().partition("\0")[0].endswith(name):
                found.append(child)
        found += programs_below(child, name)
    return found


@contextmanager
def ending(pid: int, seconds: float = 20.0) -> Iterator[None]:
    """Wait on exit until the process, which runs now, has ended. Raises: AssertionError if it runs on for so long."""
    descriptor = os.pidfd_open(pid)
    try:
        yield
        assert select.select([descriptor], [], [], seconds)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)


def _is_running(pid: int) -> bool:
    """Return True if the process has neither ended nor is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
