"""Agents of flows over HTTP: several questions of one reply, tools that are not offered, limits, and forks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import QUOTE, portico

FLOWS = {"modules": ["tests.support.example_flows"]}
TOPIC = {"topic": "sea"}


def calls(*named: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in named]}


def research(**fields: Any) -> bytes:
    """Return the body of a request whose agent has tools."""
    return orjson.dumps({"mode": "flow", "request_id": "q", "flow": {"name": "research", "input": TOPIC}, **fields})


@asynccontextmanager
async def scripted(tmp_path: Path, *replies: dict[str, Any], **engine: Any) -> AsyncIterator[RunningServer]:
    """Run a service with the example flows whose engine answers from these replies."""
    (tmp_path / "script.json").write_bytes(orjson.dumps(replies))
    engines = {"script": {"model": f"scripted:///{tmp_path}/script.json", **engine}}
    async with portico(engines=engines, routes={"default": ["script"]}, flows=FLOWS) as (served, _):
        yield served


async def answer(served: RunningServer, payload: Any, **fields: Any) -> HttpAnswer:
    body = {"tool_id": "Topic::ask_editor", "payload": payload, **fields}
    return await served.post(orjson.dumps(body), path="/v1/executions/q/resume")


ASK_TWICE = calls(
    ("ask_editor", {"question": "dark?"}), ("search", {"query": "sea"}), ("ask_editor", {"question": "cold?"})
)
SUBMIT = calls(("submit", {"text": "deep"}), ("search", {"query": "more"}))


async def test_two_questions_of_one_tool_are_answered_by_their_ids(tmp_path: Path) -> None:
    async with scripted(tmp_path, ASK_TWICE, SUBMIT) as served:
        asked = await served.post(research())
        ids = [each["suspension_id"] for each in asked.json["suspensions"]]
        ambiguous = await answer(served, "yes")
        first = await answer(served, "yes", suspension_id=ids[1])
        again = await answer(served, "yes", suspension_id=ids[1])
        done = await answer(served, "no", suspension_id=ids[0])
        late = await answer(served, "no", suspension_id=ids[0])
    assert [each["tool_id"] for each in asked.json["suspensions"]] == ["Topic::ask_editor"] * 2
    assert (ambiguous.status, ambiguous.json["code"]) == (409, "REQUEST_RESUME_MISMATCH")
    assert first.status in {200, 202}
    assert (again.status, late.status) == (409, 409)
    assert (done.status, done.json["structured_output"]) == (200, {"answer": "deep"})
    made = [(each["name"], each["result"]) for each in done.json["tool_calls_made"]]
    assert sorted(made[:3]) == [("ask_editor", "no"), ("ask_editor", "yes"), ("search", "three books about sea")]
    assert made[3:] == [("submit", "accepted"), ("search", "cancelled: the answer was handed in")]


async def test_an_agent_without_permitted_tools_still_hands_in_its_answer(tmp_path: Path) -> None:
    async with scripted(tmp_path, SUBMIT) as served:
        done = await served.post(research(tools=[]))
    assert (done.status, done.json["structured_output"]) == (200, {"answer": "deep"})


async def test_limits_of_a_flow_hold_before_and_during_its_run(tmp_path: Path) -> None:
    async with scripted(tmp_path, ASK_TWICE) as served:
        too_many = await served.post(research(limits={"flow_steps": 501}))
        quote = await served.post(research(), path=QUOTE)
        unpriced = await served.post(research(limits={"cost": 1}))
        few = await served.post(research(limits={"tokens": 1}))
    assert (too_many.status, too_many.json["details"]["errors"]) == (
        422,
        [{"field": "limits.flow_steps", "message": "must be at most 500"}],
    )
    assert quote.json["inferences"] == 44
    assert (unpriced.status, unpriced.json["code"]) == (422, "REQUEST_INVALID")
    assert (few.status, few.json["error"]["code"]) == (422, "ORCHESTRATION_BUDGET_EXCEEDED")


async def test_the_fork_of_a_flow_takes_no_messages(tmp_path: Path) -> None:
    async with scripted(tmp_path, SUBMIT, SUBMIT) as served:
        await served.post(research())
        overrides = {"messages": [{"role": "user", "content": "hello"}]}
        refused = [
            await served.post(orjson.dumps({"from_step": step, "overrides": overrides}), path="/v1/executions/q/fork")
            for step in (0, "end")
        ]
        forked = await served.post(orjson.dumps({"from_step": 1}), path="/v1/executions/q/fork")
    errors = [(each.status, each.json["details"]["errors"][0]["field"]) for each in refused]
    assert errors == [(422, "overrides.messages"), (422, "overrides.messages")]
    assert (forked.status, forked.json["structured_output"]) == (200, {"answer": "deep"})
