"""Schedules over HTTP: what is stored, what runs at its time, and what is refused."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.bootstrap.service import Service
from portico.ports.runtime import Clock
from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer
from tests.support.portico import portico
from tests.support.stores import in_own_task

GRANTS = {
    "ada": ("red", "ada", None),
    "eve": ("red", "eve", None),
    "chief": ("red", "chief", ["can_send_messages", "can_view_tenant", "model:*"]),
    "reader": ("red", "reader", []),
    "bob": ("blue", "bob", None),
    "relay": ("red", "relay", ["can_act_for", "can_send_messages", "model:*"]),
}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
EVERY_MINUTE = "* * * * *"


@pytest.fixture
async def keyed(tmp_path: Path) -> AsyncIterator[tuple[dict[str, Caller], Service]]:
    async with in_own_task(callers(tmp_path, GRANTS)) as found:
        yield found


@pytest.fixture
def ada(keyed: tuple[dict[str, Caller], Service]) -> Caller:
    return keyed[0]["ada"]


async def put(caller: Caller, name: str = "report", **fields: Any) -> HttpAnswer:
    body = {"cron": EVERY_MINUTE, "request": HELLO, **fields}
    return await caller.send("PUT", f"/v1/schedules/{name}", orjson.dumps(body))


async def settled(caller: Caller, name: str) -> list[dict[str, Any]]:
    """Return the runs of a schedule once there are some and the last execution has ended."""
    while True:
        found = await runs_of(caller, name)
        if found and (found[0]["outcome"] != "started" or found[0]["state"] == "COMPLETE"):
            return found
        await anyio.sleep(0.1)


async def runs_of(caller: Caller, name: str = "report") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await caller.get(f"/v1/schedules/{name}/runs")).json["data"]
    return found


async def test_a_schedule_is_stored_shown_listed_and_deleted(ada: Caller) -> None:
    stored = await put(ada, cron="0 8 * * 1-5", timezone="Europe/Berlin", description="Every morning")
    assert stored.status == 201
    quote = stored.json["quote"]
    assert quote == (await ada.send("POST", "/v1/quote", orjson.dumps({**HELLO, "background": True}))).json
    assert stored.json == {
        "name": "report",
        "cron": "0 8 * * 1-5",
        "timezone": "Europe/Berlin",
        "request": stored.json["request"],
        "overlap": "skip",
        "catch_up_seconds": 3600,
        "paused": False,
        "description": "Every morning",
        "user": "ada",
        "created_at": stored.json["created_at"],
        "updated_at": stored.json["created_at"],
        "next_at": stored.json["next_at"],
        "paused_because": None,
        "last": None,
        "quote": quote,
    }
    assert stored.json["request"]["messages"][0]["content"] == "Hello"
    shown = await ada.get("/v1/schedules/report")
    assert (shown.status, shown.json) == (200, stored.json)
    assert (await ada.get("/v1/schedules")).json["data"] == [stored.json]
    again = await put(ada, paused=True)
    assert (again.status, again.json["next_at"], again.json["created_at"]) == (200, None, stored.json["created_at"])
    assert (await ada.send("DELETE", "/v1/schedules/report")).status == 204
    assert (await ada.get("/v1/schedules/report")).status == 404
    assert (await ada.get("/v1/schedules")).json["data"] == []


async def test_a_run_by_hand_starts_now_paused_or_not(ada: Caller, clock: Clock) -> None:
    await put(ada, paused=True)
    started = await ada.send("POST", "/v1/schedules/report/runs")
    assert started.status == 202
    request_id = started.json["request_id"]
    assert request_id.startswith("sched.report.manual.")
    await clock.sleep(1)
    [run] = await runs_of(ada)
    assert (run["request_id"], run["outcome"], run["state"]) == (request_id, "started", "COMPLETE")


async def test_a_schedule_that_a_relay_stores_runs_as_the_user_that_it_named(
    keyed: tuple[dict[str, Caller], Service], clock: Clock
) -> None:
    by_name, _ = keyed
    for_eve = Caller(by_name["relay"].served, {**by_name["relay"].headers, "portico-user": "eve"})
    assert (await put(for_eve, paused=True)).json["user"] == "eve"
    started = await for_eve.send("POST", "/v1/schedules/report/runs")
    run = (await by_name["eve"].get(f"/v1/executions/{started.json['request_id']}")).json
    assert (started.status, run["user"], run["channel"]) == (202, "eve", "schedule")


async def test_after_a_pause_of_the_service_the_last_time_runs_and_the_others_are_missed(tmp_path: Path) -> None:
    async with callers(tmp_path, {"ada": GRANTS["ada"]}) as (by_name, _):
        for name, fields in (("late", {"cron": "0 * * * *"}), ("strict", {"cron": "0 * * * *", "catch_up_seconds": 0})):
            await put(by_name["ada"], name, **fields)
        await put(by_name["ada"], "paused", paused=True)
        headers = by_name["ada"].headers
    with closing(sqlite3.connect(tmp_path / "portico.db")) as database, database:
        hours = "planned_at - 3600 * 3"
        database.execute(f"UPDATE schedules SET planned_at = {hours}, due_at = {hours}")
    async with portico(storage={"url": f"sqlite:///{tmp_path}/portico.db"}, auth={"mode": "keys"}) as (served, _):
        ada = Caller(served, headers)
        late = await settled(ada, "late")
        assert [each["outcome"] for each in late] == ["started", "missed", "missed"]
        assert [each["request_id"] is None for each in late] == [False, True, True]
        run = (await ada.get(f"/v1/executions/{late[0]['request_id']}")).json
        assert (run["user"], run["request_id"].split(".")[:2]) == ("ada", ["sched", "late"])
        assert run["channel"] == "schedule"
        assert late[0]["at"].replace("-", "").replace(":", "") == run["request_id"].split(".")[2]
        last = (await ada.get("/v1/schedules/late")).json["last"]
        assert (last["at"], last["request_id"], last["outcome"]) == (late[0]["at"], run["request_id"], "started")
        strict = await settled(ada, "strict")
        if strict[0]["outcome"] == "missed":  # a full hour within the last minute is on time
            assert [each["outcome"] for each in strict] == ["missed"] * 3
        assert await runs_of(ada, "paused") == []
        page = (await ada.get("/v1/schedules/late/runs?limit=2")).json
        rest = (await ada.get(f"/v1/schedules/late/runs?limit=2&after={page['next']}")).json
        assert [*page["data"], *rest["data"]] == late


async def test_users_and_tenants_have_their_own_schedules(keyed: tuple[dict[str, Caller], Service]) -> None:
    by_name, _ = keyed
    ada, eve, bob, chief = (by_name[name] for name in ("ada", "eve", "bob", "chief"))
    await put(ada)
    taken = await put(eve)
    assert (taken.status, taken.json["code"]) == (409, "REQUEST_ID_CONFLICT")
    assert (await put(bob)).status == 201
    for path in ("/v1/schedules/report", "/v1/schedules/report/runs"):
        assert (await eve.get(path)).status == 404
        assert (await chief.get(path)).status == 200
    for other in (eve, chief):
        assert (await other.send("DELETE", "/v1/schedules/report")).status == 404
        assert (await other.send("POST", "/v1/schedules/report/runs")).status == 404
    assert (await bob.send("DELETE", "/v1/schedules/report")).status == 204
    assert (await ada.get("/v1/schedules/report")).status == 200
    refused = await put(by_name["reader"])
    assert (refused.status, refused.json["details"]["permission"]) == (403, "can_send_messages")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "@daily"}, "cron"),
        ({"cron": "* * * * * *"}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"catch_up_seconds": -1}, "catch_up_seconds"),
        ({"overlap": "queue"}, "overlap"),
        ({"every": "day"}, "every"),
        ({"request": {**HELLO, "request_id": "mine"}}, "request.request_id"),
        ({"request": {**HELLO, "run_at": "2026-12-01T00:00:00Z"}}, "request.run_at"),
        ({"request": {**HELLO, "store": False}}, "request.store"),
        ({"request": {**HELLO, "model": "unknown"}}, "request.model"),
        ({"request": {"messages": []}}, "request.messages"),
    ],
)
async def test_what_cannot_run_is_refused_with_its_field(ada: Caller, fields: dict[str, Any], field: str) -> None:
    refused = await put(ada, **fields)
    assert refused.status == 422, refused.json
    assert [each["field"] for each in refused.json["details"]["errors"]] == [field]
    assert (await ada.get("/v1/schedules")).json["data"] == []


@pytest.mark.parametrize("path", ["/v1/execute", "/v1/quote"])
async def test_no_client_gives_an_execution_the_id_of_a_run(ada: Caller, path: str) -> None:
    refused = await ada.send("POST", path, orjson.dumps({**HELLO, "request_id": "sched.report.20260921T000000Z"}))
    assert refused.status == 422
    assert refused.json["details"]["errors"][0]["field"] == "request_id"


async def test_a_tenant_has_no_more_schedules_than_configured(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, limits={"schedules": 2}) as (by_name, _):
        assert [(await put(by_name["ada"], name)).status for name in ("a", "b")] == [201, 201]
        refused = await put(by_name["eve"], "c")
        assert (refused.status, refused.json["code"]) == (429, "REQUEST_RATE_LIMITED")
        assert (await put(by_name["ada"], "a")).status == 200
        assert (await put(by_name["bob"], "c")).status == 201


JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**30, "", " ", "x" * 5_000, "\x00", "\ud800", "* * * * * *", "*/1/2 * * * *"),
    *("0 0 * * 5L/2", "L-3 * * * *", "0 0 29 2 MON#5", "é * * * *", [], [1], {}, {"messages": None}),
    {**HELLO, "after": "nothing"},
    {**HELLO, "session_id": "new", "stream": True},
)


async def test_junk_in_any_field_is_stored_or_refused_and_never_an_internal_error(ada: Caller) -> None:
    fields = ("cron", "timezone", "request", "overlap", "catch_up_seconds", "paused", "description")
    for name in fields:
        for junk in JUNK:
            body = json.dumps({"cron": EVERY_MINUTE, "request": HELLO, "paused": True, name: junk}).encode()
            answer = await ada.send("PUT", "/v1/schedules/junk", body)
            assert answer.status in {200, 201, 400, 404, 422}, (name, junk, answer.body)
    for path in ("%00", "a" * 65, "a.b", "%2e%2e", "a%2fb", "é".encode().hex()):
        for method in ("GET", "PUT", "DELETE"):
            body = orjson.dumps({"cron": EVERY_MINUTE, "request": HELLO}) if method == "PUT" else None
            answer = await ada.send(method, f"/v1/schedules/{path}", body)
            assert answer.status < 500, (method, path, answer.body)
    for query in ("?limit=0", "?limit=x", "?after=x", "?what=1"):
        for list_path in ("/v1/schedules", "/v1/schedules/junk/runs"):
            assert (await ada.get(list_path + query)).status == 422
