"""The child processes of a process, as Linux lists them."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the ids of the children that have not ended."""
    listed = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for children in listed for child in children if _is_running(int(child))]


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
    except FileNotFoundError:
        return False
