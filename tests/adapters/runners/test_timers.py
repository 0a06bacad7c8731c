"""Runner of timers: when it asks the database, what it claims, and what becomes of jobs that fail."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from portico.adapters.runners.timers import BUG_RETRY_S, POLL_INTERVAL_S, RETRY_S, TimerReports, TimerRunner
from portico.domain.failures import Code, StorageFailure
from portico.ports.timers import DueTimer, TimerJob, TimerKind, TimerState
from tests.support.virtual_time import EPOCH, VirtualClock

KIND = TimerKind.SCHEDULE
AWAY = StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")


@dataclass
class Rows:
    """Rows of one kind in memory, and the statements that were made; `is_away` is a database that does not answer."""

    due: dict[str, float] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    statements: list[str] = field(default_factory=list)
    is_away: bool = False
    loses_answers: bool = False
    left: set[str] = field(default_factory=set)
    """Rows that no claim takes, as those of an endpoint that has all of its places."""
    answers: Callable[[], Awaitable[None]] | None = None
    """Wait of a state that was read before its answer is there."""

    async def state(self) -> TimerState:
        self._made("state")
        free = [due_at for timer_id, due_at in self.due.items() if timer_id not in self.claimed]
        if self.answers is not None:
            await self.answers()
        return TimerState({KIND: min(free)} if free else {}, has_claims=bool(self.claimed))

    async def release(self, alive: Collection[str], running: Collection[str]) -> None:
        self._made("release")
        self.claimed &= set(running)

    async def claim(self, now: float, limit: int) -> Sequence[DueTimer]:
        self._made("claim")
        found = [each for each, at in self.due.items() if at <= now and each not in self.claimed | self.left]
        self.claimed |= set(found[:limit])
        if self.loses_answers:
            raise AWAY
        return [DueTimer(each, "acme", self.due[each]) for each in found[:limit]]

    async def postpone(self, timer: DueTimer, until: float) -> None:
        self._made("postpone")
        self.finish(timer, until)

    def finish(self, timer: DueTimer, due_at: float | None = None) -> None:
        self.claimed.discard(timer.timer_id)
        del self.due[timer.timer_id]
        if due_at is not None:
            self.due[timer.timer_id] = due_at

    def _made(self, name: str) -> None:
        self.statements.append(name)
        if self.is_away:
            raise AWAY


@dataclass
class Bench:
    """A runner over rows in memory; a job ends its row, unless the test gives another one."""

    clock: VirtualClock
    rows: Rows = field(default_factory=Rows)
    ran: list[tuple[str, float]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    bugs: list[Exception] = field(default_factory=list)
    at_once: int = 4
    job: Callable[[DueTimer], Awaitable[float | None]] | None = None
    is_leaving: bool = False

    @asynccontextmanager
    async def running(self, *, polls: bool = False) -> AsyncIterator[TimerRunner]:
        alive = {"me"}
        runner = TimerRunner(
            self.rows,
            self.clock,
            alive=lambda: alive,
            is_leaving=lambda: self.is_leaving,
            polls=polls,
            reports=TimerReports(self.errors.append, self.bugs.append),
        )
        runner.add(TimerJob(KIND, self.rows, self.run, self.at_once))
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run)
            await self.clock.sleep(0.001)
            yield runner
            group.cancel_scope.cancel()

    async def run(self, timer: DueTimer) -> float | None:
        self.ran.append((timer.timer_id, self.clock.now() - EPOCH))
        if self.job is not None:
            return await self.job(timer)
        self.rows.finish(timer)
        return None

    def store(self, runner: TimerRunner, timer_id: str, seconds: float) -> None:
        """Store a row here that is due in so many seconds."""
        due_at = self.rows.due[timer_id] = self.clock.now() + seconds
        runner.notify(KIND, due_at)


@pytest.fixture
def bench(clock: VirtualClock) -> Bench:
    return Bench(clock)


@pytest.mark.parametrize("polls", [False, True])
async def test_without_rows_nothing_is_asked_after_the_start(bench: Bench, polls: bool) -> None:
    async with bench.running(polls=polls):
        await bench.clock.sleep(600)
    assert bench.rows.statements == ["state"]


async def test_an_own_row_runs_at_its_time_and_nothing_is_asked_before(bench: Bench) -> None:
    async with bench.running() as runner:
        bench.store(runner, "a", 500.0)
        await bench.clock.sleep(499)
        assert bench.rows.statements == ["state"]
        await bench.clock.sleep(2)
    [(name, at)] = bench.ran
    assert name == "a"
    assert at == pytest.approx(500.001, abs=0.01)
    assert bench.rows.statements == ["state", "claim", "state"]


async def test_an_earlier_row_does_not_wait_for_a_later_one(bench: Bench) -> None:
    async with bench.running() as runner:
        bench.store(runner, "late", 100.0)
        bench.store(runner, "early", 10.0)
        await bench.clock.sleep(11)
        assert [name for name, _ in bench.ran] == ["early"]
        await bench.clock.sleep(100)
    assert [name for name, _ in bench.ran] == ["early", "late"]


async def test_rows_of_others_run_within_two_seconds_at_half_a_statement_a_second(bench: Bench) -> None:
    bench.rows.due["known"] = EPOCH + 10_000
    async with bench.running(polls=True):
        await bench.clock.sleep(100)
        asked = len(bench.rows.statements)
        assert 45 <= asked <= 55
        due_at = bench.rows.due["theirs"] = bench.clock.now()
        await bench.clock.sleep(POLL_INTERVAL_S + 0.1)
    [(name, at)] = bench.ran
    assert name == "theirs"
    assert at - (due_at - EPOCH) <= POLL_INTERVAL_S


async def test_the_first_row_of_another_replica_is_learnt_by_a_notice(bench: Bench) -> None:
    async with bench.running(polls=True) as runner:
        await bench.clock.sleep(60)
        bench.rows.due["theirs"] = bench.clock.now()
        runner.notify_rows()
        await bench.clock.sleep(0.1)
    assert [name for name, _ in bench.ran] == ["theirs"]


async def test_a_row_that_is_due_again_runs_again(bench: Bench) -> None:
    async def again(timer: DueTimer) -> float:
        due_at = timer.due_at + 60
        bench.rows.finish(timer, due_at)
        return due_at

    bench.job = again
    async with bench.running() as runner:
        bench.store(runner, "a", 60.0)
        await bench.clock.sleep(200)
    assert [round(at) for _, at in bench.ran] == [60, 120, 180]


async def test_no_more_jobs_run_at_once_than_allowed_and_none_is_lost(bench: Bench) -> None:
    running, most = 0, 0

    async def slow(timer: DueTimer) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await bench.clock.sleep(1)
        running -= 1
        bench.rows.finish(timer)

    bench.job = slow
    async with bench.running() as runner:
        for number in range(10):
            bench.store(runner, f"t{number}", 1.0)
        await bench.clock.sleep(6)
    assert most == bench.at_once
    assert sorted(name for name, _ in bench.ran) == [f"t{number}" for number in range(10)]
    assert len(bench.rows.statements) < 25


async def test_what_a_claim_leaves_is_looked_for_once_a_second_and_holds_up_no_other(bench: Bench) -> None:
    async def slow(timer: DueTimer) -> None:
        await bench.clock.sleep(0.05)
        bench.rows.finish(timer)

    bench.job = slow
    bench.rows.left.add("left")
    async with bench.running() as runner:
        bench.store(runner, "left", 0.0)
        await bench.clock.sleep(10)
        before = bench.rows.statements.count("claim")
        assert before <= 11
        bench.store(runner, "own", 0.0)
        await bench.clock.sleep(0.1)
        assert [name for name, _ in bench.ran] == ["own"]
        assert bench.rows.statements.count("claim") == before + 2, "its own claim, and one as its place is free again"
        bench.rows.left.clear()
        await bench.clock.sleep(RETRY_S)
    assert [name for name, _ in bench.ran] == ["own", "left"]


async def test_what_a_claim_left_is_claimed_at_once_if_a_job_ends_while_the_state_is_read(bench: Bench) -> None:
    async def short(timer: DueTimer) -> None:
        await bench.clock.sleep(0.05)
        bench.rows.finish(timer)
        bench.rows.left.clear()

    bench.job = short
    bench.rows.left.add("next")
    async with bench.running() as runner:
        bench.rows.answers = lambda: bench.clock.sleep(0.1)
        bench.store(runner, "first", 0.0)
        bench.store(runner, "next", 0.0)
        await bench.clock.sleep(RETRY_S / 2)
    assert [name for name, _ in bench.ran] == ["first", "next"]


async def test_claims_of_an_earlier_process_end_at_the_start(bench: Bench) -> None:
    bench.rows.due["left"] = EPOCH
    bench.rows.claimed.add("left")
    async with bench.running():
        await bench.clock.sleep(0.1)
    assert [name for name, _ in bench.ran] == ["left"]


async def test_a_claim_whose_answer_was_lost_runs_all_the_same(bench: Bench) -> None:
    bench.rows.loses_answers = True
    async with bench.running() as runner:
        bench.store(runner, "a", 0.0)
        await bench.clock.sleep(0.1)
        bench.rows.loses_answers = False
        assert bench.rows.claimed == {"a"}
        await bench.clock.sleep(2 * RETRY_S)
    assert [name for name, _ in bench.ran] == ["a"]
    assert len(bench.errors) == 1


async def test_a_database_that_is_away_is_reported_once_and_asked_again(bench: Bench) -> None:
    bench.rows.is_away = True
    async with bench.running():
        await bench.clock.sleep(30)
        assert 10 <= len(bench.rows.statements) <= 31
        bench.rows.is_away = False
        bench.rows.due["a"] = bench.clock.now()
        await bench.clock.sleep(2 * RETRY_S)
    assert [name for name, _ in bench.ran] == ["a"]
    assert bench.errors == [AWAY]


@pytest.mark.parametrize(("error", "seconds"), [(AWAY, RETRY_S), (ValueError("bug"), BUG_RETRY_S)])
async def test_a_job_that_fails_is_tried_again(bench: Bench, error: Exception, seconds: float) -> None:
    async def fail_once(timer: DueTimer) -> None:
        if len(bench.ran) == 1:
            raise error
        bench.rows.finish(timer)

    bench.job = fail_once
    async with bench.running() as runner:
        bench.store(runner, "a", 0.0)
        await bench.clock.sleep(seconds + 1)
    assert [round(at) for _, at in bench.ran] == [0, round(seconds)]
    assert [*bench.errors, *bench.bugs] == [error]


async def test_a_replica_that_leaves_claims_nothing_and_ends_with_the_last_job(bench: Bench) -> None:
    ended: list[str] = []

    async def slow(timer: DueTimer) -> None:
        await bench.clock.sleep(5)
        bench.rows.finish(timer)
        ended.append(timer.timer_id)

    bench.job = slow
    async with bench.running() as runner:
        bench.store(runner, "a", 0.0)
        await bench.clock.sleep(1)
        bench.is_leaving = True
        bench.store(runner, "b", 0.0)
        await bench.clock.sleep(60)
    assert ended == ["a"]
    assert [name for name, _ in bench.ran] == ["a"]
