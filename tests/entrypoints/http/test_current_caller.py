"""Code of a deployment knows for whom it acts: tools, steps, rules, planners, nodes, and what they call."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from portico import current_caller
from portico.bootstrap.service import open_history_reader
from portico.domain.access.principal import LOCAL
from portico.domain.failures import ConfigurationFailure
from portico.domain.ids import RequestId
from portico.settings import Settings
from tests.support.portico import chat, portico

MODULE = "tests.support.caller_modules"
TABLES: dict[str, Any] = {
    "tools": {"modules": [MODULE]},
    "plan": {"modules": [MODULE]},
    "rules": {"modules": [MODULE]},
    "flows": {"modules": [MODULE], "commands": ["git", "ls"]},
}


def planned(kind: str, name: str) -> dict[str, Any]:
    given = {"name": name, "arguments": {}} if kind == "tool" else "x"
    return {"mode": "plan", "plan": {"steps": [{"name": "a", "type": kind, "input": given}]}}


@pytest.mark.parametrize(
    ("request_id", "fields", "expected"),
    [
        ("loop", planned("tool", "who_on_the_loop"), "local by api in loop at a as None"),
        ("thread", planned("tool", "who_on_a_thread"), "local by api in thread at a as None"),
        ("step", planned("who_in_a_step", ""), "local by api in step at a as None"),
        (
            "rule",
            {"output": {"rules": ["says_who"]}, "limits": {"attempts": 1}},
            "local by api in rule at None as None",
        ),
        ("input", {"input": {"rules": ["says_who"]}}, "local by api in input at None as None"),
        ("node", {"mode": "flow", "flow": {"name": "node", "input": {"text": "x"}}}, "local by api in node at Text as"),
    ],
)
async def test_code_of_a_deployment_knows_for_whom_it_acts(
    request_id: str, fields: dict[str, Any], expected: str
) -> None:
    async with portico(**TABLES) as (served, _):
        answer = await served.post(chat("Hello", request_id=request_id, **fields))
        log = (await served.get(f"/v1/executions/{request_id}/steps")).body.decode()
    assert expected in answer.body.decode() + log


async def test_a_planner_knows_for_whom_it_plans() -> None:
    async with portico(**TABLES, planner={"kind": "module", "name": "plans_who"}) as (served, _):
        answer = await served.post(chat("Hello", request_id="planner", mode="plan"))
    assert "local by api in planner at" in answer.body.decode()


async def test_a_tool_of_an_agent_in_a_flow_sees_the_context_of_the_flow() -> None:
    text = {"text": "Use commands_of_flow."}
    async with portico(**TABLES) as (served, _):
        answer = await served.post(chat("", request_id="f", mode="flow", flow={"name": "agent", "input": text}))
        outside = await served.post(chat("", request_id="o", **planned("tool", "commands_of_flow")))
    calls = answer.json["tool_calls_made"]
    assert [each["result"] for each in calls][:1] == ["git, ls"]
    assert outside.json["content"] == "none"


def test_there_is_no_caller_outside_of_an_execution() -> None:
    with pytest.raises(LookupError, match="outside of an execution"):
        current_caller()


async def test_the_system_prompt_of_an_agent_is_filled_at_the_start_and_nothing_else_is_a_template(
    tmp_path: Path,
) -> None:
    prompt = "For {user} of {tenant} by {channel} as {agent}, {{braces}}, ticket {metadata.ticket}, {timezone}."
    agents = {
        "desk": {"description": "Answers.", "system_prompt": prompt, "template": True, "timezone": "Europe/Berlin",
                 "tools": ["agent:night"]},
        "night": {"description": "Answers at night.", "system_prompt": "I am {agent} for {user}. {session_id}|",
                  "template": True},
        "plain": {"description": "Is no template.", "system_prompt": "I am {user}."},
    }  # fmt: skip
    tables: dict[str, Any] = {"agents": agents, "storage": {"url": f"sqlite:///{tmp_path}/portico.db"}}
    async with portico(**tables) as (served, _):
        ticket = {"ticket": "{user}}{\r\n" + "x" * 300}
        await served.post(chat("I am {user}.", request_id="a", agent="desk", metadata=ticket))
        await served.post(chat("Hi", request_id="b", agent="plain"))
        await served.post(chat('Use agent__night: message="{user}"', request_id="c", agent="desk"))
        shown = {name: (await served.get(f"/v1/executions/{name}/transcript")).json["data"] for name in "abc"}
        forked = await served.post(b'{"from_step": 1}', path="/v1/executions/c/fork")
    async with open_history_reader(Settings.model_validate(tables)) as reader:
        replays = [await reader.replay(LOCAL.tenant, RequestId(name)) for name in "abc"]
    system = {name: [branch["messages"][0]["content"] for branch in branches] for name, branches in shown.items()}
    filled = "For local of local by api as desk, {braces}, ticket {user}}{" + "x" * 248 + ", Europe/Berlin."
    assert system["a"] == [filled]
    assert shown["a"][0]["messages"][1]["content"] == "I am {user}."
    assert system["b"] == ["I am {user}."]
    assert system["c"][1] == "I am night for local. |"
    assert forked.status == 200, forked.body
    assert all(replay.identical for replay in replays)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"system_prompt": "Hi {name}.", "template": True}, r"agents\.desk\.system_prompt: .*\{name\}"),
        ({"system_prompt": "Hi {.", "template": True}, r"agents\.desk\.system_prompt: .*single brace"),
        ({"template": True}, r"agents\.desk\.template"),
        ({"system_prompt": "x", "template": True, "timezone": "Mars/One"}, r"(?s)agents\.desk\.timezone.*IANA"),
        ({"system_prompt": "x", "timezone": "UTC"}, r"agents\.desk\.timezone.*no meaning"),
    ],
)
def test_a_template_that_cannot_be_filled_stops_the_start(fields: dict[str, Any], named: str) -> None:
    with pytest.raises((ConfigurationFailure, ValidationError), match=named):
        Settings.model_validate({"agents": {"desk": {"description": "x", **fields}}})
