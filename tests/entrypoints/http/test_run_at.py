"""Delayed starts over HTTP: when they run, with which rights, how they are cancelled, and what is refused."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.bootstrap.service import Service
from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer
from tests.support.portico import EVENTS, portico
from tests.support.stores import in_own_task

GRANTS = {
    "ada": ("red", "ada", None),
    "eve": ("red", "eve", None),
    "bob": ("blue", "bob", None),
    "chief": ("red", "chief", ["can_view_tenant", "can_view_full_history", "can_manage_keys"]),
}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
HOUR = 3_600.0


@pytest.fixture
async def keyed(tmp_path: Path) -> AsyncIterator[tuple[dict[str, Caller], Service]]:
    async with in_own_task(callers(tmp_path, GRANTS)) as found:
        yield found


@pytest.fixture
def ada(keyed: tuple[dict[str, Caller], Service]) -> Caller:
    return keyed[0]["ada"]


def at(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


async def start(caller: Caller, run_at: str, headers: dict[str, str] | None = None, **fields: Any) -> HttpAnswer:
    return await caller.execute(orjson.dumps({**HELLO, "run_at": run_at, **fields}), **(headers or {}))


async def shown(caller: Caller, request_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await caller.get(f"/v1/executions/{request_id}")).json
    return found


async def ended(caller: Caller, request_id: str) -> dict[str, Any]:
    while True:
        found = await shown(caller, request_id)
        if found["state"] in {"COMPLETE", "ERROR", "CANCELLED"}:
            return found
        await anyio.sleep(0.1)


async def until_gone(caller: Caller, request_id: str) -> None:
    while True:
        if (await caller.get(f"/v1/executions/{request_id}")).status == 404:
            return
        await anyio.sleep(0.1)


async def test_an_execution_waits_in_init_and_starts_at_its_time(ada: Caller) -> None:
    run_at = at(0.5)
    accepted = await start(ada, run_at, EVENTS, request_id="later")
    assert (accepted.status, accepted.json["state"], accepted.json["started_at"]) == (202, "INIT", None)
    due = datetime.fromisoformat(run_at)
    assert datetime.fromisoformat(accepted.json["run_at"]) == due
    done = await ended(ada, "later")
    assert done["state"] == "COMPLETE"
    assert datetime.fromisoformat(done["run_at"]) == due
    assert datetime.fromisoformat(done["started_at"]) >= due
    assert done["created_at"] == accepted.json["created_at"]
    assert (await ada.send("POST", "/v1/executions/later/replay")).json["identical"]
    assert (await ada.get("/v1/executions/later/input")).json["run_at"] == run_at


async def test_the_past_is_now(ada: Caller) -> None:
    accepted = await start(ada, "2020-02-29T12:00:00.5+01:00", request_id="now")
    assert (accepted.status, accepted.json["run_at"]) == (202, "2020-02-29T11:00:00.500000Z")
    assert (await ended(ada, "now"))["state"] == "COMPLETE"


async def test_a_cancel_before_the_start_ends_it_and_leaves_nothing(ada: Caller, tmp_path: Path) -> None:
    await start(ada, at(HOUR), request_id="later", session_id="talk")
    assert (await ada.send("POST", "/v1/executions/later/cancel")).status == 202
    done = await ended(ada, "later")
    assert (done["state"], done["last_error"]["code"]) == ("CANCELLED", "CANCELLED_SIGNAL")
    await start(ada, at(HOUR), request_id="gone")
    assert (await ada.send("DELETE", "/v1/executions/gone")).status in {202, 204}
    await until_gone(ada, "gone")
    with closing(sqlite3.connect(tmp_path / "portico.db")) as database:
        assert database.execute("SELECT count(*) FROM delayed_starts").fetchone() == (0,)


async def test_what_waits_survives_a_restart_and_runs_with_the_rights_of_then(tmp_path: Path) -> None:
    """One session is busy at that time, one key is revoked, and one time has not come."""
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada, eve, chief = by_name["ada"], by_name["eve"], by_name["chief"]
        for name, session in (("one", "talk"), ("two", "talk"), ("three", None), ("much-later", None)):
            assert (await start(ada, at(HOUR), request_id=name, session_id=session)).status == 202
        await start(eve, at(HOUR), request_id="revoked")
        now = await ada.execute(orjson.dumps({**HELLO, "session_id": "talk"}))
        assert now.status == 200, "an execution that waits for its time has no turn yet"
        public_id = eve.headers["Authorization"][len("Bearer ptk_") :][:8]
        assert (await chief.send("DELETE", f"/v1/keys/{public_id}")).status < 300
    with closing(sqlite3.connect(tmp_path / "portico.db")) as database, database:
        database.execute(
            "UPDATE delayed_starts SET due_at = due_at - 7200, claimed_by = 'dead' WHERE timer_id NOT IN "
            "(SELECT execution_id FROM executions WHERE request_id = 'much-later')"
        )
    async with portico(storage={"url": f"sqlite:///{tmp_path}/portico.db"}, auth={"mode": "keys"}) as (served, _):
        ada, chief = Caller(served, ada.headers), Caller(served, chief.headers)
        states = [(await ended(ada, name))["state"] for name in ("one", "two", "three")]
        assert sorted(states) in (["COMPLETE", "COMPLETE", "COMPLETE"], ["COMPLETE", "COMPLETE", "ERROR"])
        assert (await shown(ada, "much-later"))["state"] == "INIT"
        revoked = await ended(chief, "revoked")
        assert (revoked["state"], revoked["last_error"]["code"]) == ("ERROR", "ACCESS_DENIED")
        assert revoked["last_error"]["message"] == "its key was revoked or has expired before it started"
        assert (await chief.send("POST", "/v1/executions/revoked/replay")).json["identical"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"run_at": "2026-12-01"}, "run_at"),
        ({"run_at": "2026-12-01T08:00:00"}, "run_at"),
        ({"run_at": "2026-13-01T08:00:00Z"}, "run_at"),
        ({"run_at": "0001-01-01T00:00:00+23:59"}, "run_at"),
        ({"run_at": "٢٠٢٦-12-01T08:00:00Z"}, "run_at"),
        ({"run_at": ""}, "run_at"),
        ({"run_at": 1_764_576_000}, "run_at"),
        ({"run_at": at(367 * 24 * HOUR)}, "run_at"),
        ({"run_at": at(HOUR), "store": False}, "run_at"),
        ({"run_at": at(HOUR), "background": True, "store": False}, "run_at"),
    ],
)
async def test_a_time_that_cannot_be_is_refused_with_its_field(ada: Caller, fields: dict[str, Any], field: str) -> None:
    refused = await ada.execute(orjson.dumps({**HELLO, **fields}))
    assert refused.status == 422, refused.json
    assert [each["field"] for each in refused.json["details"]["errors"]] == [field]
    assert (await ada.get("/v1/executions")).json["data"] == []
