"""Flows over HTTP whose nodes name agents of the configuration, or call them as tools."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.domain.failures import ConfigurationFailure
from tests.support.golden_journals import AGENTS
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import QUOTE, portico, send_command

FLOWS = {"modules": ["tests.support.agent_flows"]}
COUNTER = {**AGENTS["counter"], "hints": {"temperature": 0.25}, "limits": {"tool_rounds": 2}}
SUM = {"name": "calculate", "arguments": {"expression": "6*7"}}
SUBMIT = {"tool_calls": [{"name": "submit", "arguments": {"answer": "42"}}]}


@asynccontextmanager
async def flows(tmp_path: Path, *replies: dict[str, Any], **agents: Any) -> AsyncIterator[RunningServer]:
    (tmp_path / "script.json").write_bytes(orjson.dumps(replies))
    engines = {"script": {"model": f"scripted:///{tmp_path}/script.json"}}
    routes = {"default": ["script"]}
    async with portico(engines=engines, routes=routes, flows=FLOWS, agents={"counter": COUNTER} | agents) as (
        served,
        _,
    ):
        yield served


def body(name: str, **fields: Any) -> bytes:
    return orjson.dumps({"mode": "flow", "request_id": "q", "flow": {"name": name, "input": {"task": "sum"}}, **fields})


async def _run(served: RunningServer, name: str, **fields: Any) -> tuple[HttpAnswer, list[dict[str, Any]]]:
    answer = await served.post(body(name, **fields))
    return answer, (await served.get("/v1/executions/q/steps")).json["data"]


async def test_a_node_is_an_agent_of_the_configuration(tmp_path: Path) -> None:
    async with flows(tmp_path, {"tool_calls": [SUM]}, SUBMIT) as served:
        answer, steps = await _run(served, "counted")
        replayed = await send_command(served, "replay")
    assert answer.json["structured_output"] == {"answer": "42"}
    asked = [step["request"] for step in steps if step["kind"] == "inference"]
    assert [message["content"] for message in asked[0]["messages"]] == ["You count.", '{"task":"sum"}']
    assert asked[0]["hints"]["temperature"] == 0.25
    assert [step["outcome"]["tools"] for step in steps if step["kind"] == "inference"] == [["calculate", "submit"]] * 2
    assert replayed.json["identical"] is True


async def test_the_limits_of_the_agent_hold_for_the_node(tmp_path: Path) -> None:
    again = {"tool_calls": [SUM]}
    async with flows(tmp_path, again, again, again) as served:
        answer, _ = await _run(served, "counted")
    assert answer.json["error"]["code"] == "ORCHESTRATION_ITERATION_LIMIT"
    assert answer.json["error"]["details"]["tool_rounds"] == 2


async def test_an_agent_of_a_flow_calls_an_agent_of_the_configuration(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "agent__counter", "arguments": {"message": "6*7?"}}]}
    async with flows(tmp_path, call, {"tool_calls": [SUM]}, {"text": "it is 42"}, SUBMIT) as served:
        quote = (await served.post(body("delegated", limits={"tool_calls": 4}), path=QUOTE)).json
        answer, _ = await _run(served, "delegated", limits={"tool_calls": 4})
        replayed = await send_command(served, "replay")
    made = [(each["name"], each["step_name"], each["result"]) for each in answer.json["tool_calls_made"]]
    assert made == [
        ("agent__counter", "Task", "it is 42"),
        ("calculate", "agent:counter", "42"),
        ("submit", "Task", "accepted"),
    ]
    assert quote["inferences"] >= 4
    assert replayed.json["identical"] is True


async def test_a_flow_with_an_unknown_agent_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailure, match="counted cannot be used: Task: its agent counter is not configured"):
        async with portico(flows=FLOWS, agents={}):
            pass
