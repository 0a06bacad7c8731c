"""The interpreter of code at each level: its processes, the one that is ready for the next run, and their ends."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from portico.adapters.tools.code.interpreter import MontyInterpreter
from portico.adapters.tools.sandbox.box import Box
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.domain.tools import IsolationLevel
from portico.ports.code import CodeEnd, CodeProgram
from tests.support.processes import children_of, programs_below
from tests.support.sandbox import opened_sandbox, require_level

pytestmark = pytest.mark.usefixtures("real_time")
WAITING = CodeProgram("await f(n=1)", frozenset({"f"}), 1.0, "seed")
NUMBER = CodeProgram("import random\nrandom.random()", frozenset(), 1.0, "seed")


@pytest.fixture(params=list(IsolationLevel))
def interpreter(request: pytest.FixtureRequest) -> MontyInterpreter:
    require_level(opened_sandbox(), request.param)
    return MontyInterpreter(IsolatedProgram(opened_sandbox(), Box(), 0, request.param), workers=2)


@asynccontextmanager
async def kept_ready(interpreter: MontyInterpreter) -> AsyncIterator[int]:
    """Let the interpreter keep a worker ready, and yield the process of the first."""
    async with anyio.create_task_group() as group:
        group.start_soon(interpreter.keep_ready)
        await until(lambda: len(workers()) == 1)
        yield workers()[0]
        group.cancel_scope.cancel()


async def result_of(interpreter: MontyInterpreter, program: CodeProgram) -> object:
    async with interpreter.open(program) as running:
        turn = await running.start()
        assert isinstance(turn, CodeEnd)
        return turn.result


async def test_the_process_of_a_run_ends_with_it(interpreter: MontyInterpreter) -> None:
    async with interpreter.open(WAITING) as running:
        turn = await running.start()
        assert not isinstance(turn, CodeEnd)
        assert [(call.function, call.arguments) for call in turn] == [("f", {"n": 1})]
        assert len(workers()) == 1
    assert workers() == []


async def test_a_worker_that_is_ready_serves_one_run_and_ends_with_the_service(interpreter: MontyInterpreter) -> None:
    assert workers() == []
    async with kept_ready(interpreter) as ready:
        async with interpreter.open(WAITING) as running:
            await running.start()
            assert workers() == [ready]
        await until(lambda: len(workers()) == 1 and workers() != [ready])
        second = workers()
        assert await result_of(interpreter, NUMBER) == await result_of(interpreter, NUMBER)
        await until(lambda: len(workers()) == 1 and workers() != second)
    assert workers() == []


async def test_a_ready_worker_that_has_ended_is_replaced_for_the_run(interpreter: MontyInterpreter) -> None:
    others = children_of(os.getpid())
    async with kept_ready(interpreter) as ready:
        os.kill(ready, signal.SIGKILL)
        await until(lambda: children_of(os.getpid()) == others)
        assert isinstance(await result_of(interpreter, NUMBER), float)
    assert workers() == []


async def test_a_ready_worker_is_one_of_the_workers(interpreter: MontyInterpreter) -> None:
    async with kept_ready(interpreter) as ready, interpreter.open(WAITING) as first:
        await first.start()
        async with interpreter.open(WAITING) as second:
            await second.start()
            assert (len(workers()), ready in workers()) == (2, True)
        await until(lambda: len(workers()) == 2)
        async with interpreter.open(WAITING) as third:
            await third.start()
            assert (len(workers()), ready in workers()) == (2, True)
    assert workers() == []


def workers() -> list[int]:
    """Return the processes of interpreters that this process started."""
    return programs_below(os.getpid(), "/monty")


async def until(holds: Callable[[], bool]) -> None:
    """Wait, for at most 10 s, until the condition holds."""
    with anyio.fail_after(10):
        while not holds():  # noqa: ASYNC110 - what another process does sets no event
            await anyio.sleep(0.01)
