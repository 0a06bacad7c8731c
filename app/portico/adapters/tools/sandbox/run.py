"""One run of a program: in its box, bounded in time and output, and ended with everything that it started.

While the program runs, its processes are counted and its use of memory and of the disk is added up, since the system's
own limits hold for each process, and that on processes counts all those of a user and does not bind root.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio

from portico.adapters.tools.sandbox.box import BoxedCommand, ProcessLimits, passed_bytes
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.output import BoundedOutput
from portico.adapters.tools.sandbox.process_table import (
    MARK,
    SCAN_INTERVAL_S,
    RunRegistry,
    become_subreaper,
    kill_adopted,
    processes_of,
)
from portico.adapters.tools.sandbox.watch import RunWatch
from portico.domain.value import replace, value

GRACE_S: Final = 0.5
"""Time between SIGTERM and SIGKILL, and for reading what is left in the pipe, in seconds."""
MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
"""A program that writes more is ended."""
_READ_BYTES: Final = 64 * 1024
_WAITS: Final = 50
_FIRST_WAIT_S, _LAST_WAIT_S = 0.001, 0.01


@value
class ProcessEnd:
    """End of a run: the exit code, negative for a signal, the output, and the limit that ended it, if one did."""

    exit_code: int
    output: str
    exceeded: str | None = None


@value
class ProgramRun:
    """A command to run; `run` identifies the run and marks its processes. It reads `given` on its standard input.

    `quota` is called while it runs, and says what its files exceed, in words for a model.
    """

    command: Sequence[str]
    run: str
    isolated: IsolatedProgram
    environment: Mapping[str, str]
    limits: ProcessLimits
    given: bytes = b""
    quota: Callable[[], str | None] | None = None


async def run_program(program: ProgramRun) -> ProcessEnd:
    """Run a command to its end.

    A cancellation ends the program and everything that it started: SIGTERM to its group, after 0.5 s SIGKILL to all of
    its processes. Raises: BoxError; OSError if it cannot be started.
    """
    become_subreaper()
    environment = {**program.environment, MARK: program.run}
    with program.isolated.boxed(program.command, environment, program.limits) as boxed:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(reading, False)
            watch = RunWatch(program.limits, program.isolated.disk_watch(boxed, program.quota), boxed.makers)
            try:
                with passed_bytes(program.given) as given:
                    process = _start(boxed, given, writing)
            finally:
                os.close(writing)
            end = await _Run(process, program, reading, watch).finish()
        finally:
            os.close(reading)
        return replace(end, exit_code=boxed.result(end.exit_code, end.output))


def _start(boxed: BoxedCommand, given: int, output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - the operator's command; starting one takes 2 ms
        boxed.words,
        stdin=given,
        stdout=output,
        stderr=output,
        cwd=boxed.directory,
        env=dict(boxed.environment),
        pass_fds=boxed.descriptors,
        start_new_session=True,
    )


class _Run:
    """A program that was started, and the end of its pipe that is read."""

    def __init__(self, process: subprocess.Popen[bytes], program: ProgramRun, pipe: int, watch: RunWatch) -> None:
        self._process = process
        self._run = program.run
        self._pipe = pipe
        self._runs = program.isolated.sandbox.runs
        self._output = BoundedOutput(program.limits.output)
        self._watch = watch
        self._exceeded: str | None = None
        self._runs.add(process.pid, program.run)

    async def finish(self) -> ProcessEnd:
        """Return the end of the program, after which none of its processes is left."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_watch)
                await self._read_to_end()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._end_all()
        return ProcessEnd(self._process.returncode, self._output.text(), self._exceeded)

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

    async def _keep_watch(self) -> None:
        """End the run when it uses more than it may."""
        while True:
            await anyio.sleep(SCAN_INTERVAL_S)
            processes = self._runs.processes(self._process.pid, anyio.current_time())
            if (exceeded := self._watch.excess(processes)) is not None:
                self._kill_because(exceeded)

    def _kill_because(self, exceeded: str) -> None:
        self._exceeded = self._exceeded or exceeded
        self._kill_processes()

    async def _wait(self) -> None:
        """Wait until the program itself has ended."""
        descriptor = os.pidfd_open(self._process.pid)
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        self._process.wait()

    async def _end_all(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None:
                self._signal_group(number)
                with anyio.move_on_after(GRACE_S):
                    await self._wait()
        await end_leftovers(self._runs, self._run, self._process.pid)

    def _signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the program's group, which must not have ended: its number may be another's then."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _kill_processes(self) -> None:
        """Kill the processes of the run; the program's end is waited for elsewhere."""
        for process in processes_of(self._run, self._process.pid):
            if process.pid == self._process.pid:
                self._signal_group(signal.SIGKILL)
            else:
                kill_adopted(process)


def short_waits() -> Iterator[float]:
    """Yield how many seconds to wait for the end of processes that were killed: little at first, then 10 ms each."""
    for number in range(_WAITS):
        yield min(_FIRST_WAIT_S * 2**number, _LAST_WAIT_S)


async def end_leftovers(runs: RunRegistry, run: str, program: int) -> None:
    """Kill what is left of a run whose program has ended, and the orphans that now no run can claim."""
    for wait_s in short_waits():
        left = [process for process in processes_of(run, program) if process.pid != program]
        for process in left:
            kill_adopted(process)
        if not left:
            break
        await anyio.sleep(wait_s)
    leaves_orphans = runs.remove(program)
    for wait_s in short_waits():
        if not leaves_orphans:
            break
        await anyio.sleep(wait_s)
        leaves_orphans = runs.kill_orphans()
