"""Process table of the system: the processes that a program started, and the end of all of them.

The service adopts processes whose parents have ended (it is their subreaper). So a process of a run is the program, one
of its descendants, or an adopted process that is in its session or carries the run's mark in its environment, and a
process that left its group and its session is still found.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "PORTICO_TOOL_CALL"
"""Variable of a program's environment that identifies its run."""
_PROC: Final = Path("/proc")
_PR_SET_CHILD_SUBREAPER: Final = 36


class Process(NamedTuple):
    """One row of the process table."""

    pid: int
    session: int
    has_ended: bool


def is_readable() -> bool:
    """Return True if the system has a process table that lists the children of a process."""
    return (_PROC / "thread-self" / "children").exists()


@cache
def become_subreaper() -> None:
    """Let orphaned descendants become children of this process. Raises: OSError if the system refuses."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the service cannot adopt orphaned processes")


def processes_of(run: str, program: int) -> list[Process]:
    """Return the processes of a run, the program first, also those that ended and were not waited for."""
    found = {each.pid: each for each in _children(os.getpid()) if _is_of_run(each, run, program)}
    waiting = list(found)
    while waiting:
        for each in _children(waiting.pop()):
            if each.pid not in found:
                found[each.pid] = each
                waiting.append(each.pid)
    return sorted(found.values(), key=lambda each: each.pid != program)


def task_count_of_user() -> int:
    """Return the number of threads that run under the user of this process."""
    own, count = os.geteuid(), 0
    for name in os.listdir(_PROC):
        with suppress(OSError, ValueError):
            if int(name) and (_PROC / name).stat().st_uid == own:
                count += len(os.listdir(_PROC / name / "task"))
    return count


def kill_adopted(process: Process) -> None:
    """End an adopted process or a descendant of the program at once; remove it from the table if it was adopted."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def _is_of_run(process: Process, run: str, program: int) -> bool:
    return program in (process.pid, process.session) or _has_mark(process.pid, run)


def _children(pid: int) -> Iterator[Process]:
    """Yield the children of all threads of a process; none if it has ended."""
    tasks = _PROC / str(pid) / "task"
    with suppress(OSError):
        for thread in os.listdir(tasks):
            with suppress(OSError):
                for child in (tasks / thread / "children").read_text().split():
                    yield from _process(int(child))


def _process(pid: int) -> Iterator[Process]:
    with suppress(OSError):
        row = (_PROC / str(pid) / "stat").read_bytes()
        state, _, _, session = row[row.rindex(b")") + 2 :].split(maxsplit=4)[:4]
        yield Process(pid, int(session), state in b"ZX")


def _has_mark(pid: int, run: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={run}".encode() in environment.split(b"\0")
