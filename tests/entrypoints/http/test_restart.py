"""Restarts of a service on the same database file."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.portico import (
    ASK_PERSON,
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
        names = {"request_id": "q", "session_id": None, "user": "local", "agent": None}
        assert pending == [asked.json["suspensions"][0] | names]
        answer = await resume(served)
        assert (answer.status, answer.json["state"]) == (200, "COMPLETE")
        assert (await resume(served)).status == 409
    async with portico(**kept) as (served, _):
        again = await served.post(chat(ASK_PERSON, request_id="q"), IDEMPOTENCY_KEY)
    assert (again.status, again.json) == (200, answer.json)
    assert again.headers["idempotency-replayed"] == "true"
