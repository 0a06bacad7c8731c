"""Levels of isolation: each is tried once, and is in force completely or not at all."""

import platform
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from ctypes import CDLL
from types import MappingProxyType
from typing import Final, assert_never

from portico.adapters.tools.sandbox.box import (
    SEARCH_PATH,
    Box,
    BoxedCommand,
    BoxError,
    ProcessLimits,
    find_program,
    new_home,
)
from portico.adapters.tools.sandbox.bubblewrap import in_bubblewrap
from portico.adapters.tools.sandbox.landlock import MINIMUM_ABI, in_landlock
from portico.adapters.tools.sandbox.limits import in_limits, missing_programs
from portico.adapters.tools.sandbox.process_table import RunRegistry
from portico.adapters.tools.sandbox.seccomp import ARCHITECTURES
from portico.adapters.tools.sandbox.watch import DiskWatch
from portico.domain.tools import IsolationLevel, LevelState, NetworkAccess
from portico.domain.value import value

MINIMUM_BUBBLEWRAP: Final = (0, 8)
TRIAL_SECONDS: Final = 2.0
"""Time that a trial run may take."""
_CONTAINMENT: Final = MappingProxyType(
    {
        IsolationLevel.BUBBLEWRAP: "Namespaces of its own, a filter of system calls, and limits: it sees the files that"
        " its configuration names, and its network only if that is open.",
        IsolationLevel.LANDLOCK: "The kernel's rules about files, connections and signals, a filter of system calls,"
        " and limits: it opens the files that its configuration names, and reaches the network only if that is open.",
        IsolationLevel.LIMITS: "An own session, a clean environment, and limits on time, memory, files, output and"
        " processes: they stop accidents, not attacks.",
    }
)
_LANDLOCK_CREATE_RULESET: Final = 444
_ABI_REQUEST: Final = 1
_TRIAL: Final = """
import os, signal, socket, sys
def attempt(name, act):
    try:
        act()
    except OSError:
        return
    print(name)
attempt("a file outside of the box could be read", lambda: open(sys.argv[1]).close())
attempt("a listener on loopback could be reached", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2])), 1))
attempt("a process outside of the box could be ended", lambda: os.kill(int(sys.argv[3]), signal.SIGKILL))
print("tried")
"""
_WAITING: Final = "import time; time.sleep(10)"


class Sandbox:
    """Levels that start here, and the boxes that they make. `runs` are those that are there now."""

    def __init__(self, bubblewrap: str, states: Mapping[IsolationLevel, LevelState]) -> None:
        self.states = states
        self._counts: Counter[IsolationLevel] = Counter()
        self.runs = RunRegistry()
        self._bubblewrap = _path_of(bubblewrap) or bubblewrap

    @property
    def strongest(self) -> IsolationLevel:
        """Return the strongest level that starts; `limits` needs nothing."""
        for level in (IsolationLevel.BUBBLEWRAP, IsolationLevel.LANDLOCK):
            if not self.states[level].reason:
                return level
        return IsolationLevel.LIMITS

    def run_count(self, level: IsolationLevel) -> int:
        """Return how many programs were started at the level."""
        return self._counts[level]

    def boxed(
        self,
        level: IsolationLevel,
        box: Box,
        command: Sequence[str],
        environment: Mapping[str, str],
        limits: ProcessLimits | None,
    ) -> AbstractContextManager[BoxedCommand]:
        """Return the command that makes the box of that level and runs the command in it."""
        self._counts[level] += 1
        match level:
            case IsolationLevel.BUBBLEWRAP:
                return in_bubblewrap(self._bubblewrap, box, command, environment, limits)
            case IsolationLevel.LANDLOCK:
                return in_landlock(box, command, environment, limits)
            case IsolationLevel.LIMITS:
                return in_limits(box, command, environment, limits)
            case _:
                assert_never(level)


@value
class IsolatedProgram:
    """A program's box and the level at which it runs: a `level` without fallback, or the strongest if it is None.

    With `is_required` it does not run where only its limits would hold. A run may write `written_bytes` to disk.
    """

    sandbox: Sandbox
    box: Box
    written_bytes: int
    level: IsolationLevel | None = None
    is_required: bool = False

    @property
    def level_in_force(self) -> IsolationLevel:
        """Return the level at which the program runs."""
        return self.sandbox.strongest if self.level is None else self.level

    @property
    def network(self) -> NetworkAccess:
        """Return which hosts the program reaches."""
        return NetworkAccess.OPEN if self.box.network else NetworkAccess.NONE

    @property
    def is_enforced(self) -> bool:
        """Return True if the kernel enforces the box."""
        return self.level_in_force is not IsolationLevel.LIMITS

    def refusal(self) -> str:
        """Return why the program cannot run here; an empty text if it can."""
        states, level = self.sandbox.states, self.level_in_force
        if self.is_enforced:
            reason = states[level].reason
            return f"{level} does not start here: {reason}" if reason else ""
        if self.is_required:
            reasons = "; ".join(f"{name}: {state.reason}" for name, state in states.items())
            return f"it requires isolation, and neither bubblewrap nor Landlock starts here: {reasons}"
        missing = missing_programs()
        return f"programs cannot be contained here: {', '.join(missing)} is missing" if missing else ""

    def containment(self) -> str:
        """Return a sentence about how a run is contained."""
        return _CONTAINMENT[self.level_in_force]

    def boxed(
        self, command: Sequence[str], environment: Mapping[str, str], limits: ProcessLimits | None
    ) -> AbstractContextManager[BoxedCommand]:
        """Return the command that makes the box and runs the command in it."""
        return self.sandbox.boxed(self.level_in_force, self.box, command, environment, limits)

    def disk_watch(self, boxed: BoxedCommand, quota: Callable[[], str | None] | None = None) -> DiskWatch:
        """Return the watch over what the run writes to disk, and over the `quota` of its files; it begins now."""
        return DiskWatch(self.written_bytes, self.box.writable, boxed.home, boxed.began, quota)


def try_levels(bubblewrap: str) -> Mapping[IsolationLevel, LevelState]:
    """Return the state of the levels that need something of the system, each tried by a run that must reach nothing."""
    return MappingProxyType(
        {IsolationLevel.BUBBLEWRAP: _try_bubblewrap(bubblewrap), IsolationLevel.LANDLOCK: _try_landlock()}
    )


def _try_bubblewrap(name: str) -> LevelState:
    path = _path_of(name)
    if path is None:
        return LevelState(reason=f"{name} is not installed")
    if (reason := _unsupported()) or (reason := ", ".join(missing_programs())):
        return LevelState(reason=reason)
    version = _output_of([path, "--version"]).removeprefix("bubblewrap ").strip()
    if _numbers(version) < MINIMUM_BUBBLEWRAP:
        return LevelState(version, "version 0.8 or later is needed")
    return LevelState(version, _trial(lambda command: in_bubblewrap(path, Box(), command, {}, None)))


def _path_of(bubblewrap: str) -> str | None:
    """Return the absolute path of bubblewrap, by its name or absolute path; None if it is not installed."""
    return find_program(bubblewrap) or find_program(bubblewrap, SEARCH_PATH)


def _try_landlock() -> LevelState:
    abi = CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, 0, _ABI_REQUEST)
    if abi < 0:
        return LevelState(reason="the kernel has no Landlock, or a filter of system calls refuses it")
    version = f"ABI {abi}"
    if abi < MINIMUM_ABI:
        return LevelState(version, f"ABI {MINIMUM_ABI} is needed, which Linux 6.12 has")
    return LevelState(version, _unsupported() or _trial(lambda command: in_landlock(Box(), command, {}, None)))


def _unsupported() -> str:
    machine = platform.machine()
    return "" if machine in ARCHITECTURES else f"there is no table of system calls for {machine}"


def _trial(make: Callable[[Sequence[str]], AbstractContextManager[BoxedCommand]]) -> str:
    """Run a program that tries to leave the box; return how it did, or why it did not run, and else an empty text."""
    with ExitStack() as resources:
        outside = resources.enter_context(new_home()) / "outside"
        outside.touch()
        listener = resources.enter_context(socket.create_server(("127.0.0.1", 0)))
        bystander = resources.enter_context(_bystander())
        targets = (str(outside), str(listener.getsockname()[1]), str(bystander))
        boxed = resources.enter_context(make([sys.executable, "-I", "-S", "-c", _TRIAL, *targets]))
        try:
            ended = subprocess.run(  # noqa: S603 - our own command
                boxed.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=boxed.directory,
                env=dict(boxed.environment),
                pass_fds=boxed.descriptors,
                timeout=TRIAL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        output = ended.stdout.decode(errors="replace").strip()
        try:
            boxed.result(ended.returncode, output)
        except BoxError as failed:
            return str(failed)
        return "" if output == "tried" else output.partition("\n")[0] or "the trial run failed"


@contextmanager
def _bystander() -> Iterator[int]:
    """Yield the id of a process outside of the box that a program could end."""
    waiting = subprocess.Popen([sys.executable, "-I", "-S", "-c", _WAITING])  # noqa: S603 - our own command
    try:
        yield waiting.pid
    finally:
        waiting.kill()
        waiting.wait()


def _output_of(command: Sequence[str]) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(  # noqa: S603 - the operator's program
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False
        ).stdout
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
