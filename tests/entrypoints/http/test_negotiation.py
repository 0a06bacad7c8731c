"""Kinds of responses, idempotency keys and disconnects, with a whole service."""

import anyio
import pytest

from tests.support.http_server import request_bytes
from tests.support.portico import EVENTS, IDEMPOTENCY_KEY, JSON_BODY, RESPOND_ASYNC, chat, events, portico
from tests.support.server_state import wait_for_disconnect, wait_for_idle, wait_for_running

SLOW = chat("[[slow:30]] Hello", request_id="r-1")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (chat("[[slow:30]] Hello", request_id="r-1"), RESPOND_ASYNC),
        (chat("[[slow:30]] Hello", request_id="r-1", background=True), {}),
        (chat("[[slow:30]] Hello", request_id="r-1", background=True), RESPOND_ASYNC),
    ],
    ids=["prefer", "background", "both"],
)
async def test_a_client_that_does_not_wait_gets_the_location_at_once(body: bytes, headers: dict[str, str]) -> None:
    async with portico() as (served, service):
        began = anyio.current_time()
        answer = await served.post(body, headers)
        assert anyio.current_time() - began < 5
        assert answer.status == 202
        assert answer.headers["location"] == "/v1/executions/r-1"
        assert answer.headers["preference-applied"] == "respond-async"
        assert answer.headers["x-request-id"] == "r-1"
        assert answer.headers["server-timing"].startswith("total;dur=")
        assert (answer.json["request_id"], answer.json["response"]) == ("r-1", None)
        await wait_for_idle(service)
        shown = (await served.get(answer.headers["location"])).json
    assert (shown["state"], shown["response"]["state"]) == ("COMPLETE", "COMPLETE")
    assert shown["response"]["metadata"]["durability"] == "journaled"


async def test_events_win_over_a_preference_and_the_execution_still_outlives_its_client() -> None:
    async with portico() as (served, service):
        async with served.connect() as client:
            await client.send(request_bytes("POST", "/v1/execute", JSON_BODY | EVENTS | RESPOND_ASYNC, SLOW))
            status, headers = await client.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert "preference-applied" not in headers
            await client.chunk()
        await wait_for_disconnect(served)
        await wait_for_idle(service)
        assert (await served.get("/v1/executions/r-1")).json["state"] == "COMPLETE"


@pytest.mark.parametrize("form", [{}, EVENTS], ids=["json", "events"])
@pytest.mark.parametrize(
    ("fields", "headers", "state"),
    [
        ({}, {}, "CANCELLED"),
        ({"on_disconnect": "continue"}, {}, "COMPLETE"),
        ({}, IDEMPOTENCY_KEY, "COMPLETE"),
        ({"on_disconnect": "cancel"}, IDEMPOTENCY_KEY, "CANCELLED"),
    ],
)
async def test_on_disconnect_defines_the_effect_of_a_disconnect(
    form: dict[str, str], fields: dict[str, str], headers: dict[str, str], state: str
) -> None:
    body = chat("[[slow:30]] Hello", request_id="r-1", **fields)
    async with portico() as (served, service):
        async with served.connect() as client:
            await client.send(request_bytes("POST", "/v1/execute", JSON_BODY | form | headers, body))
            await wait_for_running(service)
        await wait_for_disconnect(served)
        await wait_for_idle(service)
        assert (await served.get("/v1/executions/r-1")).json["state"] == state


async def test_the_same_key_and_body_gets_the_first_response() -> None:
    async with portico() as (served, _):
        first = await served.post(chat("Please calculate 17*3"), IDEMPOTENCY_KEY)
        again = await served.post(chat("Please calculate 17*3"), IDEMPOTENCY_KEY)
        streamed = await served.post(chat("Please calculate 17*3"), IDEMPOTENCY_KEY | EVENTS)
        located = await served.post(chat("Please calculate 17*3"), IDEMPOTENCY_KEY | RESPOND_ASYNC)
        listed = await served.get("/v1/executions")
    assert "idempotency-replayed" not in first.headers
    assert (again.status, again.json) == (200, first.json)
    for answer in (again, streamed, located):
        assert answer.headers["idempotency-replayed"] == "true"
        assert answer.headers["x-request-id"] == first.headers["x-request-id"]
    received = events(streamed)
    assert [event["sequence_number"] for event in received] == list(range(1, len(received) + 1))
    assert received[-1]["response"] == first.json
    assert (located.status, located.json["response"]) == (202, first.json)
    assert len(listed.json["data"]) == 1


async def test_the_response_of_a_failure_is_repeated_with_its_status() -> None:
    async with portico() as (served, _):
        first = await served.post(chat("[[fail:429]] Hello"), IDEMPOTENCY_KEY)
        again = await served.post(chat("[[fail:429]] Hello"), IDEMPOTENCY_KEY)
    assert (first.status, again.status) == (503, 503)
    assert again.json == first.json
    assert again.headers["x-should-retry"] == "true"


async def test_the_response_of_a_suspended_execution_is_repeated_with_its_suspensions() -> None:
    body = chat('Use ask_person: "May I?"')
    async with portico() as (served, _):
        first = await served.post(body, IDEMPOTENCY_KEY)
        again = await served.post(body, IDEMPOTENCY_KEY)
        streamed = await served.post(body, IDEMPOTENCY_KEY | EVENTS)
    assert (first.status, again.status, again.json) == (202, 202, first.json)
    assert events(streamed)[-1]["type"] == "execution.suspended"


async def test_the_same_key_with_another_body_is_refused() -> None:
    async with portico() as (served, _):
        await served.post(chat("Hello"), IDEMPOTENCY_KEY)
        answer = await served.post(chat("Goodbye"), IDEMPOTENCY_KEY)
        other = await served.post(chat("Goodbye"), {"Idempotency-Key": "k-2"})
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_IDEMPOTENCY_MISMATCH")
    assert other.status == 200


@pytest.mark.parametrize("form", [{}, EVENTS, RESPOND_ASYNC], ids=["json", "events", "async"])
async def test_a_key_whose_first_request_still_runs_is_a_conflict_with_its_location(form: dict[str, str]) -> None:
    async with portico() as (served, service):
        await served.post(SLOW, IDEMPOTENCY_KEY | RESPOND_ASYNC)
        answer = await served.post(SLOW, IDEMPOTENCY_KEY | form)
        assert service.runner.in_flight == 1
    assert (answer.status, answer.json["code"]) == (409, "REQUEST_IN_PROGRESS")
    assert answer.headers["location"] == "/v1/executions/r-1"
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("1", "true")


async def test_two_concurrent_requests_with_one_key_run_once() -> None:
    answers = []

    async def post() -> None:
        answers.append(await served.post(chat("[[slow:5]] Hello"), IDEMPOTENCY_KEY))

    async with portico() as (served, _):
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(post)
        listed = await served.get("/v1/executions")
    assert sorted(answer.status for answer in answers) == [200, 409]
    assert len(listed.json["data"]) == 1


async def test_a_background_execution_is_left_to_the_next_owner_without_a_final_event() -> None:
    async with portico(server={"drain_seconds": 1}) as (served, service), served.connect() as client:
        await client.send(request_bytes("POST", "/v1/execute", JSON_BODY | IDEMPOTENCY_KEY, SLOW))
        await wait_for_running(service)
        await service.drain()
        answer = await client.answer()
        assert (answer.status, answer.json["state"]) == (202, "EXECUTE")
        shown = (await served.get(answer.headers["location"])).json
    assert (shown["state"], shown["response"]) == ("EXECUTE", None)
