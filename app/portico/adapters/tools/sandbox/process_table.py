"""Process table of the system: the processes that a program started, and the end of all of them.

The service adopts processes whose parents have ended (it is their subreaper). So a process of a run is the program, one
of its descendants, or an adopted process that is in its session or carries the run's mark in its environment, and a
process that left its group and its session is still found. An adopted process that also cleared its environment belongs
to no run that could be named: `RunRegistry` ends it with the last run that was there when it was found.
"""

import ctypes
import os
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "PORTICO_TOOL_CALL"
"""Variable of a program's environment that identifies its run."""
SCAN_INTERVAL_S: Final = 0.02
"""A fork bomb makes some hundred processes in this time, which can still be ended; seconds later it cannot."""
_PROC: Final = Path("/proc")
_PR_SET_CHILD_SUBREAPER: Final = 36
_START_TIME: Final = 19
"""Field of a process's `stat`, counted behind its state."""


class Process(NamedTuple):
    """One row of the process table. `started` is in clock ticks; with the pid it identifies a process for good."""

    pid: int
    session: int
    has_ended: bool
    started: int


class RunRegistry:
    """Runs of programs that are there now, and the adopted processes that no run claims.

    All runs share one look at the children of the service each 20 ms, so that many runs cost no more than their sum.
    """

    def __init__(self) -> None:
        self._runs: dict[int, str] = {}
        self._claimed: Mapping[int, Sequence[Process]] = {}
        self._scanned_at = -inf
        self._orphans: dict[tuple[int, int], frozenset[int]] = {}
        self._names = count(1)

    def new_name(self) -> str:
        """Return a name for a run that has none of its own."""
        return f"server-{next(self._names)}"

    def add(self, program: int, run: str) -> None:
        """Add a run; from now on orphans may be its."""
        self._runs[program] = run

    def processes(self, program: int, now: float) -> list[Process]:
        """Return the processes of a run, the program first; `now` is in seconds of a clock that never goes back."""
        if now - self._scanned_at >= SCAN_INTERVAL_S:
            self._scanned_at = now
            self.observe()
        return _with_descendants(self._claimed.get(program, ()), program)

    def observe(self) -> None:
        """Look at the children once: note whose they are, and the orphans that no run claims with the runs by now."""
        claimed = defaultdict[int, list[Process]](list)
        programs, own_session = {run: program for program, run in self._runs.items()}, os.getsid(0)
        for process in _children(os.getpid()):
            program = self._program_of(process, programs, own_session)
            if program is not None:
                claimed[program].append(process)
            elif process.session != own_session and not _is_own(process.pid):
                self._orphans.setdefault((process.pid, process.started), frozenset(self._runs))
        self._claimed = claimed

    def _program_of(self, process: Process, programs: Mapping[str, int], own_session: int) -> int | None:
        """Return the program of the run that a child of the service belongs to; None if no run claims it."""
        for program in (process.pid, process.session):
            if program in self._runs:
                return program
        return None if process.session == own_session else programs.get(_mark_of(process.pid))

    def remove(self, program: int) -> bool:
        """Remove a run that has ended, and kill the orphans all of whose runs have. Return True if there were any."""
        self.observe()
        self._runs.pop(program, None)
        return self.kill_orphans()

    def kill_orphans(self) -> bool:
        """Kill the orphans none of whose runs is there any more. Return True if there were any."""
        ended = {key for key, runs in self._orphans.items() if self._runs.keys().isdisjoint(runs)}
        alive = {(each.pid, each.started): each for each in _children(os.getpid())}
        for key in ended & alive.keys():
            for process in (*_descendants(key[0]), alive[key]):
                kill_adopted(process)
        for key in ended - alive.keys():
            del self._orphans[key]
        return bool(ended & alive.keys())


def marks_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that identifies the run."""
    return {name: value for name, value in environment.items() if name == MARK}


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
    return _with_descendants([each for each in _children(os.getpid()) if _is_of_run(each, run, program)], program)


def _with_descendants(children: Sequence[Process], program: int) -> list[Process]:
    found = {each.pid: each for each in children}
    for pid in list(found):
        found |= {each.pid: each for each in _descendants(pid)}
    return sorted(found.values(), key=lambda each: each.pid != program)


def task_count_of_user() -> int:
    """Return the number of threads that run under the user of this process."""
    own, tasks = os.geteuid(), 0
    for name in os.listdir(_PROC):
        with suppress(OSError, ValueError):
            if int(name) and (_PROC / name).stat().st_uid == own:
                tasks += len(os.listdir(_PROC / name / "task"))
    return tasks


def kill_adopted(process: Process) -> None:
    """End an adopted process or a descendant of the program at once; remove it from the table if it was adopted."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def _is_own(pid: int) -> bool:
    """Return True for a child that has the service's environment, as what a Python tool starts, or runs its module."""
    given = _words(pid, "environ")
    return _own_environment() <= given or any(word.startswith(b"portico.") for word in _words(pid, "cmdline"))


@cache
def _own_environment() -> frozenset[bytes]:
    return _words(os.getpid(), "environ")


def _is_of_run(process: Process, run: str, program: int) -> bool:
    return program in (process.pid, process.session) or _has_mark(process.pid, run)


def _descendants(pid: int) -> list[Process]:
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        for each in _children(waiting.pop()):
            found.append(each)
            waiting.append(each.pid)
    return found


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
        fields = row[row.rindex(b")") + 2 :].split()
        yield Process(pid, int(fields[3]), fields[0] in b"ZX", int(fields[_START_TIME]))


def _mark_of(pid: int) -> str:
    """Return the name of the run that a process carries in its environment; an empty text without one."""
    begin = f"{MARK}=".encode()
    found = [word for word in _words(pid, "environ") if word.startswith(begin)]
    return found[0].removeprefix(begin).decode(errors="replace") if found else ""


def _has_mark(pid: int, run: str) -> bool:
    return f"{MARK}={run}".encode() in _words(pid, "environ")


def _words(pid: int, name: str) -> frozenset[bytes]:
    """Return the variables or the words of the command of a process; none if it has ended."""
    with suppress(OSError):
        return frozenset((_PROC / str(pid) / name).read_bytes().rstrip(b"\0").split(b"\0"))
    return frozenset()
