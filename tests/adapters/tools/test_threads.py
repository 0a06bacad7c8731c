"""Threads of blocking tool functions: their number, and calls that are given up."""

from threading import Event, current_thread

import anyio
import pytest

from portico.adapters.tools.threads import DaemonThreads
from portico.capabilities.tools.definition import tool
from portico.capabilities.tools.executor import ToolExecutor
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.failures import Code
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolError
from tests.support.entropy import SeededEntropy
from tests.support.tools import tool_call
from tests.support.virtual_time import VirtualClock


def _raise(error: BaseException) -> None:
    raise error


async def test_work_runs_on_a_daemon_thread_and_its_result_or_error_comes_back() -> None:
    threads = DaemonThreads(2)
    assert await threads.run(lambda: current_thread().daemon)
    with pytest.raises(ToolError, match="no"):
        await threads.run(lambda: _raise(ToolError("no")))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: _raise(StopIteration()))


async def test_work_beyond_the_capacity_waits_for_a_thread() -> None:
    threads, release, began = DaemonThreads(1), Event(), []

    async def work(name: str) -> None:
        await threads.run(lambda: (began.append(name), release.wait(10)))

    async with anyio.create_task_group() as group:
        group.start_soon(work, "first")
        group.start_soon(work, "second")
        await anyio.sleep(0.05)
        assert len(began) == 1
        release.set()
    assert sorted(began) == ["first", "second"]


async def test_a_function_that_never_returns_is_abandoned_and_counted(
    clock: VirtualClock, entropy: SeededEntropy
) -> None:
    release = Event()

    @tool(side_effects=SideEffects.READ, idempotent=False, timeout=0.05)
    def act() -> str:
        """Hang."""
        release.wait(30)
        return "late"

    threads = DaemonThreads(2)
    executor = ToolExecutor(ToolRegistry(act, threads=threads), clock, entropy, 1000)

    async def attempt():
        return await executor.attempt(tool_call(), key="key", attempt=0, seconds_left=60)

    assert [(await attempt()).code for _ in range(2)] == [Code.TOOL_TIMEOUT] * 2
    assert threads.abandoned == 2
    refused = await attempt()
    assert refused.code is Code.TOOL_UNAVAILABLE
    assert "hold all threads" in refused.content
    release.set()
    await threads.run(lambda: None)
    assert threads.abandoned < 2
    assert (await attempt()).content == "late"


async def test_a_blocking_function_that_exits_ends_its_call_only(clock: VirtualClock, entropy: SeededEntropy) -> None:
    @tool(side_effects=SideEffects.READ, idempotent=False)
    def act() -> str:
        """Exit."""
        raise SystemExit(3)

    executor = ToolExecutor(ToolRegistry(act, threads=DaemonThreads(1)), clock, entropy, 1000)
    ended = await executor.attempt(tool_call(), key="key", attempt=0, seconds_left=60)
    assert (ended.code, ended.content) == (Code.TOOL_EXECUTION_FAILED, "The tool failed: SystemExit")
