"""Restarts of a service on the same database file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.portico import (
    ASK_PERSON,
    EVENTS,
    IDEMPOTENCY_KEY,
    RESPOND_ASYNC,
    chat,
    events,
    portico,
    resume,
    sequence_numbers,
)
from tests.support.server_state import wait_for_idle, wait_for_running


@pytest.fixture
def kept(tmp_path: Path) -> dict[str, Any]:
    """Return the configuration of a service with a database file."""
    return {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"drain_seconds": 1}}


async def test_a_background_execution_continues_with_every_event_once(
    kept: dict[str, Any],
) -> None:
    async with portico(**kept) as (served, service):
        await served.post(chat("[[slow:60]] Please calculate 17*3", request_id="r-1"), RESPOND_ASYNC)
        await wait_for_running(service)
        assert (await served.get("/v1/executions/r-1")).json["state"] in {"INIT", "PREPARE", "EXECUTE"}
    async with portico(**kept) as (served, service):
        await wait_for_idle(service)
        shown = (await served.get("/v1/executions/r-1")).json
        received = events(await served.get("/v1/executions/r-1/events"))
    assert shown["state"] == "COMPLETE"
    assert shown["response"]["tool_calls_made"][0]["result"] == "51"
    assert sequence_numbers(received) == list(range(1, len(received) + 1))
    assert [event["type"] for event in received if event["type"].startswith("execution.")] == ["execution.completed"]


async def test_a_suspended_execution_survives_a_restart_and_is_resumed_once(kept: dict[str, Any]) -> None:
    async with portico(**kept) as (served, _):
        asked = await served.post(chat(ASK_PERSON, request_id="q"), IDEMPOTENCY_KEY)
    async with portico(**kept) as (served, _):
        pending = (await served.get("/v1/suspensions")).json["data"]
        names = {"request_id": "q", "session_id": None, "user": "local", "channel": "api", "agent": None}
        assert pending == [asked.json["suspensions"][0] | names]
        answer = await resume(served)
        assert (answer.status, answer.json["state"]) == (200, "COMPLETE")
        assert (await resume(served)).status == 409
    async with portico(**kept) as (served, _):
        again = await served.post(chat(ASK_PERSON, request_id="q"), IDEMPOTENCY_KEY)
    assert (again.status, again.json) == (200, answer.json)
    assert again.headers["idempotency-replayed"] == "true"


async def test_the_usage_of_what_was_answered_is_stored_when_it_is_answered(
    kept: dict[str, Any], tmp_path: Path
) -> None:
    stored = "SELECT count(DISTINCT source), sum(input_tokens + output_tokens) FROM usage"
    async with portico(**kept) as (served, _):
        answers = [await served.post(chat("Hello"), {"Idempotency-Key": f"k-{number}"}) for number in range(3)]
        answers.append(await served.post(chat(ASK_PERSON, request_id="q")))
        with closing(sqlite3.connect(tmp_path / "portico.db")) as database:
            before = database.execute(stored).fetchone()
        shown = (await served.get("/v1/usage")).json["data"]
        await resume(served)
        after = (await served.get("/v1/usage")).json["data"]
    taken = [answer.json["token_usage"]["total_tokens"] for answer in answers]
    assert before == (4, sum(taken))
    assert [(each["executions"], each["total_tokens"]) for each in shown] == [before]
    assert [each["executions"] for each in after] == [4]


async def test_the_id_of_a_stored_execution_is_refused_before_anything_runs(kept: dict[str, Any]) -> None:
    async with portico(**kept) as (served, _):
        first = await served.post(chat("Hello", request_id="q"))
    async with portico(**kept) as (served, _):
        before = (await served.get("/v1/usage")).json["data"]
        refused = [await served.post(chat("Bye", request_id="q"), each) for each in ({}, EVENTS)]
        after = (await served.get("/v1/usage")).json["data"]
        named = await served.post(chat("Hello"), {"X-Request-Id": "q"})
        shown = (await served.get("/v1/executions/q")).json["response"]
    assert [(each.status, each.json["code"]) for each in refused] == [(409, "REQUEST_ID_CONFLICT")] * 2
    assert before == after
    assert shown == first.json
    assert named.status == 200


async def test_of_two_requests_with_one_id_at_once_the_second_is_refused(kept: dict[str, Any]) -> None:
    async with portico(**kept) as (served, _):
        answers: list[int] = []

        async def send() -> None:
            answers.append((await served.post(chat("[[slow:5]] Hello", request_id="q"))).status)

        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(send)
    assert answers == [409, 200]
