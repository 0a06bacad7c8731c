"""Interpreter of code: Monty, in a new process for each run, in the strongest box that starts here.

Monty has no system calls: what it cannot answer itself it asks of the service, which answers calls of the program's
functions and nothing else. The box is the second wall, for a fault of the interpreter.

The process of the next run is started ahead of it, since that takes longer than short code. It serves that one run.

Each run has a thread, which answers all questions of a turn. The event loop waits once for a turn, however many calls
the code makes in it; with the library's own asynchronous sessions it would wait for each question.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from portico.adapters.tools.code.installed import installed_interpreter
from portico.adapters.tools.code.values import as_json
from portico.adapters.tools.code.worker import TURN_SECONDS, Worker
from portico.adapters.tools.sandbox.box import BoxError
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.ports.code import CodeEnd, CodeNotStarted, CodeProgram, CodeTurn, FunctionCall, FunctionResult

if TYPE_CHECKING:
    from pydantic_monty import (
        ExternalSettledResult,
        FunctionSnapshot,
        FutureSnapshot,
        MontyError,
        NameLookupSnapshot,
        SyncSnapshot,
    )

OUTPUT_BYTES: Final = 1024 * 1024
"""Bytes that code may print."""


class MontyInterpreter:
    """Interpreter of code in an isolated process; at most `workers` of them are there at the same time."""

    def __init__(self, isolated: IsolatedProgram, workers: int) -> None:
        self._isolated = isolated
        self._workers = workers
        self._starting = Lock()
        self._ready: Worker | None = None
        self._run_ended = anyio.Event()
        self._ends: TaskGroup | None = None
        """The tasks that end processes of runs; None while no worker is kept ready."""

    @cached_property
    def version(self) -> str:
        return installed_interpreter() or ""

    @cached_property
    def _free(self) -> anyio.Semaphore:
        return anyio.Semaphore(self._workers)

    @asynccontextmanager
    async def open(self, program: CodeProgram) -> AsyncIterator["MontyRun"]:
        """Open a run, once a worker is free; its process is ended with the context, however that is left.

        While a worker is kept ready, the end of the process is not waited for: it takes longer than short code.
        """
        await self._free.acquire()
        worker, self._ready = self._ready or Worker(self._isolated, self._starting), None
        try:
            yield MontyRun(program, worker)
        finally:
            if self._ends is None:
                await self._end(worker)
            else:
                self._ends.start_soon(self._end, worker)

    async def _end(self, worker: Worker) -> None:
        """End the process of a run, after which another one may be started."""
        try:
            with anyio.CancelScope(shield=True):
                await worker.close()
        finally:
            self._free.release()
            self._run_ended.set()

    async def keep_ready(self) -> None:
        """Keep a worker ready for the next run, until this is cancelled: it is started when the run before has ended.

        It counts as one of the workers, so there is none while all of them run.
        """
        async with anyio.create_task_group() as ends:
            self._ends = ends
            try:
                while True:
                    self._run_ended = anyio.Event()
                    if self._ready is None and self._free.value > 0:
                        self._ready = Worker(self._isolated, self._starting)
                        self._ready.start_ahead()
                    await self._run_ended.wait()
            finally:
                self._ends = None
                if (unused := self._ready) is not None:
                    self._ready = None
                    with anyio.CancelScope(shield=True):
                        await unused.close()


class MontyRun:
    """One run of a program, in a process that is its own."""

    def __init__(self, program: CodeProgram, worker: Worker) -> None:
        from pydantic_monty import CollectString  # noqa: PLC0415 - loaded with the first run

        self._program = program
        self._worker = worker
        self._output = CollectString(max_bytes=OUTPUT_BYTES)
        self._waiting: FutureSnapshot | None = None
        self._calls: dict[int, FunctionCall] = {}

    async def start(self) -> CodeTurn:
        """Run the code until it can only wait, or ends. Raises: CodeNotStarted."""
        from pydantic_monty import MontyError  # noqa: PLC0415 - loaded with the first run

        try:
            session = await self._worker.session(self._program)
        except (MontyError, OSError, BoxError) as cause:
            raise CodeNotStarted(str(cause).partition("\n")[0] or "no reason is known") from cause
        code, output = self._program.code, self._output
        return await self._worker.on_thread(lambda: self._turn(lambda: session.feed_start(code, print_callback=output)))

    async def resume(self, results: Sequence[FunctionResult]) -> CodeTurn:
        """Go on with the results of all calls that it waits for, in their order."""
        waiting = self._waiting
        assert waiting is not None  # noqa: S101 - it is asked after a turn that led to calls
        calls = zip(sorted(waiting.pending_call_ids), results, strict=True)
        settled = {number: _settled(result) for number, result in calls}
        return await self._worker.on_thread(lambda: self._turn(lambda: waiting.resume(settled)))

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
