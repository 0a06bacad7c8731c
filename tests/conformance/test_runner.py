"""What every runner promises: admission, tasks of their own, drain."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import pytest

from app.adapters.durable.inline import InlineRunner
from app.domain.failures import Code, RequestFailure
from app.ports import Runner

MAX_IN_FLIGHT = 3
DRAIN_SECONDS = 30.0
LAST_WORDS = 1.5


class DrainingRunner(Runner, Protocol):
    """A runner as its owner sees it."""

    @property
    def in_flight(self) -> int: ...

    async def drain(self, cancel: Callable[[], None]) -> None: ...


OnBug = Callable[[str, Exception], None]
Opener = Callable[[OnBug], AbstractAsyncContextManager[DrainingRunner]]


@asynccontextmanager
async def _inline(on_bug: OnBug) -> AsyncIterator[DrainingRunner]:
    async with anyio.create_task_group() as group:
        yield InlineRunner(group, max_in_flight=MAX_IN_FLIGHT, drain_seconds=DRAIN_SECONDS, on_bug=on_bug)
        group.cancel_scope.cancel()


@pytest.fixture(params=[_inline], ids=["inline"])
def opener(request: pytest.FixtureRequest) -> Opener:
    found: Opener = request.param
    return found


@dataclass
class Work:
    """Bodies that run until they are let go or cancelled."""

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


async def test_a_body_runs_in_a_task_of_its_own(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        runner.start("a", work.until_let_go("a"))
        assert work.scopes == []
        await anyio.wait_all_tasks_blocked()
        assert len(work.scopes) == runner.in_flight == 1
        work.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert work.ended == ["a"]
        assert runner.in_flight == 0


async def test_a_body_outlives_whoever_started_it(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        with anyio.move_on_after(1) as starter:
            runner.start("a", work.until_let_go("a"))
            await anyio.sleep_forever()
        assert starter.cancelled_caught
        assert runner.in_flight == 1
        work.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert work.ended == ["a"]


async def test_b2_53_more_than_may_run_are_refused_until_one_ended(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        for number in range(MAX_IN_FLIGHT):
            runner.start(str(number), work.until_let_go(str(number)))
        with pytest.raises(RequestFailure) as refused:
            runner.start("more", nothing)
        assert _code(refused) == (Code.REQUEST_OVERLOADED, 503, 1.0)
        work.gate.set()
        await anyio.wait_all_tasks_blocked()
        runner.start("more", nothing)


async def test_i7_a_bug_in_one_execution_does_not_end_the_others(opener: Opener, work: Work) -> None:
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


async def test_b5_93_draining_refuses_new_work_at_once(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner, anyio.create_task_group() as owner:
        runner.start("a", work.until_let_go("a"))
        assert not runner.draining
        owner.start_soon(runner.drain, work.cancel)
        await anyio.wait_all_tasks_blocked()
        assert runner.draining
        with pytest.raises(RequestFailure) as refused:
            runner.start("b", nothing)
        assert _code(refused) == (Code.REQUEST_SHUTTING_DOWN, 503, 1.0)
        work.gate.set()


async def test_b5_93_draining_returns_as_soon_as_all_has_ended(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner, anyio.create_task_group() as owner:
        for number in range(MAX_IN_FLIGHT):
            runner.start(str(number), work.until_let_go(str(number)))
        began = anyio.current_time()
        owner.start_soon(_set_after, work.gate, DRAIN_SECONDS / 2)
        await runner.drain(work.cancel)
        assert anyio.current_time() - began == pytest.approx(DRAIN_SECONDS / 2)
        assert len(work.ended) == MAX_IN_FLIGHT
        assert work.cancels == 0


async def test_b5_93_draining_without_work_returns_at_once(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        began = anyio.current_time()
        await runner.drain(work.cancel)
        assert anyio.current_time() == began
        assert runner.draining
        assert work.cancels == 0


async def test_b5_93_what_still_runs_after_the_grace_period_is_cancelled(opener: Opener, work: Work) -> None:
    async with opener(work.bug) as runner:
        runner.start("a", work.until_let_go("a"))
        began = anyio.current_time()
        await runner.drain(work.cancel)
        assert anyio.current_time() - began == pytest.approx(DRAIN_SECONDS)
        assert work.ended == ["a"]
        assert work.cancels == 1


async def test_b5_93_work_that_ignores_its_cancel_does_not_hold_the_drain_up(opener: Opener, work: Work) -> None:
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
