"""Refusals for a moment over HTTP: they leave nothing, so that the same request is accepted a moment later."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.bootstrap.service import Service
from tests.support.http_server import RunningServer
from tests.support.portico import EVENTS, IDEMPOTENCY_KEY, chat, events, listed_ids, portico

NAMED = {"request_id": "q", "session_id": "s"}
SMALL = {"small": {"model": "rehearsal://", "context_window": 8_000, "response_reserve": 1_000}}
NARROW = {"engines": SMALL, "tenants": {"local": {"tokens": "1500/60", "requests": "9/36600"}}}

PAID = chat("Hello " * 240, hints={"max_tokens": 50}, store=False)
"""A request that takes most of the tokens."""


@asynccontextmanager
async def kept(folder: Path, **tables: Any) -> AsyncIterator[tuple[RunningServer, Service]]:
    async with portico(storage={"url": f"sqlite:///{folder}/portico.db"}, **tables) as both:
        yield both


async def nothing_is_left(served: RunningServer) -> bool:
    """Return whether there is no execution `q`, and no session that it began."""
    read = [(await served.get(path)).status for path in ("/v1/executions/q", "/v1/sessions/s")]
    return read == [404, 404] and await listed_ids(served, "") == []


async def test_a_keyed_request_that_finds_no_capacity_is_accepted_when_there_is_some(tmp_path: Path) -> None:
    async with kept(tmp_path, server={"max_in_flight": 2}) as (served, service):
        with ExitStack() as places:
            for _ in range(2):
                places.callback(service.runner.reserve().release)
            refused = [await served.post(chat("Hello", **NAMED), IDEMPOTENCY_KEY) for _ in range(2)]
            is_clean = await nothing_is_left(served)
        await anyio.wait_all_tasks_blocked()
        answer = await served.post(chat("Hello", **NAMED), IDEMPOTENCY_KEY)
        assert service.runner.in_flight == 0
    assert [(each.status, each.json["code"]) for each in refused] == [(503, "REQUEST_OVERLOADED")] * 2
    assert not [each for each in refused if "idempotency-replayed" in each.headers]
    assert is_clean
    assert (answer.status, answer.json["state"]) == (200, "COMPLETE")
    assert "idempotency-replayed" not in answer.headers


async def test_a_request_in_memory_that_finds_no_capacity_may_use_its_id_again(tmp_path: Path) -> None:
    async with kept(tmp_path, server={"max_in_flight": 1}) as (served, service):
        place = service.runner.reserve()
        refused = await served.post(chat("Hello", request_id="q"))
        place.release()
        await anyio.wait_all_tasks_blocked()
        answer = await served.post(chat("Hello", request_id="q"))
    assert (refused.status, refused.json["code"]) == (503, "REQUEST_OVERLOADED")
    assert answer.status == 200


async def test_a_keyed_request_that_meets_a_restart_is_accepted_after_it(tmp_path: Path) -> None:
    async with kept(tmp_path) as (served, service):
        first = await served.post(chat("Hello", session_id="s"), {"Idempotency-Key": "k-0"})
        await service.drain()
        refused = await served.post(chat("Hello", **NAMED), IDEMPOTENCY_KEY)
        repeated = await served.post(chat("Hello", session_id="s"), {"Idempotency-Key": "k-0"})
    async with kept(tmp_path) as (served, _):
        answer = await served.post(chat("Hello", **NAMED), IDEMPOTENCY_KEY)
    assert (refused.status, refused.json["code"]) == (503, "REQUEST_SHUTTING_DOWN")
    assert int(refused.headers["retry-after"]) >= 1
    assert (repeated.status, repeated.json) == (200, first.json)
    assert (answer.status, answer.json["state"]) == (200, "COMPLETE")


async def test_a_reserved_place_is_waited_for_and_runs_while_the_service_drains(tmp_path: Path) -> None:
    async with kept(tmp_path) as (served, service), anyio.create_task_group() as group:
        place, has_drained = service.runner.reserve(), anyio.Event()

        async def drain() -> None:
            await service.drain()
            has_drained.set()

        group.start_soon(drain)
        await anyio.wait_all_tasks_blocked()
        assert not has_drained.is_set()
        place.release()
        await has_drained.wait()
        assert (await served.get("/readyz")).json["reason"] == "draining"


@pytest.mark.parametrize("headers", [IDEMPOTENCY_KEY, {}], ids=["journaled", "memory"])
@pytest.mark.parametrize("accept", [{}, EVENTS], ids=["whole", "stream"])
async def test_a_request_that_is_over_the_limit_of_tokens_is_accepted_when_there_are_some(
    tmp_path: Path, headers: dict[str, str], accept: dict[str, str]
) -> None:
    named = NAMED if headers else {"request_id": "q"}
    async with kept(tmp_path, **NARROW) as (served, _):
        paid = await served.post(PAID)
        refused = await served.post(chat("Hello", **named), {**headers, **accept})
        is_clean = await nothing_is_left(served)
        never = await served.post(chat("Hello " * 2_000, hints={"max_tokens": 50}))
        used = (await served.get("/v1/usage")).json["data"]
    async with kept(tmp_path) as (served, _):
        answer = await served.post(chat("Hello", **named), headers)
    response = events(refused)[-1]["response"] if accept else refused.json
    assert (paid.status, refused.status) == (200, 200 if accept else 429)
    assert (response["state"], response["error"]["code"]) == ("ERROR", "REQUEST_RATE_LIMITED")
    assert is_clean
    assert never.headers["ratelimit"].startswith('"tenant-requests";r=7;')
    assert [each["executions"] for each in used] == [2]
    assert (answer.status, answer.json["state"]) == (200, "COMPLETE")
    assert "idempotency-replayed" not in answer.headers


async def test_a_refusal_after_a_tool_has_run_is_the_answer_of_the_key(tmp_path: Path) -> None:
    steps = [
        {"name": "dice", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}},
        {"name": "summed", "type": "infer", "input": "Tell.", "depends_on": ["dice"]},
    ]
    plan = chat("Hello", mode="plan", plan={"steps": steps}, request_id="q")
    async with kept(tmp_path, **NARROW) as (served, _):
        await served.post(PAID)
        refused = await served.post(plan, IDEMPOTENCY_KEY)
        again = await served.post(plan, IDEMPOTENCY_KEY)
        assert await listed_ids(served, "") == ["q"]
    assert len(refused.json["tool_calls_made"]) == 1
    assert (again.headers["idempotency-replayed"], again.json) == ("true", refused.json)
