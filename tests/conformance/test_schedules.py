"""Conformance of schedules on both databases: what becomes of each time, and that no time runs twice."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
from sqlalchemy import select

from portico.adapters.access.api_keys import ApiKeys
from portico.adapters.access.authenticators import BearerAuthenticator
from portico.adapters.runners.timers import TimerReports, TimerRunner
from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.database import Statement, execute
from portico.adapters.stores.schedules import DatabaseSchedules
from portico.adapters.stores.schema import webhook_deliveries
from portico.adapters.stores.timers import DatabaseTimerQueue, DatabaseTimers
from portico.capabilities.schedules.cron import Cron
from portico.domain.access.channels import SCHEDULE
from portico.domain.access.principal import LOCAL, AccessScope, Principal
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import AccessFailure, Code, Failure, RequestFailure, StorageFailure
from portico.domain.schedules import RunOutcome, Schedule, ScheduleOwner, ScheduleRun
from portico.domain.webhooks import WebhookEndpoint
from portico.orchestration.announcements import Announcements
from portico.orchestration.call import CallOptions
from portico.orchestration.channels import NO_CHANNELS, Channels
from portico.orchestration.later_rights import LaterRights
from portico.orchestration.schedules import ScheduleParts, ScheduleRequest, Schedules
from portico.ports.timers import DueTimer, TimerJob, TimerKind
from tests.support.entropy import SeededEntropy
from tests.support.stores import StoreReplica
from tests.support.virtual_time import VirtualClock

MINUTE = 60.0
_DELIVERIES = Statement(lambda _: select(webhook_deliveries.c.type, webhook_deliveries.c.body))
SCOPE = AccessScope(LOCAL.tenant)
REQUEST = {"messages": [{"role": "user", "content": "Hello"}]}


@dataclass
class Runs:
    """The executions of a service that the test stands in for: their ids, and those that have not ended.

    It is the facade, its executions, their store and the authentication at once. The `refusals` are raised one by one.
    """

    started: list[str] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    cancelled: list[str] = field(default_factory=list)
    refusals: list[Failure] = field(default_factory=list)
    has_access: bool = True
    stays_open: bool = False
    authenticator: BearerAuthenticator | None = None
    channels: Channels = NO_CHANNELS
    on_start: Callable[[str], Awaitable[None]] | None = None

    @property
    def executions(self) -> "Runs":
        return self

    async def execute(self, request: SystemRequest, principal: Principal, options: CallOptions) -> None:
        assert options.run_id is not None
        assert options.background
        assert principal.channel == SCHEDULE
        if self.refusals:
            raise self.refusals.pop(0)
        self.started.append(options.run_id)
        if self.stays_open:
            self.open.add(options.run_id)
        if self.on_start is not None:
            await self.on_start(options.run_id)

    async def find(self, scope: AccessScope, request_id: str) -> Any:
        if request_id not in self.started:
            return None
        return SimpleNamespace(status=SimpleNamespace(ended=request_id not in self.open))

    async def cancel(self, principal: Principal, request_id: str) -> bool:
        self.cancelled.append(request_id)
        self.open.discard(request_id)
        return True

    async def confirm(self, principal: Principal) -> Principal:
        if not self.has_access:
            raise AccessFailure(Code.ACCESS_UNAUTHENTICATED, "the key is unknown, revoked or expired")
        return principal if self.authenticator is None else await self.authenticator.confirm(principal)


class Replica:
    """One replica with its timers over a database; `run` is its task."""

    def __init__(self, here: StoreReplica, clock: VirtualClock, runs: Runs, name: str = "one") -> None:
        self.errors: list[Exception] = []
        self.database = here.database
        queue = DatabaseTimerQueue(here.database, TimerKind.SCHEDULE, name)
        self.store = DatabaseSchedules(here.database, name)
        self.timers = TimerRunner(
            DatabaseTimers(here.database, name),
            clock,
            alive=lambda: {"one", "two"},
            is_leaving=lambda: False,
            polls=True,
            reports=TimerReports(self.errors.append, self.errors.append),
        )
        facade: Any = runs
        callers: Any = runs
        rights = LaterRights(callers, runs.channels, "keys")
        parts: Any = {"executions": runs, "rights": rights, "clock": clock, "most": 2_000}
        self.timers.add(
            TimerJob(TimerKind.DELIVERY, DatabaseTimerQueue(here.database, TimerKind.DELIVERY, name), sent, 1)
        )
        self.announcements = Announcements([WebhookEndpoint("team", "https://team.example", None)], None)
        parts["announcements"] = self.announcements
        self.schedules = Schedules(
            facade,
            ScheduleParts(store=self.store, queue=queue, notices=self.timers, entropy=SeededEntropy(1), **parts),
        )
        self.timers.add(TimerJob(TimerKind.SCHEDULE, queue, self.schedules.run_due, 16))
        self.run = self.timers.run


async def sent(_timer: DueTimer) -> None:
    """Leave a delivery to the test."""


def schedule(name: str = "report", *, at: float | None, **changes: Any) -> Schedule:
    owner = ScheduleOwner(LOCAL.tenant, LOCAL.user, "key00001")
    values: dict[str, Any] = {
        "schedule_id": f"id-{name}",
        "name": name,
        "owner": owner,
        "cron": "* * * * *",
        "timezone": "UTC",
        "request": REQUEST,
        "overlap": "skip",
        "catch_up_seconds": 3600,
        "paused": False,
        "created_at": 1.0,
        "updated_at": 1.0,
        "planned_at": at,
    }
    return Schedule(**(values | changes))


def next_minute(clock: VirtualClock, minutes: int = 0) -> float:
    first = Cron("* * * * *", "UTC").next_after(clock.now())
    assert first is not None
    return first + minutes * MINUTE


async def outcomes(replica: Replica, name: str = "report") -> list[str]:
    """Return what became of the times of a schedule, the oldest first."""
    page = await replica.store.runs(SCOPE, name, after=None, limit=1_000)
    assert page is not None
    return [each.outcome for each in reversed(page.items)]


async def run_for(clock: VirtualClock, seconds: float, *replicas: Replica) -> None:
    async with anyio.create_task_group() as group:
        for each in replicas:
            group.start_soon(each.run)
        await clock.sleep(seconds)
        group.cancel_scope.cancel()
    assert [error for each in replicas for error in each.errors] == []


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def one(here: StoreReplica, clock: VirtualClock, runs: Runs) -> Replica:
    return Replica(here, clock, runs)


async def test_each_time_runs_once_under_its_name(one: Replica, clock: VirtualClock, runs: Runs) -> None:
    at = next_minute(clock)
    await one.store.put(schedule(at=at), most=1)
    await run_for(clock, 3 * MINUTE + 1, one)
    assert runs.started == [schedule(at=at).run_id(at + number * MINUTE) for number in range(len(runs.started))]
    assert len(runs.started) == 3
    assert await outcomes(one) == ["started"] * 3
    found = await one.store.find(SCOPE, "report")
    assert found is not None
    assert (found.planned_at, found.started_id) == (at + 3 * MINUTE, runs.started[-1])


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", ["started", "skipped", "skipped"]),
        ("cancel", ["started"] * 3),
        ("allow", ["started"] * 3),
    ],
)
async def test_a_run_before_that_has_not_ended_is_dealt_with(
    one: Replica, clock: VirtualClock, runs: Runs, overlap: str, expected: list[str]
) -> None:
    runs.stays_open = True
    await one.store.put(schedule(at=next_minute(clock), overlap=overlap), most=1)
    await run_for(clock, 3 * MINUTE + 1, one)
    assert await outcomes(one) == expected
    assert runs.cancelled == (runs.started[:-1] if overlap == "cancel" else [])


async def test_a_schedule_without_rights_is_refused_once_and_paused(
    one: Replica, clock: VirtualClock, runs: Runs
) -> None:
    runs.has_access = False
    await one.store.put(schedule(at=next_minute(clock)), most=1)
    await run_for(clock, 3 * MINUTE, one)
    found = await one.store.find(SCOPE, "report")
    assert found is not None
    assert found.planned_at is None
    assert found.paused_because is not None
    assert "revoked" in found.paused_because
    assert await outcomes(one) == ["refused"]
    assert found.last is not None
    assert found.last.code == Code.ACCESS_UNAUTHENTICATED
    runs.has_access = True
    again = await one.store.put(schedule(at=next_minute(clock), schedule_id="id-2"), most=1)
    assert again.paused_because is None
    assert again.planned_at is not None
    one.timers.notify(TimerKind.SCHEDULE, again.planned_at)
    await run_for(clock, MINUTE + 1, one)
    assert await outcomes(one) == ["refused", "started"]


@pytest.mark.parametrize(
    ("ends_in", "expected"),
    [(1.5 * MINUTE, ["started", "refused"]), (86_400.0, ["started", "started"]), (None, ["refused"])],
)
async def test_the_rights_of_a_token_hold_for_a_time(
    one: Replica, clock: VirtualClock, runs: Runs, ends_in: float | None, expected: list[str]
) -> None:
    at = next_minute(clock)
    runs.authenticator = BearerAuthenticator(clock, ApiKeys(DatabaseKeys(one.database), clock))
    owner = ScheduleOwner(LOCAL.tenant, LOCAL.user, expires_at=None if ends_in is None else at + ends_in - MINUTE)
    await one.store.put(schedule(at=at, owner=owner), most=1)
    await run_for(clock, 2 * MINUTE + 1, one)
    assert await outcomes(one) == expected
    found = await one.store.find(SCOPE, "report")
    assert found is not None
    assert (found.paused_because is None) == (expected[-1] == "started")
    assert found.paused_because is None or "30 days" in found.paused_because


@pytest.mark.parametrize("code", [Code.REQUEST_RATE_LIMITED, Code.REQUEST_SESSION_BUSY])
async def test_a_refused_run_is_recorded_and_the_next_one_comes(
    one: Replica, clock: VirtualClock, runs: Runs, code: Code
) -> None:
    runs.refusals = [RequestFailure(code, "not now", retry_after=1.0)]
    await one.store.put(schedule(at=next_minute(clock)), most=1)
    await run_for(clock, 2 * MINUTE + 1, one)
    assert await outcomes(one) == ["refused", "started"]


@pytest.mark.parametrize("code", [Code.REQUEST_OVERLOADED, Code.REQUEST_SHUTTING_DOWN])
async def test_overload_is_tried_again_until_the_next_time(
    one: Replica, clock: VirtualClock, runs: Runs, code: Code
) -> None:
    at = next_minute(clock)
    runs.refusals = [RequestFailure(code, "full", retry_after=1.0)] * 3
    await one.store.put(schedule(at=at), most=1)
    await run_for(clock, MINUTE + 30, one)
    assert runs.started == [schedule(at=at).run_id(at)]
    runs.refusals = [RequestFailure(code, "full", retry_after=1.0)] * 20
    await run_for(clock, 2 * MINUTE, one)
    assert await outcomes(one) == ["started", "missed", "started"]


async def test_a_database_that_is_away_for_a_moment_loses_no_time(
    one: Replica, clock: VirtualClock, runs: Runs
) -> None:
    runs.refusals = [StorageFailure(Code.STORAGE_UNAVAILABLE, "away")] * 2
    await one.store.put(schedule(at=next_minute(clock)), most=1)
    async with anyio.create_task_group() as group:
        group.start_soon(one.run)
        await clock.sleep(MINUTE + 30)
        group.cancel_scope.cancel()
    assert len(runs.started) == 1
    assert len(one.errors) == 1
    assert await outcomes(one) == ["started"]


@pytest.mark.parametrize(("catch_up", "last"), [(3600, "started"), (300, "missed"), (0, "missed")])
async def test_of_missed_times_the_last_one_runs_if_it_is_recent(
    one: Replica, clock: VirtualClock, runs: Runs, catch_up: int, last: str
) -> None:
    hour = Cron("0 * * * *", "UTC")
    now = clock.now()
    at = hour.latest(0, now, 4)[0]
    await clock.sleep(max(0.0, hour.latest(0, now, 1)[0] + 600 - now))  # ten minutes past the hour
    times = hour.latest(at - 1, clock.now(), 10)
    await one.store.put(schedule(at=at, cron="0 * * * *", catch_up_seconds=catch_up), most=1)
    await run_for(clock, 5, one)
    assert await outcomes(one) == [*["missed"] * (len(times) - 1), last]
    assert runs.started == ([schedule(at=at).run_id(times[-1])] if last == "started" else [])


async def test_a_changed_schedule_is_not_settled_by_a_run_of_the_earlier_one(
    one: Replica, clock: VirtualClock, runs: Runs
) -> None:
    at = next_minute(clock)

    async def change(_run: str) -> None:
        runs.on_start = None
        await one.store.put(schedule(at=at + 3600, cron="0 * * * *", schedule_id="changed"), most=1)

    runs.on_start = change
    await one.store.put(schedule(at=at), most=1)
    await run_for(clock, MINUTE + 1, one)
    found = await one.store.find(SCOPE, "report")
    assert found is not None
    assert (found.planned_at, found.cron, found.started_id) == (at + 3600, "0 * * * *", runs.started[0])


@pytest.mark.parametrize(("code", "announced"), [(Code.REQUEST_RATE_LIMITED, 1), (None, 0)])
async def test_a_refused_run_is_announced_in_the_commit_that_records_it(
    here: StoreReplica, one: Replica, clock: VirtualClock, runs: Runs, code: Code | None, announced: int
) -> None:
    runs.refusals = [] if code is None else [RequestFailure(code, "not now", retry_after=1.0)]
    at = next_minute(clock)
    await one.store.put(schedule(at=at), most=1)
    await run_for(clock, MINUTE, one)
    rows = await here.database.read(lambda: execute(_DELIVERIES, {}))
    assert len(rows) == announced
    for kind, body in rows:
        message = orjson.loads(body)
        assert (kind, message["type"]) == ("schedule.failed", "schedule.failed")
        assert message["data"] == {
            "schedule": "report",
            "tenant": LOCAL.tenant,
            "user": LOCAL.user,
            "at": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"),
            "outcome": "refused",
            "code": code,
            "times": 1,
        }


async def test_a_run_by_hand_is_recorded_and_changes_no_time(one: Replica, clock: VirtualClock, runs: Runs) -> None:
    at = next_minute(clock, 10)
    await one.store.put(schedule(at=at), most=1)
    started = await one.schedules.start(LOCAL, "report")
    assert runs.started == [started.request_id]
    found = await one.store.find(SCOPE, "report")
    assert found is not None
    assert (found.planned_at, found.started_id) == (at, started.request_id)
    assert await outcomes(one) == ["started"]


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.torture)])
async def test_many_schedules_on_two_replicas_run_once_though_one_is_killed(
    here: StoreReplica, clock: VirtualClock, runs: Runs, count: int
) -> None:
    one, two = Replica(here, clock, runs, "one"), Replica(here, clock, runs, "two")
    at = next_minute(clock)
    names = [f"s{number}" for number in range(count)]
    for name in names:
        await one.store.put(schedule(name, at=at), most=count)
    killed = anyio.CancelScope()

    async def kill(run_id: str) -> None:
        """End the first replica between the start of a run and its record."""
        if len(runs.started) == 30:
            killed.cancel()
        await anyio.lowlevel.checkpoint()

    runs.on_start = kill

    async def run_until_killed() -> None:
        with killed:
            await one.run()

    async with anyio.create_task_group() as group:
        group.start_soon(run_until_killed)
        group.start_soon(two.run)
        await clock.sleep(at - clock.now() + 20)
        assert killed.cancelled_caught
        await two.timers.release({"two"})
        await clock.sleep(20)
        group.cancel_scope.cancel()
    assert sorted(runs.started) == sorted(schedule(name, at=at).run_id(at) for name in names)
    page = await one.store.page(SCOPE, after=None, limit=count + 1)
    assert len(page.items) == count
    assert {(each.planned_at, each.last.outcome if each.last else None) for each in page.items} == {
        (at + MINUTE, RunOutcome.STARTED)
    }


async def test_while_none_is_due_half_a_statement_is_made_a_second_at_most(
    here: StoreReplica, clock: VirtualClock, runs: Runs
) -> None:
    one = Replica(here, clock, runs)
    await one.store.put(schedule(at=clock.now() + 86_400), most=1)
    asked: list[float] = []
    store: Any = one.timers._store
    state = store.state

    async def counted() -> Any:
        asked.append(clock.now())
        return await state()

    store.state = counted
    await run_for(clock, 100, one)
    assert len(asked) <= 55
    assert runs.started == []


async def test_a_page_of_schedules_goes_on_behind_the_last_one(one: Replica) -> None:
    for name in ("b", "a", "c"):
        await one.store.put(schedule(name, at=None), most=9)
    first = await one.store.page(SCOPE, after=None, limit=2)
    assert [each.name for each in first.items] == ["a", "b"]
    rest = await one.store.page(SCOPE, after=first.next, limit=2)
    assert ([each.name for each in rest.items], rest.next) == (["c"], None)


async def test_deleting_a_schedule_deletes_what_is_known_of_its_times(one: Replica) -> None:
    stored = await one.store.put(schedule(at=None), most=1)
    await one.store.record(stored, ScheduleRun(stored.run_id(5.0), 5.0, 5.0, RunOutcome.STARTED))
    assert await outcomes(one) == ["started"]
    assert await one.store.delete(SCOPE, "report")
    assert not await one.store.delete(SCOPE, "report")
    await one.store.put(schedule(at=None), most=1)
    assert await outcomes(one) == []


def test_a_request_of_a_schedule_is_checked_as_one_of_execute() -> None:
    asked = ScheduleRequest.model_validate({"cron": "0 8 * * *", "request": REQUEST})
    assert (asked.timezone, asked.overlap, asked.catch_up_seconds, asked.paused) == ("UTC", "skip", 3600, False)
