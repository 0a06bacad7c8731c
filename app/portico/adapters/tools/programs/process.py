"""One run of a program: contained, bounded in time and output, and ended with everything that it started.

The program runs in a session of its own, without input, in a clean environment. `prlimit` sets its limits and
`setpriv` lets it end with the service; both set them before the program begins, which no call from outside could do
without a gap. While it runs, the processes of the run are counted, since the system's own limit on processes counts all
those of a user and does not bind root.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from shutil import which
from typing import Final

import anyio

from portico.adapters.tools.programs.output import BoundedOutput
from portico.adapters.tools.programs.process_table import (
    MARK,
    Process,
    become_subreaper,
    kill_adopted,
    processes_of,
    task_count_of_user,
)
from portico.domain.value import value

SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GRACE_S: Final = 0.5
"""Time between SIGTERM and SIGKILL, and for reading what is left in the pipe, in seconds."""
MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
"""A program that writes more is ended."""
_COUNT_INTERVAL_S: Final = 0.02
"""A fork bomb makes some hundred processes in this time, which can still be ended; seconds later it cannot."""
_READ_BYTES: Final = 64 * 1024
_ROUNDS: Final = 50
_ROUND_S: Final = 0.01


@value
class ProcessLimits:
    """Limits of one run. CPU time is in seconds, the others are in bytes or counts."""

    output: int
    memory: int
    processes: int
    open_files: int
    file_bytes: int
    cpu_seconds: float


@value
class ProcessEnd:
    """End of a run: the exit code, negative for a signal, the output, and the limit that ended it, if one did."""

    exit_code: int
    output: str
    exceeded: str | None = None


def missing_programs() -> list[str]:
    """Return those programs that contain others and that are not installed."""
    return [name for name in ("prlimit", "setpriv") if which(name, path=SEARCH_PATH) is None]


def containment() -> str:
    """Return a sentence about how a run is contained."""
    limits = "An own session, a clean environment, and limits on time, memory, files, output and processes."
    return f"{limits} That on processes is enforced by counting, as the service runs as root." if _is_root() else limits


async def run_process(
    command: Sequence[str], *, run: str, directory: Path, environment: Mapping[str, str], limits: ProcessLimits
) -> ProcessEnd:
    """Run a command to its end; `run` identifies the run and marks its processes.

    A cancellation ends the program and everything that it started: SIGTERM to its group, after 0.5 s SIGKILL to all of
    its processes. Raises: OSError if it cannot be started.
    """
    become_subreaper()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        os.set_blocking(reading, False)
        try:
            program = subprocess.Popen(  # noqa: S603, ASYNC220 - the operator's command; starting one takes 2 ms
                [*_containment(limits), *command],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=directory,
                env={**environment, MARK: run},
                start_new_session=True,
            )
        finally:
            os.close(writing)
        return await _Run(program, run, reading, limits).finish()
    finally:
        os.close(reading)


class _Run:
    """A program that was started, and the end of its pipe that is read."""

    def __init__(self, program: subprocess.Popen[bytes], run: str, pipe: int, limits: ProcessLimits) -> None:
        self._program = program
        self._run = run
        self._pipe = pipe
        self._limits = limits
        self._output = BoundedOutput(limits.output)
        self._exceeded: str | None = None

    async def finish(self) -> ProcessEnd:
        """Return the end of the program, after which none of its processes is left."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_count)
                await self._read_to_end()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end_all()
        return ProcessEnd(self._program.returncode, self._output.text(), self._exceeded)

    async def _read_to_end(self) -> None:
        """Read until the program has ended; what it started may hold the pipe for a moment longer."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read)
            await self._wait()
            tasks.cancel_scope.deadline = anyio.current_time() + GRACE_S

    async def _read(self) -> None:
        while True:
            await anyio.wait_readable(self._pipe)
            with suppress(BlockingIOError):
                data = os.read(self._pipe, _READ_BYTES)
                if not data:
                    return
                self._output.add(data)
                if self._output.size > MAX_OUTPUT_BYTES:
                    self._kill_because(f"it wrote more than {MAX_OUTPUT_BYTES} bytes")
                    return

    async def _watch_count(self) -> None:
        """End the run when it has more processes than it may."""
        while True:
            await anyio.sleep(_COUNT_INTERVAL_S)
            if len(self._processes()) > self._limits.processes:
                self._kill_because(f"it started more than {self._limits.processes} processes")

    def _kill_because(self, exceeded: str) -> None:
        self._exceeded = self._exceeded or exceeded
        self._kill_processes()

    async def _wait(self) -> None:
        """Wait until the program itself has ended."""
        descriptor = os.pidfd_open(self._program.pid)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        self._program.wait()

    async def _end_all(self) -> None:
        if self._program.returncode is None:
            self._signal_group(signal.SIGTERM)
            with anyio.move_on_after(GRACE_S):
                await self._wait()
        for _ in range(_ROUNDS):
            if not self._kill_processes():
                break
            await anyio.sleep(_ROUND_S)

    def _signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the program's group, which must not have ended: its number may be another's then."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._program.pid, number)

    def _kill_processes(self) -> bool:
        """Kill the processes of the run. Return True if there were any."""
        found = processes_of(self._run, self._program.pid)
        if any(process.session == self._program.pid for process in found):
            self._signal_group(signal.SIGKILL)
        for process in found:
            if process.pid == self._program.pid:
                self._program.kill()
                self._program.poll()
            else:
                kill_adopted(process)
        return bool(found)

    def _processes(self) -> list[Process]:
        return [each for each in processes_of(self._run, self._program.pid) if not each.has_ended]


def _containment(limits: ProcessLimits) -> list[str]:
    processes = limits.processes if _is_root() else limits.processes + task_count_of_user()
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("prlimit", "--core=0", f"--cpu={ceil(limits.cpu_seconds)}", f"--as={limits.memory}"),
        *(f"--nproc={processes}", f"--nofile={limits.open_files}", f"--fsize={limits.file_bytes}", "--"),
    ]


def _is_root() -> bool:
    return os.geteuid() == 0
