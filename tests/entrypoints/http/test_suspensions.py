"""Suspended executions and their readers: resume, shutdown, and unexpected ends."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.bootstrap.service import PATTERNS, open_service
from portico.domain.lifecycle import Mode
from portico.domain.pattern_result import PatternResult
from portico.entrypoints.http.app import create_app
from portico.orchestration.execution.context import RunContext
from portico.settings import Settings
from tests.support.http_server import ClientConnection, HttpAnswer, RunningServer, request_bytes, running_server
from tests.support.portico import (
    ASK_PERSON,
    EVENTS,
    RESPOND_ASYNC,
    chat,
    events,
    portico,
    resume,
    send_command,
    sequence_numbers,
)
from tests.support.server_state import wait_for_idle, wait_for_running

KEEP_ALIVE = b": keep-alive\n\n"
RETRY = b"retry: 1000\n\n"
LOG = "/v1/executions/q/events"
KEPT = {"on_disconnect": "continue", "background": True}


@asynccontextmanager
async def reading(served: RunningServer, path: str = LOG) -> AsyncIterator[ClientConnection]:
    """Connect a reader of the events and read the head."""
    async with served.connect() as client:
        await client.send(request_bytes("GET", path, {}))
        assert (await client.head())[0] == 200
        yield client


async def events_until(client: ClientConnection, until: bytes) -> list[dict[str, Any]]:
    """Return the events up to a chunk with these bytes."""
    body = b""
    while until not in body:
        body += await client.chunk()
    return events(HttpAnswer(200, {}, body))


async def test_a_reader_continues_across_a_suspension_and_misses_nothing() -> None:
    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        async with reading(served) as client:
            received = await events_until(client, b"event: execution.suspended")
            assert await client.chunk() == KEEP_ALIVE
            assert (await resume(served)).status == 200
            received += await events_until(client, b"event: execution.completed")
            assert await client.chunk() == b""
        assert [each for each in received if "sequence_number" in each] == events(await served.get(LOG))
    assert sequence_numbers(received) == list(range(1, len(sequence_numbers(received)) + 1))
    assert "inference.delta" in {each["type"] for each in received}
    assert [each["type"] for each in received if each["type"].startswith("execution.")] == [
        "execution.suspended",
        "execution.resumed",
        "execution.completed",
    ]


async def test_a_reader_stays_at_a_suspension_where_the_stream_of_the_request_ends() -> None:
    async with portico() as (served, service), served.connect() as poster:
        asked = request_bytes(
            "POST",
            "/v1/execute",
            {"Content-Type": "application/json"} | EVENTS,
            chat(f"[[slow:5]] {ASK_PERSON}", request_id="q"),
        )
        await poster.send(asked)
        await wait_for_running(service)
        async with reading(served) as client:
            received = await events_until(client, b"event: execution.suspended")
            assert events(await poster.answer())[-1]["type"] == "execution.suspended"
            assert (await resume(served, {"Accept": "text/event-stream"})).status == 200
            received += await events_until(client, b"event: execution.completed")
    assert sequence_numbers(received) == list(range(1, len(sequence_numbers(received)) + 1))


async def test_a_reader_of_what_waits_is_sent_elsewhere_when_the_service_stops() -> None:
    async with portico() as (served, service):
        await served.post(chat(ASK_PERSON, request_id="q"))
        async with reading(served) as client:
            await events_until(client, b"event: execution.suspended")
            await service.drain()
            assert await client.chunk() == RETRY
            assert await client.chunk() == b""
        last = len(events(late := await served.get(LOG)))
        assert late.body.startswith(RETRY)
        assert (await served.get(f"{LOG}?after={last}")).body == RETRY


async def test_an_answer_is_not_taken_by_a_service_that_stops(tmp_path: Path) -> None:
    kept = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}}
    async with portico(**kept) as (served, service):
        await served.post(chat(ASK_PERSON, request_id="q"))
        await service.drain()
        refused = await resume(served)
        assert (refused.status, refused.json["code"]) == (503, "REQUEST_SHUTTING_DOWN")
    async with portico(**kept) as (served, _):
        assert (await resume(served)).json["state"] == "COMPLETE"


async def test_an_execution_that_finds_no_room_when_it_is_resumed_is_not_lost(tmp_path: Path) -> None:
    kept = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"max_in_flight": 1}}
    async with portico(**kept) as (served, service), served.connect() as client:
        await served.post(chat(ASK_PERSON, request_id="q"))
        await client.send(
            request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, chat("[[slow:30]] Hello"))
        )
        await wait_for_running(service)
        refused = await resume(served)
        assert (refused.status, refused.json["code"]) == (503, "REQUEST_OVERLOADED")
    async with portico(**kept) as (served, service):
        await wait_for_idle(service)
        assert (await served.get("/v1/executions/q")).json["state"] == "COMPLETE"


async def test_a_reader_of_an_execution_that_is_handed_over_gets_a_retry_line(tmp_path: Path) -> None:
    kept = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"drain_seconds": 1}}
    async with portico(**kept) as (served, service):
        await served.post(chat("[[slow:60]] Hello", request_id="q"), RESPOND_ASYNC)
        await wait_for_running(service)
        async with reading(served) as client:
            received = await events_until(client, b"event: inference.start")
            await service.drain()
            assert await client.chunk() == RETRY
            assert await client.chunk() == b""
    async with portico(**kept) as (served, _):
        rest = events(await served.get(f"{LOG}?after={len(received)}"))
    assert sequence_numbers(received + rest) == list(range(1, len(sequence_numbers(received + rest)) + 1))
    assert rest[-1]["type"] == "execution.completed"


async def returns_nonsense(_: RunContext) -> PatternResult:
    nonsense: Any = object()
    return PatternResult(nonsense)


async def raises(_: RunContext) -> PatternResult:
    raise ZeroDivisionError("a bug")


async def ends_nowhere(run: RunContext) -> PatternResult:
    """Return early, in a state from which the mode cannot end."""
    del run
    return PatternResult("done")


@pytest.mark.parametrize(
    ("mode", "broken"), [(Mode.CHAT, returns_nonsense), (Mode.CHAT, raises), (Mode.STRUCTURED, ends_nowhere)]
)
async def test_an_execution_that_a_bug_ends_has_failed_with_events(
    mode: Mode, broken: Callable[[RunContext], Any]
) -> None:
    settings = Settings.model_validate({"storage": {"url": "sqlite://"}})
    app = create_app(settings, lambda settings: open_service(settings, {mode: replace(PATTERNS[mode], run=broken)}))
    asked = {"mode": mode, "output": {"schema": {"type": "object"}}} if mode is Mode.STRUCTURED else {}
    async with running_server(app) as served:
        await served.post(chat("Hello", request_id="q", **asked), RESPOND_ASYNC)
        await wait_for_idle(app.state.service)
        shown = (await served.get("/v1/executions/q")).json
        received = events(await served.get(LOG))
        assert b'portico_bugs_total{place="execution"} 1.0' in (await served.get("/metrics")).body
    assert (shown["state"], shown["response"]["error"]["code"]) == ("ERROR", "ORCHESTRATION_INVALID_TRANSITION")
    assert [each["type"] for each in received][-2:] == ["lifecycle.transition", "execution.failed"]
    assert received[-1]["response"] == shown["response"]


@asynccontextmanager
async def with_two_questions(tmp_path: Path, *then: dict[str, Any]) -> AsyncIterator[RunningServer]:
    """Run a service whose model suspends twice in one round, then answers, unless it has other replies."""
    asks = [{"name": "ask_person", "arguments": {"question": who}} for who in ("First?", "Second?")]
    (tmp_path / "replies.json").write_bytes(
        orjson.dumps([{"tool_calls": asks}, *(then or [{"text": "Both answered"}])])
    )
    engine = {"model": f"scripted:///{tmp_path}/replies.json"}
    async with portico(engines={"only": engine}) as (served, _):
        await served.post(chat("Ask them", request_id="q"))
        yield served


async def test_suspensions_are_answered_one_by_one_in_any_order(tmp_path: Path) -> None:
    async with with_two_questions(tmp_path) as served:
        first, second = (await served.get("/v1/executions/q")).json["suspensions"]
        ambiguous = await resume(served)
        assert (ambiguous.status, ambiguous.json["code"]) == (409, "REQUEST_RESUME_MISMATCH")
        half = await resume(served, suspension_id=second["suspension_id"], payload="two")
        assert (half.status, half.json["state"], half.json["suspensions"]) == (202, "SUSPENDED", [first])
        pending = (await served.get("/v1/suspensions")).json["data"]
        assert [each | first for each in pending] == pending
        again = await resume(served, suspension_id=second["suspension_id"], payload="other")
        assert (again.status, again.json["code"]) == (409, "REQUEST_RESUME_MISMATCH")
        whole = await resume(served, payload="one")
        received = events(await served.get(LOG))
    assert (whole.status, whole.json["content"]) == (200, "Both answered")
    assert [call["result"] for call in whole.json["tool_calls_made"]] == ["one", "two"]
    assert sequence_numbers(received) == list(range(1, len(received) + 1))
    resumed = [each["suspension_id"] for each in received if each["type"] == "execution.resumed"]
    assert resumed == [second["suspension_id"], first["suspension_id"]]


async def test_a_live_reader_gets_every_answer_when_it_is_accepted(tmp_path: Path) -> None:
    async with with_two_questions(tmp_path) as served, reading(served) as client:
        (_, second) = (await events_until(client, b"event: execution.suspended"))[-1]["suspensions"]
        await resume(served, suspension_id=second["suspension_id"])
        (received,) = await events_until(client, b"event: execution.resumed")
        assert (received["suspension_id"], received["resumed_by"]) == (second["suspension_id"], "local")
        with anyio.fail_after(20):
            assert await client.chunk() == KEEP_ALIVE


@pytest.mark.parametrize("form", [{}, RESPOND_ASYNC], ids=["plain", "async"])
async def test_an_answer_that_leaves_suspensions_open_gets_the_status(tmp_path: Path, form: dict[str, str]) -> None:
    async with with_two_questions(tmp_path) as served:
        first, second = (await served.get("/v1/executions/q")).json["suspensions"]
        half = await resume(served, form, suspension_id=first["suspension_id"])
    assert (half.status, half.json["suspensions"]) == (202, [second])


@asynccontextmanager
async def half_answered(
    served: RunningServer,
) -> AsyncIterator[tuple[ClientConnection, dict[str, Any], dict[str, Any]]]:
    """Answer the first of two suspensions; return the stream, its first event and the other suspension."""
    asked: Any = (await served.get("/v1/executions/q")).json["suspensions"]
    body = orjson.dumps({"tool_id": "ask_person", "payload": "one", "suspension_id": asked[0]["suspension_id"]})
    headers = {"Content-Type": "application/json", **EVENTS}
    async with served.connect() as client:
        await client.send(request_bytes("POST", "/v1/executions/q/resume", headers, body))
        status, answered = await client.head()
        assert (status, answered["content-type"], answered["location"]) == (200, "text/event-stream", LOG)
        (received,) = await events_until(client, b"event: execution.resumed")
        assert received["suspension_id"] == asked[0]["suspension_id"]
        yield client, received, asked[1]


@pytest.mark.parametrize(
    ("then", "last"),
    [
        ([{"text": "Both answered"}], "execution.completed"),
        ([{"tool_calls": [{"name": "ask_person", "arguments": {"question": "Third?"}}]}], "execution.suspended"),
    ],
)
async def test_an_answer_that_leaves_suspensions_open_gets_events_to_the_end_or_the_next_suspension(
    tmp_path: Path, then: list[dict[str, Any]], last: str
) -> None:
    async with (
        with_two_questions(tmp_path, *then) as served,
        half_answered(served) as (client, first, other),
    ):
        with anyio.fail_after(20):
            assert await client.chunk() == KEEP_ALIVE
        whole = await resume(served, payload="two", suspension_id=other["suspension_id"])
        rest = b""
        while piece := await client.chunk():
            rest += piece
        received = events(HttpAnswer(200, {}, rest))
    assert received[-1]["type"] == last
    assert received[-1]["response"] == whole.json
    assert sequence_numbers([first, *received]) == list(
        range(first["sequence_number"], received[-1]["sequence_number"] + 1)
    )


async def test_a_reader_of_a_partly_answered_execution_stops_nothing_and_sees_a_cancel(tmp_path: Path) -> None:
    async with with_two_questions(tmp_path) as served:
        async with half_answered(served) as (_, _, other):
            pass
        assert (await served.get("/v1/executions/q")).json["suspensions"] == [other]
    async with with_two_questions(tmp_path) as served, half_answered(served) as (client, _, _):
        await send_command(served, "cancel")
        assert (await events_until(client, b"event: execution.cancelled"))[-1]["type"] == "execution.cancelled"
        assert await client.chunk() == b""


async def test_a_reader_of_a_partly_answered_execution_is_dismissed_at_a_shutdown(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_bytes(
        orjson.dumps([{"tool_calls": [{"name": "ask_person", "arguments": {"question": "?"}}] * 2}])
    )
    tables = {"engines": {"only": {"model": f"scripted:///{tmp_path}/replies.json"}}}
    async with portico(**tables) as (served, service):
        await served.post(chat("Ask them", request_id="q"))
        async with half_answered(served) as (client, _, _):
            await service.drain()
            assert await client.chunk() == RETRY
            assert await client.chunk() == b""


async def test_a_replay_skips_an_answer_without_a_continuation(tmp_path: Path) -> None:
    async with with_two_questions(tmp_path) as served:
        before = (await send_command(served, "replay")).json
        (first, _) = (await served.get("/v1/executions/q")).json["suspensions"]
        await resume(served, suspension_id=first["suspension_id"])
        assert (await send_command(served, "replay")).json == before
    assert before["identical"] is True


@pytest.mark.parametrize("forged", [b"[99,{}]", b"\x80\x04\x95", None], ids=["format", "bytes", "meaning"])
async def test_an_answer_is_refused_if_the_history_diverges_from_the_pattern(
    tmp_path: Path, forged: bytes | None
) -> None:
    """A history that differs from the pattern is as useless as one that cannot be read."""
    async with portico(storage={"url": f"sqlite:///{tmp_path}/portico.db"}) as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as database:
            (genuine,) = database.execute("SELECT outcome FROM commits WHERE number = 0").fetchone()
            other = genuine.replace(b"May I?", b"May U?") if forged is None else forged
            database.execute("UPDATE commits SET outcome = ? WHERE number = 0", [other])
            refused = await resume(served)
            assert (await served.get("/v1/executions/q")).json["state"] == "SUSPENDED"
            database.execute("UPDATE commits SET outcome = ? WHERE number = 0", [genuine])
        taken = await resume(served)
    assert (refused.status, refused.json["code"]) == (409, "STORAGE_SNAPSHOT_INVALID")
    assert (taken.status, taken.json["state"]) == (200, "COMPLETE")


@pytest.mark.parametrize("by", ["the clock", "a client"])
async def test_an_execution_that_ends_at_full_capacity_ends_when_there_is_room(tmp_path: Path, by: str) -> None:
    tables: dict[str, Any] = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"max_in_flight": 1}}
    async with portico(**tables) as (served, service):
        await served.post(chat(ASK_PERSON, request_id="q"))
        await served.post(chat("[[slow:100]] Hello", request_id="long"), RESPOND_ASYNC)
        await wait_for_running(service)
        if by == "a client":
            assert (await send_command(served, "cancel")).status == 202
        else:
            with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as database:
                database.execute("UPDATE suspensions SET expires_at = 0")
        await anyio.sleep(40)
        assert (await served.get("/readyz")).status == 200
        assert (await resume(served)).json["code"] == "REQUEST_RESUME_UNEXPECTED"
        await wait_for_idle(service)
        await anyio.sleep(40)
        states = [(await served.get(f"/v1/executions/{each}")).json["state"] for each in ("long", "q")]
    assert states == ["COMPLETE", "CANCELLED"]


@pytest.mark.parametrize("form", ["stream", "reader"])
async def test_a_reader_of_an_execution_whose_records_were_erased_reads_on_to_its_end(
    tmp_path: Path, form: str
) -> None:
    async with (
        portico(storage={"url": f"sqlite:///{tmp_path}/portico.db"}) as (served, service),
        served.connect() as it,
    ):
        headers = {"Content-Type": "application/json"} | (EVENTS if form == "stream" else RESPOND_ASYNC)
        await it.send(request_bytes("POST", "/v1/execute", headers, chat("[[slow:5]] Hello", request_id="q", **KEPT)))
        await wait_for_running(service)
        if form == "reader":
            await it.answer()
            await it.send(request_bytes("GET", LOG, {}))
        assert (await it.head())[0] == 200
        await events_until(it, b"event: inference.start")
        with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as database:
            database.execute("DELETE FROM executions")
        received = b""
        while piece := await it.chunk():
            received += piece
        await wait_for_idle(service)
    assert received.count(b"event: execution.") == received.count(b"event: execution.completed") == 1
