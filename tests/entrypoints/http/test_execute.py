"""POST /v1/execute: the response, its status and every header that a client library reads."""

import orjson
import pytest

from portico.domain.contract.response import SystemError
from portico.domain.failures import Code, RequestFailure, failure
from portico.domain.lifecycle import State
from tests.support.fake_service import SPAN, TRACE, FakeRunning, fake_app
from tests.support.http_server import request_bytes, running_server
from tests.support.server_state import first_execution, wait_for_disconnect

CHAT = orjson.dumps({"request_id": "r-1", "messages": [{"role": "user", "content": "Hello"}]})


async def test_a_chat_is_answered_with_its_response_and_headers() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        answer = await served.post(CHAT)
    assert (answer.status, answer.json["content"], answer.json["state"]) == (200, "Hi", "COMPLETE")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == "r-1"
    assert answer.headers["traceparent"] == f"00-{TRACE}-{SPAN}-00"
    assert "x-should-retry" not in answer.headers
    assert [part.split(";")[0] for part in answer.headers["server-timing"].split(", ")] == [
        "total",
        "upstream",
        "overhead",
    ]


async def test_a_slow_chat_is_answered_when_it_ends() -> None:
    app, service = fake_app()
    async with running_server(app) as served, served.connect() as client:
        await client.send(request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT))
        running = await first_execution(service)
        running.complete()
        assert (await client.answer()).status == 200
        assert not running.cancelled


async def test_one_connection_carries_many_requests() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served, served.connect() as client:
        for _ in range(3):
            await client.send(request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT))
            assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    ("code", "condition", "status", "retry"),
    [
        (Code.INFERENCE_MODEL_UNAVAILABLE, None, 503, "true"),
        (Code.INFERENCE_ENGINE_ERROR, "transport", 502, "true"),
        (Code.INFERENCE_ENGINE_ERROR, "refused", 500, "false"),
        (Code.CANCELLED_TIMEOUT, None, 504, "false"),
        (Code.TOOL_TIMEOUT, "not idempotent", 500, "false"),
    ],
)
async def test_a_failed_execution_has_the_status_of_its_error(
    code: Code, condition: str | None, status: int, retry: str
) -> None:
    error = SystemError.of(failure(code, "why", details={"retry_after": 2.2}, condition=condition))
    app, service = fake_app()
    service.facade.started = lambda running: running.complete(state=State.ERROR, error=error, content=None)
    async with running_server(app) as served:
        answer = await served.post(CHAT)
    assert (answer.status, answer.headers["x-should-retry"]) == (status, retry)
    assert answer.headers["retry-after"] == "3"
    assert answer.headers["content-type"] == "application/json"


async def test_a_suspended_execution_is_202() -> None:
    app, service = fake_app()
    service.facade.started = lambda running: running.complete(state=State.SUSPENDED, content=None)
    async with running_server(app) as served:
        assert (await served.post(CHAT)).status == 202


async def test_a_refusal_before_the_execution_starts_is_a_problem_document() -> None:
    app, service = fake_app()
    service.facade.refusal = RequestFailure(Code.REQUEST_OVERLOADED, "too many", retry_after=1.0)
    async with running_server(app) as served:
        answer = await served.post(CHAT, {"Accept": "text/event-stream"})
    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("1", "true")
    assert answer.headers["x-request-id"] == "r-1"
    assert answer.json == {
        "type": "/v1/errors#REQUEST_OVERLOADED",
        "title": "The service is at its limit of running executions",
        "status": 503,
        "detail": "too many",
        "instance": "/requests/r-1",
        "request_id": "r-1",
        "code": "REQUEST_OVERLOADED",
        "category": "RequestFailure",
        "retryable": True,
        "message": "too many",
        "details": {"retry_after": 1.0},
        "caused_by": None,
    }


async def test_a_request_id_in_use_is_a_conflict() -> None:
    app, service = fake_app()
    service.facade.refusal = RequestFailure(Code.REQUEST_ID_CONFLICT, "request_id is in use")
    async with running_server(app) as served:
        answer = await served.post(CHAT)
    assert (answer.status, answer.json["code"], answer.json["request_id"]) == (409, "REQUEST_ID_CONFLICT", "r-1")


async def test_a_caller_s_trace_is_continued() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        await served.post(CHAT, {"traceparent": f"00-{TRACE}-{SPAN}-01"})
    calling = service.facade.calls[0]["calling"]
    assert (calling.trace_id, calling.parent_span_id) == (TRACE, SPAN)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x" * 4096,
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
    ],
)
async def test_a_bad_traceparent_is_regenerated(given: str) -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        answer = await served.post(CHAT, {"traceparent": given})
    assert answer.status == 200
    assert service.facade.calls[0]["calling"].trace_id is None


@pytest.mark.parametrize("field", ["request_id", "session_id"])
@pytest.mark.parametrize("given", ["a\r\nX-Evil: 1", "a\n", "a\u0000b", "x" * 4096, "é"])
async def test_an_id_that_could_forge_a_header_is_refused(field: str, given: str) -> None:
    app, _ = fake_app()
    async with running_server(app) as served:
        answer = await served.post(orjson.dumps({field: given, "messages": [{"role": "user", "content": "x"}]}))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert answer.json["details"]["errors"][0]["field"] == field
    assert "X-Evil" not in answer.body.decode()
    assert "x-evil" not in answer.headers


@pytest.mark.parametrize("raw", [b"a\x00b", b"a\nX-Evil: 1"])
async def test_control_characters_in_a_header_never_reach_an_answer(raw: bytes) -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    request = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json", "traceparent": "T"}, CHAT)
    async with running_server(app) as served:
        answer = await served.ask(request.replace(b"traceparent: T", b"traceparent: " + raw))
    assert "x-evil" not in answer.headers
    assert answer.status in {200, 400}


@pytest.mark.parametrize(
    ("accept", "streams"),
    [
        ("text/event-stream", True),
        ("application/json, text/event-stream;q=0.9", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("*/*", False),
        ("application/json", False),
        ("text/event-stream;q=0", False),
        ("image/png", False),
    ],
)
async def test_only_a_client_that_accepts_an_event_stream_gets_one(accept: str, streams: bool) -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        answer = await served.post(CHAT, {"Accept": accept})
    assert answer.status == 200
    assert (answer.headers["content-type"] == "text/event-stream") is streams


async def test_a_client_that_leaves_before_the_answer_cancels_the_execution() -> None:
    app, service = fake_app()
    async with running_server(app) as served:
        async with served.connect() as client:
            await client.send(request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT))
            running = await first_execution(service)
        await wait_for_disconnect(served)
        assert running.cancelled


@pytest.mark.parametrize("headers", [{}, {"Accept": "text/event-stream"}], ids=["json", "events"])
async def test_a_client_that_leaves_an_execution_that_outlives_it_cancels_nothing(
    headers: dict[str, str],
) -> None:
    app, service = fake_app()
    service.facade.started = lambda running: setattr(running, "outlives_client", True)
    async with running_server(app) as served:
        async with served.connect() as client:
            named = {"Content-Type": "application/json", **headers}
            await client.send(request_bytes("POST", "/v1/execute", named, CHAT))
            running = await first_execution(service)
        await wait_for_disconnect(served)
        assert not running.cancelled


async def test_an_execution_that_a_bug_ended_is_answered_with_500() -> None:
    app, service = fake_app()
    async with running_server(app) as served, served.connect() as client:
        await client.send(request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT))
        (await first_execution(service)).end_without_response()
        answer = await client.answer()
    assert (answer.status, answer.json["code"]) == (500, "ORCHESTRATION_INVALID_TRANSITION")


@pytest.mark.parametrize(
    ("prefer", "is_heeded"),
    [
        ("respond-async", True),
        ("wait=10, Respond-Async", True),
        ("respond-async; foo=1", True),
        ("respond-asynchronously", False),
        ("return=minimal", False),
        ("", False),
    ],
)
async def test_a_preference_is_read_as_rfc_7240_has_it(prefer: str, is_heeded: bool) -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served:
        await served.post(CHAT, {"Prefer": prefer, "Accept": "text/event-stream"})
    assert service.facade.calls[0]["calling"].background is is_heeded


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é", "a\tb"])
async def test_an_invalid_idempotency_key_is_refused_by_name(key: str) -> None:
    app, service = fake_app()
    raw = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json", "Idempotency-Key": "K"}, CHAT)
    async with running_server(app) as served:
        answer = await served.ask(raw.replace(b"Key: K", b"Key: " + key.encode("latin-1")))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert answer.json["details"]["errors"][0]["field"] == "Idempotency-Key"
    assert service.facade.calls == []


async def test_two_idempotency_keys_are_refused_and_the_longest_one_is_accepted() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    longest = "!" + "~" * 254
    named = {"Content-Type": "application/json", "Idempotency-Key": longest}
    raw = request_bytes("POST", "/v1/execute", named, CHAT)
    async with running_server(app) as served:
        twice = await served.ask(raw.replace(b"Idempotency-Key", b"Idempotency-Key: a\r\nIdempotency-Key"))
        once = await served.ask(raw)
    assert (twice.status, once.status) == (422, 200)
    assert [asked["calling"].idempotency_key for asked in service.facade.calls] == [longest]


async def test_a_client_that_leaves_with_a_second_request_in_the_pipeline_cancels_the_first() -> None:
    app, service = fake_app()
    whole = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT)
    async with running_server(app) as served:
        async with served.connect() as client:
            await client.send(whole + whole)
            running = await first_execution(service)
        await wait_for_disconnect(served)
        assert running.cancelled
        assert len(service.facade.running) == 1


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    whole = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT)
    async with running_server(app) as served, served.connect() as client:
        await client.send(whole * 3)
        assert [(await client.answer()).status for _ in range(3)] == [200, 200, 200]


async def test_a_client_that_leaves_while_it_sends_starts_no_execution() -> None:
    app, service = fake_app()
    whole = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT)
    async with running_server(app) as served:
        async with served.connect() as client:
            await client.send(whole[:-5])
        await wait_for_disconnect(served)
    assert service.facade.calls == []
