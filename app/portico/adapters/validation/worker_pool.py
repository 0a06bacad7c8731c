"""A few worker processes that validate what is not small and plain, started when they are first needed.

Nothing can stop a thread that compiles a schema or searches for a pattern, and it holds the interpreter's lock
meanwhile. A process can be killed, and does not hold up the event loop. A worker that exceeds its limits ends, and the
next job starts a new one. A worker that was killed from outside, by the kernel for want of memory or by an operator,
costs its job one more attempt. Refused: a fork of the service, which has threads and secrets.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Final, TypeAlias

import anyio
import orjson
from anyio.abc import ByteSendStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import ConfigDict, TypeAdapter

from portico.adapters.validation import worker_process
from portico.capabilities.answer_contract import too_costly_answer, too_costly_contract
from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.journal.outcomes import AnswerValidated, Refused
from portico.domain.raised_exception import RaisedException
from portico.domain.value import value
from portico.ports.current_caller import CALLER
from portico.ports.validation import OnRuleException

_Result: TypeAlias = tuple[Refused | None, AnswerValidated | None, tuple[tuple[str, RaisedException], ...]]
_RESULT: Final[TypeAdapter[_Result]] = TypeAdapter(_Result, config=ConfigDict(defer_build=True))
_SOURCE: Final = str(Path(__file__).parents[3])
_OVER_LIMIT: Final = frozenset(
    {-signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, worker_process.OUT_OF_MEMORY}
)
"""Exit statuses of a worker whose job took too much time, memory or stack."""
_KILLED: Final = frozenset({-signal.SIGKILL, -signal.SIGTERM})
_ATTEMPTS: Final = 2
"""Attempts at a job whose worker is killed from outside."""


@value
class WorkerLimits:
    """The number of workers, and the limits of each.

    `cpu_seconds` is for a job. `wall_seconds` is for one whose process was stopped from outside, and for a start.
    `rule_modules` are the modules with rules beside the built-in ones.
    """

    workers: int = 2
    cpu_seconds: float = 1.0
    wall_seconds: float = 30.0
    memory_bytes: int = 2**29
    rule_modules: tuple[str, ...] = ()


class WorkerPool:
    """Implementation of the `AnswerValidator` port. Jobs wait for a worker in the order in which they arrive."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._limiter = anyio.CapacityLimiter(limits.workers)
        self._idle: list[_Worker] = []

    async def check_contract(self, output: OutputContract) -> None:
        result = await self._result(_job(output, None, 1))
        if result is None:
            raise too_costly_contract(output)

    async def validate(
        self, output: OutputContract, answer: str | AnswerContent, attempt: int, on_exception: OnRuleException
    ) -> AnswerValidated:
        result = await self._result(_job(output, answer, attempt))
        if result is None:
            return too_costly_answer(attempt)
        _, outcome, exceptions = result
        assert outcome is not None  # noqa: S101 - the outcome of an answer
        for rule, raised in exceptions:
            on_exception(rule, raised)
        return outcome

    async def close(self) -> None:
        """Kill the idle workers and wait until they are gone."""
        while self._idle:
            await self._idle.pop().kill()

    async def _result(self, job: bytes) -> _Result | None:
        """Return the result of the job, None if it exceeds the limits. Raises: what the contract is refused with."""
        async with self._limiter:
            data = await self._run(job)
        if data is None:
            return None
        result = _RESULT.validate_json(data)
        if result[0] is not None:
            raise result[0].failure()
        return result

    async def _run(self, job: bytes) -> bytes | None:
        for _ in range(_ATTEMPTS):
            worker = self._idle.pop() if self._idle else await _start(self._limits)
            data = None
            try:
                with anyio.move_on_after(self._limits.wall_seconds):
                    data = await worker.run(job)
            except _WorkerEndedError as ended:
                if ended.status in _KILLED:
                    continue
                if ended.status not in _OVER_LIMIT:
                    raise
            finally:
                if data is None:
                    await worker.kill()
                else:
                    self._idle.append(worker)
            return data
        return None


class _WorkerEndedError(Exception):
    """The worker process ended by itself, with this status; one that is no limit's is a bug."""

    def __init__(self, status: int) -> None:
        super().__init__(f"The validation worker ended with status {status}.")
        self.status = status


class _Worker:
    """One worker process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        self._process = process
        self._jobs: ByteSendStream = process.stdin
        self._results = BufferedByteReceiveStream(process.stdout)

    async def run(self, job: bytes) -> bytes:
        """Return the result of a job. Raises: _WorkerEndedError if the process ends."""
        try:
            await self._jobs.send(worker_process.frame(job))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _WorkerEndedError(await self._process.wait()) from None
        return await self.result()

    async def result(self) -> bytes:
        """Return the next result. Raises: as `run`."""
        try:
            length = int.from_bytes(await self._results.receive_exactly(worker_process.LENGTH_BYTES))
            return await self._results.receive_exactly(length) if length else b""
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            raise _WorkerEndedError(await self._process.wait()) from None

    async def kill(self) -> None:
        """End the process, if it has not ended, and wait until it is gone; nothing interrupts that."""
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._process.kill()
            await self._process.aclose()


@asynccontextmanager
async def open_worker_pool(limits: WorkerLimits) -> AsyncIterator[WorkerPool]:
    """Open the pool; no worker is left when it closes."""
    pool = WorkerPool(limits)
    try:
        yield pool
    finally:
        await pool.close()


async def _start(limits: WorkerLimits) -> _Worker:
    """Return a worker that is ready. It gets none of the environment, and no signals of the terminal.

    One with modules finds them where the service does.
    """
    arguments = (str(limits.cpu_seconds), str(limits.memory_bytes), *limits.rule_modules)
    path = os.pathsep.join([_SOURCE, *(filter(None, sys.path) if limits.rule_modules else ())])
    process = await anyio.open_process(
        [sys.executable, "-P", "-m", worker_process.__name__, *arguments],
        stdin=PIPE,
        stdout=PIPE,
        stderr=None,
        env={"PYTHONPATH": path},
        start_new_session=True,
    )
    worker, is_ready = _Worker(process), False
    try:
        with anyio.fail_after(limits.wall_seconds):
            await worker.result()
        is_ready = True
        return worker
    finally:
        if not is_ready:
            await worker.kill()


def _job(output: OutputContract, answer: str | AnswerContent | None, attempt: int) -> bytes:
    contract = orjson.Fragment(output.model_dump_json(by_alias=True, exclude_unset=True))
    return orjson.dumps({"output": contract, "answer": answer, "attempt": attempt, "caller": CALLER.get()})
