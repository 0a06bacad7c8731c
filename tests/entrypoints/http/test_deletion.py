"""Deletion over HTTP: executions and sessions, their forks, and executions that are not stored."""

from typing import Any

import anyio
import pytest

from portico.adapters.runners.maintenance import MAINTENANCE_INTERVAL_S
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.portico import (
    ASK_PERSON,
    EVENTS,
    RESPOND_ASYNC,
    chat,
    events,
    listed_ids,
    portico,
    resume,
    send_command,
)
from tests.support.server_state import wait_for_running

UNSTORED = {"request_id": "q", "store": False}


async def delete(served: RunningServer, path: str = "/v1/executions/q") -> HttpAnswer:
    return await served.ask(request_bytes("DELETE", path, {}))


async def fork(served: RunningServer, name: str, session_id: str | None = None) -> str:
    """Return the request id of a new fork."""
    body = b'{"from_step": 0, "session_id": %b}' % (b"null" if session_id is None else f'"{session_id}"'.encode())
    forked: str = (await served.post(body, path=f"/v1/executions/{name}/fork")).json["request_id"]
    return forked


async def statuses(served: RunningServer, *routes: str) -> list[int]:
    return [(await served.get(f"/v1/executions/q{route}")).status for route in routes]


async def test_a_deleted_execution_is_unknown_and_its_id_and_key_are_free() -> None:
    key = {"Idempotency-Key": "k"}
    async with portico() as (served, _):
        for headers in (key, {}):
            await served.post(chat("Hello", request_id="q"), headers)
            gone = await delete(served)
            assert (gone.status, gone.body, gone.headers["x-request-id"]) == (204, b"", "q")
            assert await statuses(served, "", "/events", "/trace") == [404] * 3
            assert (await send_command(served, "replay")).status == 404
            assert await listed_ids(served, "") == []
            assert (await delete(served)).status == 404
        fresh = await served.post(chat("Hello again", request_id="q"), key)
        assert (fresh.status, "idempotency-replayed" in fresh.headers) == (200, False)


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}])
async def test_a_running_execution_is_stopped_and_deleted_at_its_end(headers: dict[str, str]) -> None:
    answers: list[HttpAnswer] = []

    async def ask() -> None:
        answers.append(await served.post(chat("[[slow:30]] Hello", request_id="q"), headers))

    async with portico() as (served, service):
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await wait_for_running(service, 1)
            deleted = await delete(served)
        assert (deleted.status, deleted.json["request_id"], deleted.json["response"]) == (202, "q", None)
        assert answers[0].json["error"]["code"] == "CANCELLED_SIGNAL"
        assert await statuses(served, "", "/events") == [404] * 2
        assert (await served.post(chat("Hello", request_id="q"), headers)).status == 200


async def test_a_suspended_execution_is_deleted_at_once_and_its_readers_see_its_end() -> None:
    logs: list[HttpAnswer] = []

    async def read() -> None:
        logs.append(await served.get("/v1/executions/q/events"))

    async with portico() as (served, _):
        await served.post(chat(ASK_PERSON, request_id="q"))
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert (await delete(served)).status == 204
        assert events(logs[0])[-1]["type"] == "execution.cancelled"
        assert (await served.get("/v1/suspensions")).json["data"] == []
        assert await statuses(served, "") == [404]


async def test_forks_are_named_and_deleted_only_if_asked() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        child = await fork(served, "q")
        grandchild = await fork(served, child)
        refused = await delete(served)
        assert (refused.status, refused.json["code"]) == (409, "REQUEST_HAS_FORKS")
        assert refused.json["details"] == {"forks": sorted([child, grandchild])}
        assert (await delete(served, "/v1/executions/q?forks=keep")).status == 422
        assert len(await listed_ids(served, "")) == 3
        assert (await delete(served, "/v1/executions/q?forks=delete")).status == 204
        assert await listed_ids(served, "") == []


async def test_a_session_with_forks_outside_is_deleted_only_if_asked() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q", session_id="s"))
        outside = await fork(served, "q", "t")
        refused = await delete(served, "/v1/sessions/s")
        assert (refused.status, refused.json["details"]) == (409, {"forks": [outside]})
        assert (await served.get("/v1/sessions/s/messages")).json["data"] != []
        assert (await delete(served, "/v1/sessions/s?forks=delete")).status == 204
        assert await listed_ids(served, "") == []
        assert (await served.get("/v1/sessions/t/messages")).json["data"] == []


async def test_a_turn_is_deleted_with_its_messages() -> None:
    async with portico() as (served, _):
        for name in ("p", "q", "r"):
            await served.post(chat(f"I am {name}.", request_id=name, session_id="s"))
        assert (await delete(served)).status == 204
        messages = (await served.get("/v1/sessions/s/messages")).json["data"]
        assert [each["content"] for each in messages if each["role"] == "user"] == ["I am p.", "I am r."]
        assert (await served.get("/v1/sessions/s")).json["messages"] == 4
        later = (await served.get("/v1/executions/r")).json
        assert later["response"]["state"] == "COMPLETE"
        assert "I am q." not in str(later)
        assert (await served.post(chat("Hello", session_id="s"))).status == 200


async def test_an_execution_that_is_not_stored_is_answered_and_gone() -> None:
    async with portico() as (served, _):
        for headers in ({}, EVENTS):
            answer = await served.post(chat("Hello", **UNSTORED), headers)
            assert answer.status == 200
            assert await statuses(served, "", "/events", "/trace") == [404] * 3
        assert events(answer)[-1]["response"]["state"] == "COMPLETE"
        assert await listed_ids(served, "") == []


async def test_an_execution_that_is_not_stored_is_stored_while_it_is_suspended() -> None:
    async with portico() as (served, _):
        assert (await served.post(chat(ASK_PERSON, **UNSTORED))).status == 202
        assert await statuses(served, "") == [200]
        copied = await served.post(b'{"from_step": 0, "session_id": "s"}', path="/v1/executions/q/fork")
        assert (copied.status, copied.json["detail"][:5]) == (422, "store")
        answered = await resume(served)
        assert (answered.status, answered.json["state"]) == (200, "COMPLETE")
        assert await statuses(served, "", "/events") == [404] * 2
        assert await listed_ids(served, "") == []


@pytest.mark.parametrize(
    ("fields", "headers"),
    [({"session_id": "s"}, {}), ({"background": True}, {}), ({}, RESPOND_ASYNC), ({}, {"Idempotency-Key": "k"})],
)
async def test_a_request_that_needs_to_be_stored_may_not_refuse_it(
    fields: dict[str, Any], headers: dict[str, str]
) -> None:
    async with portico() as (served, _):
        refused = await served.post(chat("Hello", **fields, **UNSTORED), headers)
        assert (refused.status, refused.json["code"]) == (422, "REQUEST_INVALID")
        assert [each["field"] for each in refused.json["details"]["errors"]] == ["store"]
        assert await listed_ids(served, "") == []


async def test_an_execution_that_came_after_it_counts_as_a_fork() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello", request_id="q"))
        await served.post(chat("And now?", request_id="r", after="q"))
        refused = await delete(served)
        assert (refused.status, refused.json["details"]) == (409, {"forks": ["r"]})
        assert (await delete(served, "/v1/executions/r")).status == 204
        assert (await delete(served)).status == 204


async def test_the_request_and_the_answer_outlive_the_steps() -> None:
    storage = {"url": "sqlite://", "event_retention_days": 1e-9}
    async with portico(storage=storage) as (served, _):
        await served.post(chat("Hello", request_id="q"))
        assert await statuses(served, "", "/input", "/trace") == [200] * 3
        await anyio.sleep(MAINTENANCE_INTERVAL_S * 2)
        assert await statuses(served, "", "/input", "/trace") == [200, 200, 404]
        assert (await served.get("/v1/executions/q/input")).json["messages"][0]["content"] == "Hello"
        assert (await served.get("/v1/executions/q")).json["response"]["state"] == "COMPLETE"
        assert (await served.post(chat("Go on.", after="q"))).status == 200


async def test_everything_is_gone_after_the_retention_of_answers() -> None:
    storage = {"url": "sqlite://", "event_retention_days": 7, "answer_retention_days": 1e-9}
    async with portico(storage=storage) as (served, _):
        await served.post(chat("Hello", request_id="q", session_id="s"))
        await anyio.sleep(MAINTENANCE_INTERVAL_S * 2)
        assert await statuses(served, "", "/input", "/events") == [404] * 3
        assert (await served.get("/v1/sessions/s")).status == 404
