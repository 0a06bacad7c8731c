"""Queued background executions: limits, status, events, cancellation and start."""

from typing import Any

import anyio
import pytest

from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import RESPOND_ASYNC, chat, events, portico, send_command, sequence_numbers
from tests.support.server_state import wait_for_idle, wait_for_running

NARROW: dict[str, Any] = {"queue": {"at_once": 1, "per_tenant": 1, "waiting": 2}}


async def post(served: RunningServer, request_id: str, text: str = "[[slow:60]] Hello", **fields: Any) -> HttpAnswer:
    return await served.post(chat(text, request_id=request_id, **fields), RESPOND_ASYNC)


async def state(served: RunningServer, request_id: str) -> object:
    return (await served.get(f"/v1/executions/{request_id}")).json["state"]


async def test_an_execution_beyond_the_queue_limit_is_refused_and_leaves_nothing() -> None:
    async with portico(**NARROW) as (served, service):
        answers = [await post(served, f"r-{number}") for number in range(4)]
        assert [answer.status for answer in answers] == [202, 202, 202, 503]
        assert answers[-1].json["code"] == "REQUEST_OVERLOADED"
        assert answers[-1].headers["retry-after"] == "1"
        assert (await served.get("/v1/executions/r-3")).status == 404
        assert [await state(served, f"r-{number}") for number in range(1, 3)] == ["INIT", "INIT"]
        began = anyio.current_time()
        await wait_for_idle(service)
        assert anyio.current_time() - began >= 170
        assert {await state(served, f"r-{number}") for number in range(3)} == {"COMPLETE"}


async def test_a_request_that_waits_for_its_response_passes_the_queue() -> None:
    async with portico(**NARROW) as (served, _):
        await post(served, "first")
        await post(served, "second")
        assert (await served.post(chat("Hello"))).status == 200
        assert await state(served, "second") == "INIT"


async def test_a_queued_execution_is_cancelled_before_it_starts() -> None:
    async with portico(**NARROW) as (served, service):
        await post(served, "first")
        await post(served, "second")
        assert (await send_command(served, "cancel", "second")).status in {200, 202}
        assert (await send_command(served, "cancel", "first")).status in {200, 202}
        await wait_for_idle(service)
        received = events(await served.get("/v1/executions/second/events"))
        assert await state(served, "second") == "CANCELLED"
    assert received[-1]["type"] == "execution.cancelled"
    assert "inference.start" not in {event["type"] for event in received}


async def test_a_reader_of_a_queued_execution_gets_all_events_and_deltas() -> None:
    async with portico(**NARROW) as (served, _):
        await post(served, "first", "[[slow:5]] Hello")
        await post(served, "second", "Hello")
        received = events(await served.get("/v1/executions/second/events"))
    committed = [event for event in received if event["type"] != "inference.delta"]
    assert sequence_numbers(committed) == list(range(1, len(committed) + 1))
    assert received[-1]["type"] == "execution.completed"
    assert "inference.delta" in {event["type"] for event in received}


async def test_a_queued_execution_has_the_trace_of_its_admission() -> None:
    async with portico(**NARROW) as (served, service):
        await post(served, "only", "Hello")
        await wait_for_idle(service)
        trace = (await served.get("/v1/executions/only/trace")).json
    assert trace["stages"][0]["stage"] == "AuthResolve"


@pytest.mark.parametrize("request_id", ["first", "second"])
async def test_a_queued_execution_is_run_after_a_restart(tmp_path: Any, request_id: str) -> None:
    kept = NARROW | {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "server": {"drain_seconds": 1}}
    async with portico(**kept) as (served, service):
        await post(served, "first")
        await post(served, "second")
        await wait_for_running(service)
    async with portico(**kept) as (served, service):
        await wait_for_idle(service)
        assert await state(served, request_id) == "COMPLETE"
