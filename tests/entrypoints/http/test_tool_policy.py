"""Safety and policy of tools over HTTP: refusals by name, and an approval from the request to the result."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.support.http_server import RunningServer
from tests.support.portico import chat, portico, resume

MODULES = {"modules": ["tests.support.shop_tools"]}
SCHEMA = {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
UP_TO_100 = [{"tool": "refund", "arguments": {"properties": {"amount": {"maximum": 100}}}}]


@asynccontextmanager
async def shop(**policy: Any) -> AsyncIterator[RunningServer]:
    async with portico(tools=MODULES, policy=policy) as (served, _):
        yield served


async def test_a_refund_above_the_limit_is_approved_over_http_and_one_below_it_needs_none() -> None:
    async with shop(pre_authorise=UP_TO_100) as served:
        small = await served.post(chat("refund amount 20", request_id="small", tools=["refund"]))
        large = await served.post(chat("refund amount 250", request_id="q", tools=["refund"]))
        [asked] = large.json["suspensions"]
        answer = await resume(served, tool_id="refund", payload={"decision": "approve"})
    assert (small.status, small.json["tool_calls_made"][0]["result"]) == (200, "refunded 20")
    assert (large.status, asked["kind"], asked["value"]) == (
        202,
        "approval",
        {"tool": "refund", "arguments": {"amount": 250}},
    )
    assert (answer.status, answer.json["tool_calls_made"][0]["result"]) == (200, "refunded 250")


async def test_a_url_of_a_model_waits_for_a_person_unless_its_host_is_configured() -> None:
    asked = 'Use http_get with url "http://docs.example.invalid/a"'
    async with portico(tools={"http_get": {}}) as (served, _):
        waits = await served.post(chat(asked, request_id="q"))
        denied = await resume(served, tool_id="http_get", payload={"decision": "deny"})
    [question] = waits.json["suspensions"]
    assert (waits.status, question["kind"]) == (202, "approval")
    assert question["value"] == {"tool": "http_get", "arguments": {"url": "http://docs.example.invalid/a"}}
    assert denied.json["state"] == "COMPLETE"
    for hosts in (["*"], ["docs.example.invalid"]):
        async with portico(tools={"http_get": {"hosts": hosts}}) as (served, _):
            [shown] = [each for each in (await served.get("/v1/tools")).json["data"] if each["name"] == "http_get"]
            [call] = (await served.post(chat(asked))).json["tool_calls_made"]
        assert (shown["source"], shown["side_effects"], shown["idempotent"]) == ("sandbox", "read", True)
        assert (call["is_error"], "has no address" in call["result"]) == (True, True)


@pytest.mark.parametrize("name", ["write_note", "refund", "ask_person"])
async def test_replicas_may_not_act_or_ask(name: str) -> None:
    async with shop() as served:
        answer = await served.post(chat("hello", mode="redundant", output=SCHEMA, tools=["count_words", name]))
        step = {"name": "vote", "type": "redundant", "input": "hello", "schema": SCHEMA["schema"], "tools": [name]}
        planned = await served.post(chat("hello", mode="plan", plan={"steps": [step]}))
        allowed = await served.post(chat("hello", mode="redundant", output=SCHEMA, tools=["count_words"]))
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert f"must not name {name}" in answer.json["detail"]
    assert "count_words" not in answer.json["detail"]
    assert (planned.status, planned.json["error"]["code"]) == (422, "ORCHESTRATION_PLAN_REFUSED")
    assert allowed.status == 200


async def test_a_tool_that_policy_does_not_permit_is_refused_by_name_and_else_not_offered() -> None:
    async with shop(deny=[{"tool": "write_*"}]) as served:
        named = await served.post(chat("hello", tools=["write_note"]))
        answer = await served.post(chat("hello", request_id="q"))
        steps = (await served.get("/v1/executions/q/steps")).json["data"]
    assert (named.status, named.json["code"]) == (403, "ACCESS_DENIED")
    assert answer.status == 200
    assert all("write_note" not in orjson.dumps(step["outcome"]).decode() for step in steps)


async def test_the_list_of_tools_says_what_becomes_of_their_calls() -> None:
    async with shop(approve=[{"tool": "write_note"}]) as served:
        tools = {each["name"]: each for each in (await served.get("/v1/tools")).json["data"]}
    facts = {name: (tools[name]["at_most_once"], tools[name]["approval"], tools[name]["retried"]) for name in tools}
    assert facts["count_words"] == (False, False, True)
    assert facts["write_note"] == (True, True, False)
    assert facts["refund"] == (True, True, False)
    assert (tools["refund"]["source"], tools["calculate"]["source"]) == ("modules", "built-in")
