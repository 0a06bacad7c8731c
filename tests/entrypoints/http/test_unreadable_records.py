"""Unreadable records: broken executions end, those of a newer version wait, and others are not affected."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.adapters.runners.maintenance import MAINTENANCE_INTERVAL_S
from portico.bootstrap.service import Service
from tests.support.http_server import RunningServer
from tests.support.portico import (
    ASK_PERSON,
    IDEMPOTENCY_KEY,
    RESPOND_ASYNC,
    chat,
    events,
    listed_ids,
    portico,
    resume,
    send_command,
    sequence_numbers,
)
from tests.support.server_state import wait_for_idle, wait_for_running

BROKEN, LATER = b"\x80\x04\x95", b"[99,{}]"
SLOW = "[[slow:60]] Hello"
MANY_SWEEPS = 10 * MAINTENANCE_INTERVAL_S


def forge(folder: Path, request_id: str, other: bytes) -> None:
    """Replace the stored header of the execution."""
    with closing(sqlite3.connect(folder / "portico.db", isolation_level=None)) as database:
        where = "number = 0 AND execution_id = (SELECT execution_id FROM executions WHERE request_id = ?)"
        changed = database.execute(f"UPDATE commits SET outcome = ? WHERE {where}", [other, request_id])
        assert changed.rowcount == 1


def tell_by_version(folder: Path, request_id: str, version: bytes) -> None:
    """Change the stored pattern version of the execution."""
    with closing(sqlite3.connect(folder / "portico.db", isolation_level=None)) as database:
        where = "number = 0 AND execution_id = (SELECT execution_id FROM executions WHERE request_id = ?)"
        (header,) = database.execute(f"SELECT outcome FROM commits WHERE {where}", [request_id]).fetchone()
        other = re.sub(rb'"pattern_version":\d+', b'"pattern_version":' + version, header, count=1)
        assert other != header
        database.execute(f"UPDATE commits SET outcome = ? WHERE {where}", [other, request_id])


def row_of(folder: Path, request_id: str) -> tuple[Any, ...]:
    with closing(sqlite3.connect(folder / "portico.db")) as database:
        return tuple(database.execute("SELECT * FROM executions WHERE request_id = ?", [request_id]).fetchone())


def has_no_bugs(metrics: bytes) -> bool:
    return set(re.findall(rb"^portico_bugs_total\{.*\} (.*)$", metrics, re.MULTILINE)) == {b"0.0"}


@asynccontextmanager
async def kept(folder: Path, **tables: Any) -> AsyncIterator[tuple[RunningServer, Service]]:
    """Run a service on a database file in the directory."""
    own: dict[str, Any] = {"storage": {"url": f"sqlite:///{folder}/portico.db"}, "server": {"drain_seconds": 0.1}}
    async with portico(**own | tables) as (served, service):
        yield served, service


async def interrupt(folder: Path, other: bytes) -> None:
    """Leave three executions that ran when their service ended, the second one with another header."""
    async with kept(folder) as (served, service):
        for name in ("first", "second", "third"):
            await served.post(chat(SLOW, request_id=name, session_id=f"s-{name}"), RESPOND_ASYNC)
        await wait_for_running(service, 3)
    forge(folder, "second", other)


async def test_a_broken_execution_ends_once_and_the_others_continue(tmp_path: Path) -> None:
    await interrupt(tmp_path, BROKEN)
    async with kept(tmp_path) as (served, service):
        await wait_for_idle(service)
        assert await listed_ids(served, "?state=COMPLETE") == ["third", "first"]
        assert await listed_ids(served, "?state=ERROR") == ["second"]
        shown = (await served.get("/v1/executions/second")).json
        received = events(await served.get("/v1/executions/second/events"))
        assert (await served.post(chat("Hello", session_id="s-second"))).status == 200
        before = row_of(tmp_path, "second")
        await anyio.sleep(MANY_SWEEPS)
        assert row_of(tmp_path, "second") == before
        assert (await send_command(served, "replay", "second")).json["code"] == "STORAGE_SNAPSHOT_INVALID"
        assert (await send_command(served, "cancel", "second")).status == 200
        counted = (await served.get("/metrics")).body
        assert (await served.get("/readyz")).status == 200
    response: Any = shown["response"]
    assert shown["last_error"] == response["error"]
    assert response["error"]["code"] == "STORAGE_SNAPSHOT_INVALID"
    assert sequence_numbers(received) == list(range(1, len(received) + 1))
    assert (received[-1]["type"], received[-1]["response"]) == ("execution.failed", response)
    assert {event["trace_id"] for event in received} == {response["trace_id"]}
    assert b'portico_executions_total{code="STORAGE_SNAPSHOT_INVALID",mode="chat",state="ERROR"} 1.0' in counted
    assert has_no_bugs(counted)


async def test_a_record_of_a_newer_version_waits_for_a_replica_that_can_read_it(tmp_path: Path) -> None:
    await interrupt(tmp_path, LATER)
    before = row_of(tmp_path, "second")
    async with kept(tmp_path) as (served, service):
        await wait_for_idle(service)
        assert await listed_ids(served, "?state=COMPLETE") == ["third", "first"]
        await anyio.sleep(MANY_SWEEPS)
        assert row_of(tmp_path, "second") == before
        assert (await served.post(chat("Hello", session_id="s-second"))).status == 409
        assert (await served.get("/readyz")).status == 200
        assert has_no_bugs((await served.get("/metrics")).body)
    assert row_of(tmp_path, "second") == before


@pytest.mark.parametrize(("version", "state"), [(b"99", "EXECUTE"), (b"0", "ERROR")], ids=["later", "earlier"])
async def test_an_execution_of_a_newer_pattern_version_waits_and_of_an_older_one_ends(
    tmp_path: Path, version: bytes, state: str
) -> None:
    await interrupt(tmp_path, LATER)
    tell_by_version(tmp_path, "third", version)
    async with kept(tmp_path) as (served, service):
        await wait_for_idle(service)
        await anyio.sleep(MANY_SWEEPS)
        shown = (await served.get("/v1/executions/third")).json
        assert await listed_ids(served, "?state=COMPLETE") == ["first"]
        assert has_no_bugs((await served.get("/metrics")).body)
        assert (await send_command(served, "cancel", "third")).status == (202 if state == "EXECUTE" else 200)
        await wait_for_idle(service)
        ended = (await served.get("/v1/executions/third")).json["state"]
    assert (shown["state"], ended) == (state, "CANCELLED" if state == "EXECUTE" else "ERROR")


@pytest.mark.parametrize(("other", "state"), [(BROKEN, "ERROR"), (LATER, "SUSPENDED")], ids=["broken", "later"])
async def test_a_suspension_expires_beside_an_unreadable_one(tmp_path: Path, other: bytes, state: str) -> None:
    async with kept(tmp_path) as (served, _):
        for name in ("first", "second"):
            await served.post(chat(ASK_PERSON, request_id=name))
        forge(tmp_path, "first", other)
        with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as database:
            database.execute("UPDATE suspensions SET expires_at = 0")
        await anyio.sleep(2 * MAINTENANCE_INTERVAL_S)
        assert (await served.get("/v1/executions/second")).json["state"] == "CANCELLED"
        assert (await served.get("/v1/executions/first")).json["state"] == state
        assert (await served.get("/readyz")).status == 200


async def test_cancelling_or_resuming_a_broken_execution_ends_it(tmp_path: Path) -> None:
    async with kept(tmp_path) as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        forge(tmp_path, "q", BROKEN)
        assert (await resume(served)).json["code"] == "STORAGE_SNAPSHOT_INVALID"
        assert (await served.get("/v1/executions/q")).json["state"] == "SUSPENDED"
        assert (await send_command(served, "cancel")).status == 200
        assert (await served.get("/v1/executions/q")).json["state"] == "ERROR"
        assert (await served.get("/v1/suspensions")).json["data"] == []


async def test_an_execution_of_a_newer_version_is_not_cancelled_here(tmp_path: Path) -> None:
    async with kept(tmp_path) as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        forge(tmp_path, "q", LATER)
        before = row_of(tmp_path, "q")
        refused = await send_command(served, "cancel")
        assert (refused.status, refused.json["code"]) == (409, "STORAGE_SNAPSHOT_INVALID")
        assert row_of(tmp_path, "q") == before


@pytest.mark.parametrize("other", [BROKEN, LATER], ids=["broken", "later"])
async def test_an_unreadable_response_does_not_answer_an_idempotency_key(tmp_path: Path, other: bytes) -> None:
    async with kept(tmp_path) as (served, _):
        assert (await served.post(chat("Hello", request_id="q"), IDEMPOTENCY_KEY)).status == 200
        with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as database:
            database.execute("UPDATE executions SET response = ?", [other])
        shown = (await served.get("/v1/executions/q")).json
        again = await served.post(chat("Hello", request_id="q"), IDEMPOTENCY_KEY)
        assert await listed_ids(served, "") == ["q"]
    assert (shown["state"], shown["response"]) == ("COMPLETE", None)
    error: Any = shown["last_error"]
    assert error["code"] == "STORAGE_SNAPSHOT_INVALID"
    assert (again.status, again.json["code"]) == (409, "STORAGE_SNAPSHOT_INVALID")


async def test_a_reader_of_a_broken_log_gets_a_retry_line(tmp_path: Path) -> None:
    async with kept(tmp_path) as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as database:
            database.execute("UPDATE commits SET events = ? WHERE events IS NOT NULL", [BROKEN])
        received = await served.get("/v1/executions/q/events")
    assert received.body == b"retry: 1000\n\n"
