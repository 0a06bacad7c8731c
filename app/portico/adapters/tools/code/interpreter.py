"""Interpreter of code: Monty, in a new process for each run, in the strongest box that starts here.

Monty has no system calls: what it cannot answer itself it asks of the service, which answers calls of the program's
functions and nothing else. The box is the second wall, for a fault of the interpreter.
"""

import os
import signal
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final

import anyio

from portico.adapters.tools.code.launcher import launcher
from portico.adapters.tools.code.values import as_json
from portico.adapters.tools.sandbox.box import BoxError, ProcessLimits
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.process_table import MARK, become_subreaper, processes_of
from portico.adapters.tools.sandbox.run import end_leftovers
from portico.ports.code import CodeEnd, CodeNotStarted, CodeProgram, CodeTurn, FunctionCall, FunctionResult

if TYPE_CHECKING:
    from pydantic_monty import (
        AsyncFunctionSnapshot,
        AsyncFutureSnapshot,
        AsyncMontySession,
        AsyncNameLookupSnapshot,
        AsyncSnapshot,
        ExternalSettledResult,
        MontyError,
    )

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
_ROUNDS: Final = 100
_ROUND_S: Final = 0.01
_GRACE_S: Final = 2.0
"""Time that a process has to end by itself, in seconds."""


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
        self._resources = ExitStack()
        self._opened: list[AbstractAsyncContextManager[object]] = []
        self._pid: int | None = None
        self._waiting: AsyncFutureSnapshot | None = None
        self._calls: dict[int, FunctionCall] = {}

    async def start(self) -> CodeTurn:
        """Start the process and run the code until it can only wait, or ends. Raises: CodeNotStarted."""
        from pydantic_monty import MontyError  # noqa: PLC0415 - loaded with the first run

        try:
            async with self._starting:
                session = await self._started()
        except (MontyError, OSError, BoxError) as cause:
            raise CodeNotStarted(str(cause).partition("\n")[0] or "no reason is known") from cause
        return await self._turn(session.feed_start(self._program.code, print_callback=self._output))

    async def resume(self, results: Sequence[FunctionResult]) -> CodeTurn:
        """Go on with the results of all calls that it waits for, in their order."""
        waiting = self._waiting
        assert waiting is not None  # noqa: S101 - it is asked after a turn that led to calls
        calls = zip(sorted(waiting.pending_call_ids), results, strict=True)
        return await self._turn(waiting.resume({number: _settled(result) for number, result in calls}))

    async def close(self) -> None:
        """End the process with all that belongs to it."""
        from pydantic_monty import MontyError  # noqa: PLC0415 - loaded with the first run

        try:
            with anyio.move_on_after(_GRACE_S), suppress(MontyError):
                while self._opened:
                    await self._opened.pop().__aexit__(None, None, None)
            if self._pid is not None:
                await self._end_process(self._pid)
        finally:
            self._resources.close()

    async def _end_process(self, pid: int) -> None:
        """Return when neither the process nor anything that it started is there; the pool reaps it."""
        for _ in range(_ROUNDS):
            left = [each.pid for each in processes_of(self._program.seed, pid) if not each.has_ended]
            if not left:
                break
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            await anyio.sleep(_ROUND_S)
        await end_leftovers(self._isolated.sandbox.runs, self._program.seed, pid)

    async def _started(self) -> "AsyncMontySession":
        """Return a session in a process of its own. Raises: MontyError, OSError, BoxError."""
        from pydantic_monty import AsyncMonty  # noqa: PLC0415 - loaded with the first run

        become_subreaper()
        command, environment = (_worker_program(), "subprocess"), {MARK: self._program.seed}
        boxed = self._resources.enter_context(self._isolated.boxed(command, environment, _LIMITS))
        path = self._resources.enter_context(launcher(boxed))
        pool = AsyncMonty(binary_path=path, min_processes=0, max_processes=1, max_checkouts_per_worker=1)
        await pool.__aenter__()
        self._opened.append(pool)
        session = pool.checkout(
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
        await session.__aenter__()
        self._opened.append(session)
        self._pid = session.worker_pid
        if self._pid is not None:
            self._isolated.sandbox.runs.add(self._pid, self._program.seed)
        return session

    async def _turn(self, first: Awaitable["AsyncSnapshot"]) -> CodeTurn:
        """Answer what the interpreter asks until the code can only wait, or ends."""
        from pydantic_monty import (  # noqa: PLC0415 - loaded with the first run
            AsyncFunctionSnapshot,
            AsyncNameLookupSnapshot,
            MontyComplete,
            MontyError,
        )

        try:
            snapshot = await first
            while isinstance(snapshot, AsyncFunctionSnapshot | AsyncNameLookupSnapshot):
                if isinstance(snapshot, AsyncFunctionSnapshot):
                    snapshot = await self._call(snapshot)
                else:
                    snapshot = await self._name(snapshot)
            if isinstance(snapshot, MontyComplete):
                return CodeEnd(as_json(snapshot.output), self._output.output)
        except MontyError as error:
            return CodeEnd(None, self._output.output, _error_text(error))
        except ValueError as error:
            return CodeEnd(None, self._output.output, f"TypeError: the result is no JSON: {error}")
        self._waiting = snapshot
        return [self._calls.pop(number) for number in sorted(snapshot.pending_call_ids)]

    async def _call(self, snapshot: "AsyncFunctionSnapshot") -> "AsyncSnapshot":
        """Answer a call: one of a function of the program is open until the code can only wait."""
        name = snapshot.function_name
        if snapshot.is_os_function:
            return await snapshot.resume_not_handled()
        if name not in self._program.functions:
            return await snapshot.resume({"exc_type": "NameError", "message": f"name '{name}' is not defined"})
        if snapshot.args:
            return await snapshot.resume({"exc_type": "TypeError", "message": f"{name}() takes keyword arguments only"})
        try:
            arguments = {key: as_json(each) for key, each in snapshot.kwargs.items()}
        except ValueError as fault:
            return await snapshot.resume({"exc_type": "TypeError", "message": f"{name}() takes JSON: {fault}"})
        self._calls[snapshot.call_id] = FunctionCall(name, arguments)
        return await snapshot.resume({"future": ...})

    async def _name(self, snapshot: "AsyncNameLookupSnapshot") -> "AsyncSnapshot":
        """Answer a name: that of a function of the program stands for it."""
        name = snapshot.variable_name
        if snapshot.object_id is None and name in self._program.functions:
            return await snapshot.resume(value=_function(name))
        return await snapshot.resume()


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
