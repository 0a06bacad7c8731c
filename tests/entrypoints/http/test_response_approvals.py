"""Approvals in the Responses API: the client's own loop, and who may run it."""

from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from tests.entrypoints.http.test_responses import create, kinds, retrieve, scripted, texts
from tests.support.callers import callers
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.open_responses import check_answer, checked_frames, fold
from tests.support.portico import portico

MODULES = {"modules": ["tests.support.shop_tools"]}
REFUNDS = {"type": "mcp", "server_label": "portico", "allowed_tools": ["refund"]}


def refund(amount: int) -> dict[str, Any]:
    return {"name": "refund", "arguments": {"amount": amount}}


ONE = {"text": "I refund it.", "tool_calls": [refund(7)]}
TWO = {"tool_calls": [refund(8), refund(9)]}
DONE = {"text": "It is refunded."}


def respond(item: dict[str, Any], *, approve: bool = True, **fields: Any) -> dict[str, Any]:
    """Return the answer to a request for an approval."""
    return {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve, **fields}


async def approve(served: RunningServer, body: dict[str, Any], **fields: Any) -> HttpAnswer:
    """Approve everything that an answer asks for."""
    asked = [item for item in body["output"] if item["type"] == "mcp_approval_request"]
    return await create(served, [respond(item) for item in asked], previous_response_id=body["id"], **fields)


@pytest.mark.parametrize("stream", [False, True])
async def test_each_approval_ends_an_answer_and_the_next_one_continues_the_same_execution(
    tmp_path: Path, stream: bool
) -> None:
    bodies: list[dict[str, Any]] = []
    async with portico(tools=MODULES, **scripted(tmp_path, ONE, TWO, DONE)) as (served, _):
        answer = await create(served, tools=[REFUNDS], stream=stream)
        while True:
            if stream:
                frames = checked_frames(answer)
                assert fold(frames) == frames[-1]["response"]["output"]
            bodies.append(frames[-1]["response"] if stream else answer.json)
            check_answer(bodies[-1])
            if "mcp_approval_request" not in kinds(bodies[-1]):
                break
            answer = await approve(served, bodies[-1], stream=stream)
        read = [(await retrieve(served, body["id"])).json for body in bodies]
    assert [kinds(body) for body in bodies] == [
        ["message", "mcp_approval_request"],
        ["mcp_call", "mcp_approval_request", "mcp_approval_request"],
        ["mcp_call", "mcp_call", "message"],
    ]
    name = bodies[0]["id"]
    assert [body["id"] for body in bodies] == [name, f"{name}_1", f"{name}_2"]
    assert [body["status"] for body in bodies] == ["completed"] * 3
    assert texts(bodies[-1]) == ["It is refunded."]
    ids = [item["id"] for body in bodies for item in body["output"]]
    assert len(set(ids)) == len(ids)
    assert [body["output"] for body in read] == [body["output"] for body in bodies]


async def test_an_approval_is_given_once_and_a_denied_call_does_not_run(tmp_path: Path) -> None:
    async with portico(tools=MODULES, **scripted(tmp_path, ONE, DONE)) as (served, _):
        first = (await create(served, tools=[REFUNDS])).json
        request = first["output"][-1]
        denied = await create(served, [respond(request, approve=False, reason="too much")])
        again = await create(served, [respond(request)])
        unknown = await create(served, [respond({"id": request["id"][:-1] + "5"})])
    assert kinds(denied.json) == ["message"]
    assert (again.status, again.json["code"]) == (409, "REQUEST_RESUME_UNEXPECTED")
    assert (unknown.status, unknown.json["error"]["param"]) == (400, "input.0.approval_request_id")


async def test_answers_of_one_request_are_all_taken_or_none_is(tmp_path: Path) -> None:
    async with portico(tools=MODULES, **scripted(tmp_path, TWO, DONE)) as (served, _):
        first = (await create(served, tools=[REFUNDS])).json
        one, two = map(respond, first["output"])
        twice = await create(served, [one, one])
        many = await create(served, [one] * 33)
        unknown = await create(served, [one, two | {"approval_request_id": one["approval_request_id"][:-1] + "5"}])
        suspended = (await served.get("/v1/suspensions")).json["data"]
        last = await approve(served, first)
    assert (twice.status, twice.json["code"]) == (409, "REQUEST_RESUME_MISMATCH")
    assert (many.status, many.json["error"]["param"]) == (400, "input")
    assert (unknown.status, unknown.json["error"]["param"]) == (400, "input.1.approval_request_id")
    assert [each["tool_id"] for each in suspended] == ["refund", "refund"]
    assert kinds(last.json) == ["mcp_call", "mcp_call", "message"]


async def test_nothing_may_follow_answers_to_approvals(tmp_path: Path) -> None:
    async with portico(tools=MODULES, **scripted(tmp_path, ONE, DONE)) as (served, _):
        first = (await create(served, tools=[REFUNDS])).json
        answers = [respond(first["output"][-1]), {"role": "user", "content": "And hurry."}]
        refused = await create(served, answers)
    assert (refused.status, refused.json["error"]["param"]) == (400, "input.1")


@pytest.mark.parametrize(
    ("permissions", "policy"),
    [(["can_send_messages", "tool:*", "model:*"], {}), (None, {"self_approval": False})],
)
async def test_who_may_not_approve_is_not_asked(
    tmp_path: Path, permissions: list[str] | None, policy: dict[str, Any]
) -> None:
    tables = {"tools": MODULES, "policy": policy, "ingress": {"approval_wait": 0}, **scripted(tmp_path, ONE, DONE)}
    grants = {"ada": ("red", "ada", permissions)}
    async with callers(tmp_path, grants, **tables) as (by_name, _):
        body = {"model": "default", "input": "Refund it.", "tools": [REFUNDS]}
        answer = await by_name["ada"].send("POST", "/v1/responses", orjson.dumps(body))
    assert (answer.status, answer.json["code"]) == (400, "REQUEST_RESUME_REQUIRED")
    assert answer.headers["x-should-retry"] == "false"
    assert [each["tool_id"] for each in answer.json["details"]["suspensions"]] == ["refund"]


async def test_an_answer_that_was_approved_too_late_for_its_request_is_read_later(tmp_path: Path) -> None:
    tables = {"tools": MODULES, "ingress": {"approval_wait": 0}, **scripted(tmp_path, ONE, DONE)}
    async with portico(**tables) as (served, _):
        chat = {
            "model": "default",
            "messages": [{"role": "user", "content": "Refund."}],
            "portico": {"tools": ["refund"]},
        }
        refused = await served.post(orjson.dumps(chat), path="/v1/chat/completions")
        approval = {"tool_id": "refund", "payload": {"decision": "approve"}}
        await served.post(orjson.dumps(approval), path=f"{refused.headers['location']}/resume")
        later = await retrieve(served, f"resp_{refused.json['request_id'].replace('-', '')}")
    assert (refused.status, refused.json["code"]) == (400, "REQUEST_RESUME_REQUIRED")
    check_answer(later.json)
    assert (later.json["status"], texts(later.json)) == ("completed", ["I refund it.", "It is refunded."])


async def test_no_client_repeats_a_background_stream_that_failed_after_an_unsafe_call(tmp_path: Path) -> None:
    engines = scripted(tmp_path, {"tool_calls": [refund(7)]}, {"fault": "refused"}, {"fault": "refused"})
    tools = [REFUNDS | {"require_approval": "never"}]
    async with portico(tools=MODULES, **engines) as (served, _):
        created = (await create(served, tools=tools, background=True)).json
        [suspension] = await open_suspensions(served)
        given = orjson.dumps({"answers": [{"payload": {"decision": "approve"}, "tool_id": "refund"}]})
        await served.post(given, path=f"/v1/executions/{suspension['request_id']}/resume")
        frames = checked_frames(await retrieve(served, created["id"], "?stream=true"))
        read = (await retrieve(served, created["id"])).json
    assert [frame["error"]["code"] for frame in frames if frame["type"] == "error"] == ["invalid_prompt"]
    assert frames[-1]["response"]["error"]["code"] == "invalid_prompt"
    assert (read["status"], read["error"]["code"]) == ("failed", "INFERENCE_ENGINE_ERROR")


async def open_suspensions(served: RunningServer) -> list[dict[str, Any]]:
    """Return the open suspensions, as soon as there is one."""
    with anyio.fail_after(20):
        while not (found := (await served.get("/v1/suspensions")).json["data"]):
            await anyio.wait_all_tasks_blocked()
    return list(found)
