"""Counts of executions over HTTP: what is counted for whom, the widened time, and how long a result is used."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from portico.domain.access.principal import LOCAL, AccessScope, Permissions, Principal
from portico.domain.ids import TenantId, UserId
from portico.domain.lifecycle import State
from portico.orchestration.statistics import Statistics, StatisticsSelection
from portico.ports.storage import CountSelection, ExecutionCount
from tests.support.callers import Caller, callers
from tests.support.portico import IDEMPOTENCY_KEY, chat, portico
from tests.support.server_state import wait_for_idle
from tests.support.virtual_time import VirtualClock

STATS = "/v1/stats"
DAY = timedelta(days=1)


def total(found: dict[str, Any]) -> int:
    return sum(sum(each["states"].values()) for each in found["buckets"])


async def test_executions_count_by_state_and_those_that_ended_by_duration() -> None:
    async with portico() as (served, _):
        before = datetime.now(UTC)
        assert (await served.post(chat("Hello"), IDEMPOTENCY_KEY)).status == 200
        assert (await served.post(chat('Use ask_person: "May I?"'), {"Idempotency-Key": "k-2"})).status == 202
        found = (await served.get(f"{STATS}?bucket=day")).json
        of_other_mode = (await served.get(f"{STATS}?bucket=day&mode=plan")).json
        by_name = [(await served.get(f"{STATS}?bucket=day&{query}")).json for query in ("model=rehearsal", "agent=x")]
    since, until = datetime.fromisoformat(found["since"]), datetime.fromisoformat(found["until"])
    assert since <= before < until
    assert (until - since) % DAY == timedelta(0)
    assert found["duration_bounds"] == [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0]
    states = {name: sum(each["states"].get(name, 0) for each in found["buckets"]) for name in State}
    assert {name: number for name, number in states.items() if number} == {"COMPLETE": 1, "SUSPENDED": 1}
    assert [len(each["durations"]) for each in found["buckets"]] == [11] * len(found["buckets"])
    assert sum(sum(each["durations"]) for each in found["buckets"]) == 1
    assert (of_other_mode["buckets"], list(map(total, by_name))) == ([], [2, 0])


async def test_only_what_the_caller_may_read_is_counted(tmp_path: Path) -> None:
    grants = {
        "ada": ("red", "ada", None),
        "eve": ("red", "eve", None),
        "bob": ("blue", "bob", None),
        "viewer": ("red", "viewer", ["can_view_tenant"]),
    }

    async with callers(tmp_path, grants) as (by_name, service):
        for name in ("ada", "ada", "eve", "bob"):
            assert (await by_name[name].execute(chat("Hello"), Prefer="respond-async")).status == 202
        await wait_for_idle(service)
        found = {name: total((await each.get(f"{STATS}?bucket=day")).json) for name, each in by_name.items()}
        assert (await Caller(by_name["ada"].served, {}).get(STATS)).status == 401
    assert found == {"ada": 2, "eve": 1, "bob": 1, "viewer": 3}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("until=2026-11-22T00:00:00Z&since=2026-11-22T00:00:00Z", "until"),
        ("until=2026-11-21T00:00:00Z&since=2026-11-22T00:00:00Z", "until"),
        ("since=2026-11-22T00:00:00Z&until=2026-11-23T01:00:00.001Z", "until"),
        ("bucket=hour&since=2026-01-01T00:00:00Z&until=2026-03-04T13:00:00Z", "until"),
        ("since=0001-01-01T00:00:00Z", "until"),
        ("until=9999-12-31T23:59:59Z&since=2026-01-01T00:00:00Z", "until"),
        ("bucket=day&since=9999-12-31T00:00:00Z&until=9999-12-31T12:00:00Z", "until"),
        ("since=0001-01-01T00:30:00%2B01:00&until=0001-01-01T00:00:00Z", "since"),
        ("bucket=week", "bucket"),
        ("since=yesterday", "since"),
        ("mode=shout", "mode"),
        ("state=COMPLETE", "state"),
    ],
)
async def test_what_cannot_be_counted_is_refused_by_name(query: str, field: str) -> None:
    async with portico() as (served, _):
        refused = await served.get(f"{STATS}?{query}")
        allowed = await served.get(f"{STATS}?since=2026-11-22T00:00:00Z&until=2026-11-23T01:00:00Z")
        odd = await served.get(f"{STATS}?since=2026-11-22T00:00:59.5Z&until={quote('2026-11-22T01:01:00.5+01:00')}")
        extremes = await served.get(f"{STATS}?bucket=day&since=0001-01-01T00:00:00Z&until=0001-01-02T00:00:00Z")
    assert (refused.status, [each["field"] for each in refused.json["details"]["errors"]]) == (422, [field])
    assert (allowed.status, odd.status, extremes.status) == (200, 200, 200)
    assert (odd.json["since"], odd.json["until"]) == ("2026-11-22T00:00:00Z", "2026-11-22T00:02:00Z")


class CountingStore:
    """A store of records that notes what is counted."""

    def __init__(self) -> None:
        self.asked: list[tuple[AccessScope, CountSelection]] = []

    async def counts(self, scope: AccessScope, where: CountSelection) -> Sequence[ExecutionCount]:
        self.asked.append((scope, where))
        return [ExecutionCount(int(where.since), State.COMPLETE, 3, len(self.asked))]


async def test_a_result_is_used_for_a_second_by_callers_with_the_same_rights(clock: VirtualClock) -> None:
    store: Any = CountingStore()
    statistics = Statistics(store, clock)
    viewer = Principal(TenantId("red"), UserId("ada"), permissions=Permissions.of(["can_view_tenant"]))
    other_viewer = Principal(TenantId("red"), UserId("eve"), permissions=viewer.permissions)
    until = datetime(2026, 11, 22, tzinfo=UTC)
    hour, minute = StatisticsSelection("hour", until=until), StatisticsSelection("minute", until=until)

    async def numbers(*asked: tuple[Principal, StatisticsSelection]) -> list[int]:
        views = [await statistics.read(*each) for each in asked]
        return [view.buckets[0].states[State.COMPLETE] for view in views]

    own = Principal(TenantId("red"), UserId("ada"), permissions=Permissions.of(["can_approve"]))
    assert await numbers((viewer, hour), (other_viewer, hour), (own, hour), (viewer, minute)) == [1, 1, 2, 3]
    await clock.sleep(0.9)
    assert await numbers((viewer, hour), (own, hour)) == [1, 2]
    await clock.sleep(0.2)
    assert await numbers((viewer, hour), (viewer, hour), (LOCAL, hour)) == [4, 4, 5]
