"""A whole service over HTTP, answered by the rehearsal engine."""

import gc
import re
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.domain.failures import Code, StorageFailure
from portico.entrypoints.http.protocol import BoundedProtocol
from portico.orchestration.execution.execution import Execution
from tests.support.file_size import limited_file_size, wal_size
from tests.support.http_server import request_bytes
from tests.support.portico import EVENTS, IDEMPOTENCY_KEY, RESPOND_ASYNC, chat, events, portico
from tests.support.server_state import wait_for_disconnect


async def test_a_chat_with_a_tool_call_is_answered_as_json() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Please calculate 17*3", request_id="r-1", metadata={"for": "tests"}))
    assert answer.status == 200
    assert (answer.json["state"], answer.json["request_id"], answer.headers["x-request-id"]) == (
        "COMPLETE",
        "r-1",
        "r-1",
    )
    (call,) = answer.json["tool_calls_made"]
    assert (call["name"], call["result"], call["is_error"]) == ("calculate", "51", False)
    assert "51" in answer.json["content"]
    assert answer.json["metadata"]["client"] == {"for": "tests"}
    assert answer.headers["traceparent"].split("-")[1] == answer.json["trace_id"]


async def test_a_chat_with_a_tool_call_is_answered_as_events() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Please calculate 17*3"), EVENTS)
    log = events(answer)
    numbered = [event["sequence_number"] for event in log if "sequence_number" in event]
    assert numbered == list(range(1, len(numbered) + 1))
    assert [event["type"] for event in log if event["type"].startswith("execution.")] == ["execution.completed"]
    assert log[-1]["response"]["tool_calls_made"][0]["result"] == "51"
    assert {"tool.start", "tool.end", "inference.start", "inference.delta"} <= {event["type"] for event in log}
    text = "".join(event["text"] for event in log if event["type"] == "inference.delta" and event["segment"] != "0/0")
    assert text == log[-1]["response"]["content"]


@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["json", "events"])
async def test_an_ended_execution_is_freed_without_a_garbage_collection(headers: dict[str, str]) -> None:
    def held() -> int:
        return sum(isinstance(each, Execution | BoundedProtocol) for each in gc.get_objects())

    async with portico() as (served, _):
        gc.collect()
        gc.disable()
        try:
            before = held()
            assert (await served.post(chat("Hello"), headers)).status == 200
            await wait_for_disconnect(served)
            assert held() == before
        finally:
            gc.enable()


@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["json", "events"])
async def test_a_client_that_leaves_stops_the_execution(headers: dict[str, str]) -> None:
    named = {"Content-Type": "application/json", **headers}
    async with portico() as (served, service):
        async with served.connect() as client:
            await client.send(request_bytes("POST", "/v1/execute", named, chat("[[slow:30]] Hello")))
            while service.runner.in_flight == 0:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.001)
        left_at = anyio.current_time()
        await wait_for_disconnect(served)
        while service.runner.in_flight:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.001)
        assert anyio.current_time() - left_at < 1


async def test_the_same_request_id_twice_is_a_conflict() -> None:
    async with portico() as (served, _):
        assert (await served.post(chat("Hello", request_id="r-1"))).status == 200
        answer = await served.post(chat("Hello", request_id="r-1"), EVENTS)
    assert (answer.status, answer.json["code"], answer.json["request_id"]) == (409, "REQUEST_ID_CONFLICT", "r-1")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hints": {"timeout": 10**9}}, "hints.timeout"),
        ({"limits": {"tool_rounds": 10**6}}, "limits.tool_rounds"),
        ({"redundancy": {"n": 10**4}}, "redundancy"),
        ({"messages": [{"role": "user", "content": "x"}] * 1001}, "messages"),
        ({"model": "ollama://169.254.169.254/llama"}, "model"),
        ({"if_session_busy": "enqueue"}, "if_session_busy"),
    ],
)
async def test_a_value_above_a_cap_or_an_unknown_name_is_refused(changes: dict[str, Any], field: str) -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("Hello", **changes))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert "169.254" not in answer.body.decode()
    assert field in answer.json["message"]


async def test_an_execution_beyond_the_limit_is_refused() -> None:
    async with portico(server={"max_in_flight": 1}) as (served, service), served.connect() as client:
        await client.send(
            request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, chat("[[slow:30]] Hello"))
        )
        while service.runner.in_flight == 0:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.001)
        answer = await served.post(chat("Hello"))
        assert (answer.status, answer.json["code"]) == (503, "REQUEST_OVERLOADED")
        assert answer.headers["retry-after"] == "1"


async def test_while_it_drains_new_work_is_refused_and_a_stream_ends_cleanly() -> None:
    named = {"Content-Type": "application/json", **EVENTS}
    async with portico(server={"drain_seconds": 5}) as (served, service), served.connect() as client:
        await client.send(request_bytes("POST", "/v1/execute", named, chat("[[slow:30]] Hello")))
        while service.runner.in_flight == 0:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.001)
        async with anyio.create_task_group() as group:
            group.start_soon(service.drain)
            await anyio.sleep(1)
            assert (await served.get("/readyz")).json == {"ready": False, "reason": "draining"}
            assert (await served.post(chat("Hello"))).json["code"] == "REQUEST_SHUTTING_DOWN"
        answer = await client.answer()
    assert b"retry: 1000\n\n" in answer.body
    assert events(answer)[-1]["type"] == "execution.cancelled"


async def test_a_full_disk_makes_the_service_not_ready_until_there_is_room(tmp_path: Path) -> None:
    session = {"session_id": "s"}
    async with portico(storage={"url": f"sqlite:///{tmp_path}/portico.db"}) as (served, _):
        assert (await served.post(chat("Hello", **session))).status == 200
        with limited_file_size(wal_size(tmp_path / "portico.db") + 8_192):
            refused = await served.post(chat("Hello", **session))
            assert refused.status == 503
            for _ in range(3):
                ready = await served.get("/readyz")
                assert (ready.status, ready.json) == (503, {"ready": False, "reason": "storage"})
                await anyio.sleep(3)
        await anyio.sleep(3)
        assert (await served.get("/readyz")).status == 200
        assert (await served.post(chat("Hello", **session))).status == 200
    assert refused.json.get("error", refused.json)["code"] == "STORAGE_FULL"


async def test_a_failure_of_an_engine_decides_the_status() -> None:
    async with portico() as (served, _):
        answer = await served.post(chat("[[fail:429]] Hello"))
    assert answer.status == 503
    assert answer.json["error"]["code"] == "INFERENCE_MODEL_UNAVAILABLE"
    assert answer.headers["x-should-retry"] == "true"


async def test_a_refused_body_is_answered_with_the_client_s_request_id() -> None:
    async with portico() as (served, _):
        refused = await served.post(chat("hi", request_id="mine", zork=1))
        assert refused.status == 422
        assert refused.headers["x-request-id"] == "mine"
        assert orjson.loads(refused.body)["request_id"] == "mine"
        unnamed = await served.post(chat("hi", request_id="not an id"))
        assert unnamed.status == 422
        assert unnamed.headers["x-request-id"] != "not an id"


async def test_a_trace_id_of_zeros_is_refused_and_upper_case_becomes_lower_case() -> None:
    async with portico() as (served, _):
        assert (await served.post(chat("hi", trace_id="0" * 32))).status == 422
        taken = await served.post(chat("hi", trace_id="AB" * 16))
        assert taken.headers["traceparent"].split("-")[1] == "ab" * 16


@pytest.mark.parametrize("headers", [RESPOND_ASYNC, RESPOND_ASYNC | {"traceparent": f"00-{'cd' * 16}-{'ef' * 8}-01"}])
@pytest.mark.parametrize("changes", [{}, {"trace_id": "ab" * 16}], ids=["", "own trace"])
async def test_the_traceparent_of_an_accepted_execution_is_the_one_of_its_root_span(
    headers: dict[str, str], changes: dict[str, str]
) -> None:
    async with portico() as (served, _):
        accepted = await served.post(chat("hi", request_id="q", **changes), headers)
        assert accepted.status == 202
        first = events(await served.get("/v1/executions/q/events"))[0]
        assert accepted.headers["traceparent"] == f"00-{first['trace_id']}-{first['span_id']}-00"


async def test_the_traceparent_of_a_fork_that_is_not_waited_for_is_the_one_of_its_root_span() -> None:
    async with portico() as (served, _):
        await served.post(chat("hi", request_id="q"), IDEMPOTENCY_KEY)
        forked = await served.post(b'{"from_step": 0}', RESPOND_ASYNC, path="/v1/executions/q/fork")
        assert forked.status == 202
        first = events(await served.get(f"/v1/executions/{forked.json['request_id']}/events"))[0]
        assert forked.headers["traceparent"] == f"00-{first['trace_id']}-{first['span_id']}-00"


async def test_the_metrics_show_breakers_queue_and_storage() -> None:
    async with portico() as (served, service):
        before = (await served.get("/metrics")).body.decode()
        await anyio.sleep(16)
        shown = (await served.get("/metrics")).body.decode()
        service.health.failed(StorageFailure(Code.STORAGE_UNAVAILABLE, "x"), writing=False)
        down = (await served.get("/metrics")).body.decode()
    assert "portico_storage_bytes 0.0" in before
    [size] = re.findall(r"^portico_storage_bytes (\S+)$", shown, re.MULTILINE)
    assert float(size) >= 4096
    assert 'portico_breaker_state{breaker="closed",provider="rehearsal"} 1.0' in shown
    assert 'portico_breaker_state{breaker="open",provider="rehearsal"} 0.0' in shown
    assert "portico_executions_waiting 0.0" in shown
    assert "portico_storage_up 1.0" in shown
    assert "portico_storage_up 0.0" in down
