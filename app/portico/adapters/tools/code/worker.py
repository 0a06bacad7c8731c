"""Process of the interpreter in a box of its own, for one run of code.

It may be started ahead of its run. Until a session is opened it knows nothing of the run: it has the interpreter's box,
and waits for its first message.

Each worker has a thread, on which its library is called; a run that comes while its worker is still being started waits
there. The library ends a process that is not used.
"""

import os
import signal
import sysconfig
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from portico.adapters.tools.code.launcher import launcher
from portico.adapters.tools.sandbox.box import ProcessLimits, find_program
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.process_table import MARK, become_subreaper, processes_of
from portico.adapters.tools.sandbox.run import end_leftovers, short_waits
from portico.ports.code import CodeProgram

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

T = TypeVar("T")

MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Bytes that the values of code may take."""
TURN_SECONDS: Final = 5.0
"""CPU time of code between two answers."""
RECURSION: Final = 200
MAX_QUESTIONS: Final = 20_000
"""Answers that one run may have: those to its calls, its rounds, and names that it looks up."""
_LIMITS: Final = ProcessLimits(
    output=0, memory=1024 * 1024 * 1024, processes=16, open_files=64, file_bytes=0, cpu_seconds=600
)
_NO_PROCESS: Final = -1


class Worker:
    """A process that runs the code of one program. Those that share a lock are started one at a time."""

    def __init__(self, isolated: IsolatedProgram, starting: Lock) -> None:
        self._isolated = isolated
        self._starting = starting
        self._name = isolated.sandbox.runs.new_name()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="run-code")
        self._box = ExitStack()
        self._opened = ExitStack()
        self._pool: Monty | None = None
        self._pid = _NO_PROCESS

    def start_ahead(self) -> None:
        """Start the process without waiting for it. Should that fail, it is started when its session is opened."""
        self._thread.submit(self._start)

    async def session(self, program: CodeProgram) -> "MontySession":
        """Open the session of a program, in a new process if the one that was started ahead is not there any more.

        Raises: MontyError, OSError, BoxError.
        """
        return await self.on_thread(lambda: self._session(program))

    async def on_thread(self, act: Callable[[], T]) -> T:
        """Return what a call of the library returns."""
        return await get_running_loop().run_in_executor(self._thread, act)

    async def close(self) -> None:
        """End the process with all that belongs to it; what it still does ends with it."""
        try:
            await self._end_process()
            await self.on_thread(self._close_library)
            await self._end_process()
            await end_leftovers(self._isolated.sandbox.runs, self._name, self._pid)
        finally:
            self._thread.shutdown(wait=False)
            self._box.close()

    def _start(self) -> "Monty":
        """Start the process and return the library's pool of it. Raises: MontyError, OSError, BoxError."""
        from pydantic_monty import Monty  # noqa: PLC0415 - loaded with the first worker

        become_subreaper()
        command, environment = (_worker_program(), "subprocess"), {MARK: self._name}
        with self._starting, ExitStack() as box:
            boxed = box.enter_context(self._isolated.boxed(command, environment, _LIMITS))
            path = box.enter_context(launcher(boxed))
            pool = Monty(binary_path=path, min_processes=1, max_processes=1, max_checkouts_per_worker=1)
            self._pool = self._opened.enter_context(pool)
            self._box = box.pop_all()
        return self._pool

    def _session(self, program: CodeProgram) -> "MontySession":
        from pydantic_monty import MontyError  # noqa: PLC0415 - see above

        if self._pool is not None:
            with suppress(MontyError):
                return self._session_of(self._pool, program)
            self._close_library()
            self._box.close()
        return self._session_of(self._start(), program)

    def _session_of(self, pool: "Monty", program: CodeProgram) -> "MontySession":
        session = pool.checkout(
            limits={
                "max_turn_duration_secs": TURN_SECONDS,
                "max_memory": MEMORY_BYTES,
                "max_recursion_depth": RECURSION,
                "max_suspensions": MAX_QUESTIONS,
            },
            os_policy={
                "datetime": datetime.fromtimestamp(program.started_at, UTC),
                "timezone": "utc",
                "sleep": "zero",
                "random_start": {"seed": program.seed},
            },
        )
        self._opened.enter_context(session)
        if session.worker_pid is not None:
            self._pid = session.worker_pid
            self._isolated.sandbox.runs.add(self._pid, self._name)
        return session

    async def _end_process(self) -> None:
        """Return when neither the process nor anything that it started is there; the library reaps it."""
        for wait_s in short_waits():
            found = processes_of(self._name, self._pid)
            left = [process.pid for process in found if not process.has_ended]
            if not left:
                return
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            await anyio.sleep(wait_s)

    def _close_library(self) -> None:
        from pydantic_monty import MontyError  # noqa: PLC0415 - see above

        with suppress(MontyError):
            self._opened.close()


def _worker_program() -> str:
    """Return the path of the interpreter. Raises: FileNotFoundError."""
    path = Path(sysconfig.get_path("scripts")) / "monty"
    found = str(path) if path.is_file() else find_program("monty")
    if found is None:
        raise FileNotFoundError("the program monty is not installed")
    return found
