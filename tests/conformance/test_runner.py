"""Conformance of the runners: admission, tasks, queue and drain."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import uuid4

import anyio
import pytest

from portico.adapters.runners.dbos import DEQUEUE_THREAD, DbosRunner, SharedQueue
from portico.adapters.runners.fair_queue import QueueLimits
from portico.adapters.runners.local import LocalRunner
from portico.adapters.runners.task_pool import TaskPool, open_task_pool
from portico.domain.failures import Code, RequestFailure, StorageFailure
from portico.ports.runtime import QueueTicket, Runner
from tests.support.postgres import own_database
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

MAX_IN_FLIGHT = 3
LIMITS = QueueLimits(max_waiting=5, max_running=3, max_running_per_tenant=2)
DRAIN_SECONDS = 30.0
LAST_WORDS = 1.5


class DrainingRunner(Runner, Protocol):
    """A runner with the methods that its owner uses."""

    @property
    def in_flight(self) -> int: ...

    def serving(self, advance: Callable[[QueueTicket], Awaitable[None]]) -> AbstractAsyncContextManager[None]: ...

    async def drain(self, cancel: Callable[[], None]) -> None: ...

    def leave(self) -> None: ...

    @property
    def is_leaving(self) -> bool: ...


OnBug = Callable[[str, Exception], None]
Opener = Callable[[OnBug], AbstractAsyncContextManager[DrainingRunner]]


@asynccontextmanager
async def _inline(on_bug: OnBug) -> AsyncIterator[DrainingRunner]:
    async with _slots(on_bug) as slots:
        yield LocalRunner(slots, LIMITS, VirtualClock())


@asynccontextmanager
async def _dbos(on_bug: OnBug, url: str) -> AsyncIterator[DrainingRunner]:
    async with _slots(on_bug) as slots:
        asked: list[object] = []

        async def waiting() -> int:
            asked.append(None)
            return 0

        def fault(fault: Exception) -> None:
            raise fault

        shared = SharedQueue(url, "replica", waiting)
        yield DbosRunner(slots, LIMITS, shared=shared, clock=VirtualClock(), on_fault=fault)


def _slots(on_bug: OnBug) -> AbstractAsyncContextManager[TaskPool]:
    return open_task_pool(max_in_flight=MAX_IN_FLIGHT, drain_seconds=DRAIN_SECONDS, on_bug=on_bug)


@pytest.fixture(params=["inline", "dbos"])
def opener(request: pytest.FixtureRequest) -> Opener:
    if request.param == "inline":
        return _inline
    url = own_database(request.getfixturevalue("postgres_url"))
    return lambda on_bug: _dbos(on_bug, url)


@dataclass
class Work:
    """Bodies that run until the test releases or cancels them."""

    gate: anyio.Event = field(default_factory=anyio.Event)
    ended: list[str] = field(default_factory=list)
    scopes: list[anyio.CancelScope] = field(default_factory=list)
    cancels: int = 0
    bugs: list[tuple[str, str]] = field(default_factory=list)

    def until_let_go(self, name: str) -> Callable[[], Awaitable[None]]:
        async def body() -> None:
            with anyio.CancelScope() as scope:
                self.scopes.append(scope)
                await self.gate.wait()
            self.ended.append(name)

        return body

    def cancel(self) -> None:
        self.cancels += 1
        for scope in self.scopes:
            scope.cancel()

    def bug(self, execution_id: str, bug: Exception) -> None:
        self.bugs.append((execution_id, str(bug)))


@pytest.fixture
def work() -> Work:
    return Work()


async def nothing() -> None:
    pass


def _code(refused: pytest.ExceptionInfo[RequestFailure]) -> tuple[Code, int, float | None]:
    return refused.value.code, refused.value.status, refused.value.retry_after


async def test_a_body_runs_in_its_own_task(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        runner.start("a", work.until_let_go("a"))
        assert work.scopes == []
        await anyio.wait_all_tasks_blocked()
        assert len(work.scopes) == runner.in_flight == 1
        work.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert work.ended == ["a"]
        assert runner.in_flight == 0


async def test_a_body_outlives_its_caller(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        with anyio.move_on_after(1) as starter:
            runner.start("a", work.until_let_go("a"))
            await anyio.sleep_forever()
        assert starter.cancelled_caught
        assert runner.in_flight == 1
        work.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert work.ended == ["a"]


async def test_executions_beyond_the_limit_are_refused_until_one_has_ended(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        for number in range(MAX_IN_FLIGHT):
            runner.start(str(number), work.until_let_go(str(number)))
        with pytest.raises(RequestFailure) as refused:
            runner.start("more", nothing)
        assert _code(refused) == (Code.REQUEST_OVERLOADED, 503, 1.0)
        work.gate.set()
        await anyio.wait_all_tasks_blocked()
        runner.start("more", nothing)


async def test_a_bug_in_one_execution_does_not_end_the_others(opener: Opener, work: Work) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("a bug")

    async with opener(work.bug) as runner:
        runner.start("good", work.until_let_go("good"))
        runner.start("bad", broken)
        await anyio.wait_all_tasks_blocked()
        assert work.bugs == [("bad", "a bug")]
        assert runner.in_flight == 1
        work.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert work.ended == ["good"]


async def test_several_bugs_of_one_body_are_one_bug(opener: Opener, work: Work) -> None:
    async def broken() -> None:
        raise ExceptionGroup("two bugs", [ZeroDivisionError(), KeyError()])

    async with opener(work.bug) as runner:
        runner.start("bad", broken)
        await anyio.wait_all_tasks_blocked()
    assert work.bugs == [("bad", "two bugs (2 sub-exceptions)")]


async def test_draining_refuses_new_work_at_once(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner, anyio.create_task_group() as owner:
        runner.start("a", work.until_let_go("a"))
        assert not runner.is_draining
        owner.start_soon(runner.drain, work.cancel)
        await anyio.wait_all_tasks_blocked()
        assert runner.is_draining
        with pytest.raises(RequestFailure) as refused:
            runner.start("b", nothing)
        assert _code(refused) == (Code.REQUEST_SHUTTING_DOWN, 503, 1.0)
        work.gate.set()


async def test_draining_returns_as_soon_as_all_has_ended(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner, anyio.create_task_group() as owner:
        for number in range(MAX_IN_FLIGHT):
            runner.start(str(number), work.until_let_go(str(number)))
        began = anyio.current_time()
        owner.start_soon(_set_after, work.gate, DRAIN_SECONDS / 2)
        await runner.drain(work.cancel)
        assert anyio.current_time() - began == pytest.approx(DRAIN_SECONDS / 2)
        assert len(work.ended) == MAX_IN_FLIGHT
        assert work.cancels == 0


async def test_draining_without_work_returns_at_once(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        began = anyio.current_time()
        await runner.drain(work.cancel)
        assert anyio.current_time() == began
        assert runner.is_draining
        assert work.cancels == 0


async def test_tasks_that_outlast_the_grace_period_are_cancelled(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        runner.start("a", work.until_let_go("a"))
        began = anyio.current_time()
        await runner.drain(work.cancel)
        assert anyio.current_time() - began == pytest.approx(DRAIN_SECONDS)
        assert work.ended == ["a"]
        assert work.cancels == 1


async def test_a_task_that_ignores_its_cancel_does_not_delay_the_drain(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        runner.start("a", work.until_let_go("a"))
        began = anyio.current_time()
        await runner.drain(lambda: None)
        assert anyio.current_time() - began == pytest.approx(DRAIN_SECONDS + LAST_WORDS)
        assert runner.in_flight == 1


async def test_draining_twice_waits_for_the_same_end(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        runner.start("a", work.until_let_go("a"))
        async with anyio.create_task_group() as owner:
            owner.start_soon(runner.drain, work.cancel)
            owner.start_soon(runner.drain, work.cancel)
            await anyio.wait_all_tasks_blocked()
            work.gate.set()
        assert runner.in_flight == 0
        await runner.drain(work.cancel)


async def _set_after(gate: anyio.Event, seconds: float) -> None:
    await anyio.sleep(seconds)
    gate.set()


class Turns:
    """Tickets that ran, and the number of concurrent ones of each tenant."""

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.came: list[QueueTicket] = []
        self.over: list[str] = []
        self.at_once: list[int] = []
        self.most_of_one_tenant = 0

    async def advance(self, ticket: QueueTicket) -> None:
        self.came.append(ticket)
        running = [each for each in self.came if each.execution_id not in self.over]
        self.at_once.append(len(running))
        mine = sum(each.tenant == ticket.tenant for each in running)
        self.most_of_one_tenant = max(self.most_of_one_tenant, mine)
        await self.gate.wait()
        self.over.append(ticket.execution_id)


def ticket(name: str, tenant: str = "one", epoch: int = 1) -> QueueTicket:
    return QueueTicket(tenant, f"{name}-{uuid4()}", epoch)


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; threads run in real time."""
    with _outside(), anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - what happens on a thread has no event here
            await anyio.sleep(0.01)


def _outside() -> AbstractContextManager[None]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop.in_real_time()


@asynccontextmanager
async def attended(runner: DrainingRunner, turns: Turns) -> AsyncIterator[None]:
    with _outside():
        async with runner.serving(turns.advance):
            yield


async def test_a_queued_execution_runs_when_there_is_capacity(opener: Opener, work: Work) -> None:
    turns, waits = Turns(), ticket("a")
    async with opener(work.bug) as runner, attended(runner, turns):
        await runner.queue(waits)
        await until(lambda: turns.came == [waits])
        turns.gate.set()
        await until(lambda: runner.in_flight == 0)
    assert turns.over == [waits.execution_id]


async def test_a_runner_that_leaves_accepts_work_and_starts_no_queued_execution(opener: Opener, work: Work) -> None:
    turns, first, later = Turns(), ticket("a"), ticket("b")
    async with opener(work.bug) as runner, attended(runner, turns):
        await runner.queue(first)
        await until(lambda: turns.came == [first])
        assert not runner.is_leaving
        runner.leave()
        assert (runner.is_leaving, runner.is_draining) == (True, False)
        await until(lambda: all(thread.name != DEQUEUE_THREAD for thread in threading.enumerate()))
        await runner.admit()
        await runner.queue(later)
        runner.reserve().start("direct", work.until_let_go("direct"))
        work.gate.set()
        turns.gate.set()
        await until(lambda: runner.in_flight == 0)
    assert (turns.over, work.ended) == ([first.execution_id], ["direct"])


async def test_an_execution_queued_twice_runs_once(opener: Opener, work: Work) -> None:
    turns, waits, last = Turns(), ticket("a"), ticket("b")
    async with opener(work.bug) as runner, attended(runner, turns):
        for _ in range(3):
            await runner.queue(waits)
        await until(lambda: turns.came == [waits])
        await runner.queue(waits)
        turns.gate.set()
        await runner.queue(last)
        await until(lambda: len(turns.over) == 2)
    assert turns.came == [waits, last]


async def test_a_ticket_that_was_not_run_is_run_again(opener: Opener, work: Work) -> None:
    turns, waits = Turns(), ticket("a")
    turns.gate.set()
    async with opener(work.bug) as runner, attended(runner, turns):
        with anyio.fail_after(20):
            while len(turns.over) < 2:
                await runner.queue(waits)
                await anyio.sleep(0.05)
    assert set(turns.came) == {waits}


async def test_tickets_of_different_epochs_are_independent(opener: Opener, work: Work) -> None:
    turns, stale = Turns(), ticket("a")
    fresh = replace(stale, epoch=2)
    async with opener(work.bug) as runner, attended(runner, turns):
        await runner.queue(stale)
        await runner.queue(fresh)
        await until(lambda: len(turns.came) == 2)
        turns.gate.set()
        await until(lambda: len(turns.over) == 2)
    assert set(turns.came) == {stale, fresh}


async def test_the_limits_hold_in_all_and_for_each_tenant(opener: Opener, work: Work) -> None:
    turns = Turns()
    many, one = [ticket(str(number), "busy") for number in range(4)], ticket("other", "other")
    async with opener(work.bug) as runner, attended(runner, turns):
        for each in (*many, one):
            await runner.queue(each)
        await until(lambda: one in turns.came and len(turns.came) == MAX_IN_FLIGHT)
        turns.gate.set()
        await until(lambda: len(turns.over) == 5)
    assert max(turns.at_once) <= LIMITS.max_running
    assert turns.most_of_one_tenant == LIMITS.max_running_per_tenant


async def test_directly_started_executions_count_towards_the_limit(opener: Opener, work: Work) -> None:
    turns, waits = Turns(), ticket("a")
    turns.gate.set()
    async with opener(work.bug) as runner, attended(runner, turns):
        for number in range(MAX_IN_FLIGHT):
            runner.start(str(number), work.until_let_go(str(number)))
        await runner.queue(waits)
        await anyio.sleep(1)
        assert turns.came == []
        work.gate.set()
        await until(lambda: turns.came == [waits])


async def test_executions_beyond_the_queue_limit_are_refused(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        for number in range(LIMITS.max_waiting):
            await runner.admit()
            if isinstance(runner, LocalRunner):
                await runner.queue(ticket(str(number)))
        with pytest.raises(RequestFailure) as refused:
            await runner.admit()
    assert _code(refused) == (Code.REQUEST_OVERLOADED, 503, 1.0)


async def test_a_draining_runner_admits_and_starts_nothing(opener: Opener, work: Work) -> None:
    turns = Turns()
    async with opener(work.bug) as runner, attended(runner, turns):
        await runner.drain(work.cancel)
        with pytest.raises(RequestFailure) as refused:
            await runner.admit()
        await runner.queue(ticket("a"))
        await anyio.sleep(1)
    assert _code(refused) == (Code.REQUEST_SHUTTING_DOWN, 503, 1.0)
    assert turns.came == []


async def test_a_ticket_is_retried_after_a_storage_failure(opener: Opener, work: Work) -> None:
    faults, came = [StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")], []

    async def advance(ticket: QueueTicket) -> None:
        came.append(ticket)
        if faults:
            raise faults.pop()

    waits = ticket("a")
    with _outside():
        async with opener(work.bug) as runner, runner.serving(advance):
            await runner.queue(waits)
            await until(lambda: came == [waits, waits])
    assert work.bugs == []
