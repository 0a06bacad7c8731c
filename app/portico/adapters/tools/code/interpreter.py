"""Interpreter of code: Monty, in a new process for each run, in the strongest box that starts here.

Monty has no system calls: what it cannot answer itself it asks of the service, which answers calls of the program's
functions and nothing else. The box is the second wall, for a fault of the interpreter.

Each run has a thread, which answers all questions of a turn. The event loop waits once for a turn, however many calls
the code makes in it; with the library's own asynchronous sessions it would wait for each question.
"""

import os
import signal
import sysconfig
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from portico.adapters.tools.code.launcher import launcher
from portico.adapters.tools.code.values import as_json
from portico.adapters.tools.sandbox.box import BoxError, ProcessLimits
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.process_table import MARK, become_subreaper, processes_of
from portico.adapters.tools.sandbox.run import end_leftovers, short_waits
from portico.ports.code import CodeEnd, CodeNotStarted, CodeProgram, CodeTurn, FunctionCall, FunctionResult

if TYPE_CHECKING:
    from pydantic_monty import (
        ExternalSettledResult,
        FunctionSnapshot,
        FutureSnapshot,
        MontyError,
        MontySession,
        NameLookupSnapshot,
        SyncSnapshot,
    )

T = TypeVar("T")

MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Bytes that the values of code may take."""
TURN_SECONDS: Final = 5.0
"""CPU time of code between two answers."""
RECURSION: Final = 200
OUTPUT_BYTES: Final = 1024 * 1024
"""Bytes that code may print."""
MAX_QUESTIONS: Final = 20_000
"""Answers that one run may have: those to its calls, its rounds, and names that it looks up."""
_LIMITS: Final = ProcessLimits(
    output=0, memory=1024 * 1024 * 1024, processes=16, open_files=64, file_bytes=0, cpu_seconds=600
)


def installed_interpreter() -> str | None:
    """Return the version of the interpreter that is installed; None if none is."""
    try:
        return f"monty {version('pydantic-monty')}"
    except PackageNotFoundError:
        return None


class MontyInterpreter:
    """Interpreter of code in an isolated process; at most `workers` runs are there at the same time."""

    def __init__(self, isolated: IsolatedProgram, workers: int) -> None:
        self._isolated = isolated
        self._workers = workers

    @cached_property
    def version(self) -> str:
        return installed_interpreter() or ""

    @cached_property
    def _free(self) -> anyio.Semaphore:
        return anyio.Semaphore(self._workers)

    @cached_property
    def _starting(self) -> anyio.Lock:
        """One process is started at a time: a script that another one has just written is not run meanwhile."""
        return anyio.Lock()

    @asynccontextmanager
    async def open(self, program: CodeProgram) -> AsyncIterator["MontyRun"]:
        """Open a run, once a worker is free; its process ends with the context, however that is left."""
        async with self._free:
            run = MontyRun(program, self._isolated, self._starting)
            try:
                yield run
            finally:
                with anyio.CancelScope(shield=True):
                    await run.close()


class MontyRun:
    """One run of a program, in a process that begins with its first turn."""

    def __init__(self, program: CodeProgram, isolated: IsolatedProgram, starting: anyio.Lock) -> None:
        from pydantic_monty import CollectString  # noqa: PLC0415 - loaded with the first run

        self._program = program
        self._isolated = isolated
        self._starting = starting
        self._output = CollectString(max_bytes=OUTPUT_BYTES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="run-code")
        self._resources = ExitStack()
        self._opened = ExitStack()
        self._pid: int | None = None
        self._waiting: FutureSnapshot | None = None
        self._calls: dict[int, FunctionCall] = {}

    async def start(self) -> CodeTurn:
        """Start the process and run the code until it can only wait, or ends. Raises: CodeNotStarted."""
        from pydantic_monty import MontyError  # noqa: PLC0415 - loaded with the first run

        try:
            async with self._starting:
                session = await self._on_thread(self._started)
        except (MontyError, OSError, BoxError) as cause:
            raise CodeNotStarted(str(cause).partition("\n")[0] or "no reason is known") from cause
        code, output = self._program.code, self._output
        return await self._on_thread(lambda: self._turn(lambda: session.feed_start(code, print_callback=output)))

    async def resume(self, results: Sequence[FunctionResult]) -> CodeTurn:
        """Go on with the results of all calls that it waits for, in their order."""
        waiting = self._waiting
        assert waiting is not None  # noqa: S101 - it is asked after a turn that led to calls
        calls = zip(sorted(waiting.pending_call_ids), results, strict=True)
        settled = {number: _settled(result) for number, result in calls}
        return await self._on_thread(lambda: self._turn(lambda: waiting.resume(settled)))

    async def close(self) -> None:
        """End the process with all that belongs to it; a turn that still runs ends with it."""
        try:
            await self._end_process()
            await self._on_thread(self._close_session)
            if self._pid is not None:
                await end_leftovers(self._isolated.sandbox.runs, self._program.seed, self._pid)
        finally:
            self._thread.shutdown(wait=False)
            self._resources.close()

    async def _on_thread(self, act: Callable[[], T]) -> T:
        return await get_running_loop().run_in_executor(self._thread, act)

    async def _end_process(self) -> None:
        """Return when neither the process nor anything that it started is there; the session reaps it."""
        for wait_s in short_waits():
            found = processes_of(self._program.seed, self._pid or 0)
            left = [process.pid for process in found if not process.has_ended]
            if not left:
                return
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            await anyio.sleep(wait_s)

    def _close_session(self) -> None:
        from pydantic_monty import MontyError  # noqa: PLC0415 - loaded with the first run

        with suppress(MontyError):
            self._opened.close()

    def _started(self) -> "MontySession":
        """Return a session in a process of its own. Raises: MontyError, OSError, BoxError."""
        from pydantic_monty import Monty  # noqa: PLC0415 - loaded with the first run

        become_subreaper()
        command, environment = (_worker_program(), "subprocess"), {MARK: self._program.seed}
        boxed = self._resources.enter_context(self._isolated.boxed(command, environment, _LIMITS))
        path = self._resources.enter_context(launcher(boxed))
        pool = Monty(binary_path=path, min_processes=0, max_processes=1, max_checkouts_per_worker=1)
        session = self._opened.enter_context(pool).checkout(
            limits={
                "max_turn_duration_secs": TURN_SECONDS,
                "max_memory": MEMORY_BYTES,
                "max_recursion_depth": RECURSION,
                "max_suspensions": MAX_QUESTIONS,
            },
            os_policy={
                "datetime": datetime.fromtimestamp(self._program.started_at, UTC),
                "timezone": "utc",
                "sleep": "zero",
                "random_start": {"seed": self._program.seed},
            },
        )
        self._opened.enter_context(session)
        self._pid = session.worker_pid
        if self._pid is not None:
            self._isolated.sandbox.runs.add(self._pid, self._program.seed)
        return session

    def _turn(self, begin: Callable[[], "SyncSnapshot"]) -> CodeTurn:
        """Answer what the interpreter asks until the code can only wait, or ends."""
        from pydantic_monty import (  # noqa: PLC0415 - loaded with the first run
            FunctionSnapshot,
            MontyComplete,
            MontyError,
            NameLookupSnapshot,
        )

        try:
            snapshot = begin()
            while isinstance(snapshot, FunctionSnapshot | NameLookupSnapshot):
                snapshot = self._call(snapshot) if isinstance(snapshot, FunctionSnapshot) else self._name(snapshot)
            if isinstance(snapshot, MontyComplete):
                return CodeEnd(as_json(snapshot.output), self._output.output)
        except MontyError as error:
            return CodeEnd(None, self._output.output, _error_text(error))
        except ValueError as error:
            return CodeEnd(None, self._output.output, f"TypeError: the result is no JSON: {error}")
        self._waiting = snapshot
        return [self._calls.pop(number) for number in sorted(snapshot.pending_call_ids)]

    def _call(self, snapshot: "FunctionSnapshot") -> "SyncSnapshot":
        """Answer a call: one of a function of the program is open until the code can only wait."""
        name = snapshot.function_name
        if snapshot.is_os_function:
            return snapshot.resume_not_handled()
        if name not in self._program.functions:
            return snapshot.resume({"exc_type": "NameError", "message": f"name '{name}' is not defined"})
        if snapshot.args:
            return snapshot.resume({"exc_type": "TypeError", "message": f"{name}() takes keyword arguments only"})
        try:
            arguments = {key: as_json(each) for key, each in snapshot.kwargs.items()}
        except ValueError as fault:
            return snapshot.resume({"exc_type": "TypeError", "message": f"{name}() takes JSON: {fault}"})
        self._calls[snapshot.call_id] = FunctionCall(name, arguments)
        return snapshot.resume({"future": ...})

    def _name(self, snapshot: "NameLookupSnapshot") -> "SyncSnapshot":
        """Answer a name: that of a function of the program stands for it."""
        name = snapshot.variable_name
        if snapshot.object_id is None and name in self._program.functions:
            return snapshot.resume(value=_function(name))
        return snapshot.resume()


def _settled(result: FunctionResult) -> "ExternalSettledResult":
    if result.error is None:
        return {"return_value": result.value}
    return {"exc_type": "RuntimeError", "message": result.error}


def _function(name: str) -> Callable[[], None]:
    """Return what stands for a function of that name; its calls come to the service, and it is never called here."""

    def function() -> None:
        raise NotImplementedError

    function.__name__ = function.__qualname__ = name
    return function


def _error_text(error: "MontyError") -> str:
    """Return type, message and line of what ended the code."""
    from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError  # noqa: PLC0415 - see above

    if isinstance(error, MontyCrashedError):
        return "The interpreter ended before the code did."
    raised = error.exception()
    if isinstance(raised, TimeoutError) and "time limit" in str(raised):
        return f"TimeoutError: the code ran for more than {TURN_SECONDS:g} s without waiting for a tool."
    frames = error.traceback() if isinstance(error, MontyRuntimeError | MontySyntaxError) else []
    line = f" (line {frames[-1].line})" if frames else ""
    return f"{type(raised).__name__}: {raised}{line}"


def _worker_program() -> str:
    """Return the path of the interpreter. Raises: FileNotFoundError."""
    path = Path(sysconfig.get_path("scripts")) / "monty"
    found = str(path) if path.is_file() else which("monty")
    if found is None:
        raise FileNotFoundError("the program monty is not installed")
    return found
