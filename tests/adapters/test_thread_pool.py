"""Long computations run on the worker thread, one at a time, while the event loop serves others."""

import threading
from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from portico.adapters.thread_pool import WorkerThread
from portico.capabilities.output.grammar import Grammar, GrammarError
from tests.support.hostile_grammars import HOSTILE


async def test_the_event_loop_is_served_beside_a_hostile_grammar_check() -> None:
    grammar, text = HOSTILE["palindromes"]
    pool, ticks = WorkerThread(), 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await checkpoint()
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        await checkpoint()
        before = ticks
        for _ in range(3):
            with pytest.raises(GrammarError, match="too many readings"):
                await pool.run(partial(Grammar(grammar).check, text))
        assert ticks - before >= 10
        group.cancel_scope.cancel()


async def test_work_is_done_one_after_the_other_in_the_order_of_its_arrival() -> None:
    pool, done, running = WorkerThread(), list[int](), threading.Semaphore(1)

    def work(number: int) -> None:
        assert running.acquire(blocking=False)
        done.append(number)
        running.release()

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(pool.run, partial(work, number))
    assert done == list(range(20))


async def test_results_and_errors_reach_the_caller() -> None:
    pool = WorkerThread()
    assert await pool.run(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(KeyError, match="why"):
        await pool.run(partial({}.__getitem__, "why"))


async def test_cancelled_work_that_has_not_begun_is_never_done() -> None:
    pool, release, done = WorkerThread(), threading.Event(), list[str]()
    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, release.wait)
        await checkpoint()
        with anyio.move_on_after(0) as scope:
            await pool.run(partial(done.append, "late"))
        assert scope.cancelled_caught
        release.set()
    assert done == []
    assert await pool.run(partial(sum, [1, 2])) == 3
