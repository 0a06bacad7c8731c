"""Agents as tools over HTTP: nested calls in answers and events, questions, quotes, limits and plans."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from tests.support.golden_journals import AGENTS, COUNT, LET_ASK
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import EVENTS, QUOTE, chat, events, portico, resume, send_command


@asynccontextmanager
async def lead(**tables: Any) -> AsyncIterator[RunningServer]:
    async with portico(**{"agents": AGENTS} | tables) as (served, _):
        yield served


async def ask(served: RunningServer, text: str = COUNT, **fields: Any) -> HttpAnswer:
    return await served.post(chat(text, request_id="q", agent="lead", **fields))


async def test_nested_calls_deltas_and_steps_carry_the_name_of_the_agent() -> None:
    async with lead() as served:
        streamed = events(await served.post(chat(COUNT, request_id="q", agent="lead"), EVENTS))
        trace = await served.get("/v1/executions/q/trace")
        steps = await served.get("/v1/executions/q/steps")
        replayed = await send_command(served, "replay")
    response = streamed[-1]["response"]
    assert [(each["name"], each["step_name"]) for each in response["tool_calls_made"]] == [
        ("agent__counter", None),
        ("calculate", "agent:counter"),
    ]
    deltas = {each.get("step_name") for each in streamed if each["type"] == "inference.delta"}
    assert deltas == {None, "agent:counter"}
    assert [each["tool_name"] for each in trace.json["tool_calls"]] == ["agent__counter", "calculate"]
    assert all(each["success"] for each in trace.json["tool_calls"])
    started = next(each for each in steps.json["data"] if each["kind"] == "tool_call")
    assert started["outcome"]["tools"] == ["calculate"]
    assert replayed.json["identical"] is True


async def test_a_question_of_a_nested_agent_is_answered_over_http() -> None:
    async with lead() as served:
        asked = await ask(served, LET_ASK)
        listed = await served.get("/v1/suspensions")
        done = await resume(served)
        again = await resume(served)
    assert (asked.status, [each["tool_id"] for each in asked.json["suspensions"]]) == (202, ["ask_person"])
    assert len(listed.json["data"]) == 1
    assert (done.status, again.status) == (200, 409)
    assert [each["result"] for each in done.json["tool_calls_made"]][1] == "yes"


async def test_a_quote_holds_for_what_agents_take() -> None:
    async with lead() as served:
        quote = (await served.post(chat(COUNT, agent="lead", limits={"tool_calls": 3}), path=QUOTE)).json
        alone = (await served.post(chat(COUNT, tools=["calculate"], limits={"tool_calls": 3}), path=QUOTE)).json
        answer = (await ask(served, limits={"tool_calls": 3})).json
        counted = [
            each for each in events(await served.get("/v1/executions/q/events")) if each["type"] == "inference.end"
        ]
    assert quote["inferences"] > alone["inferences"] >= 21
    assert len(counted) <= quote["inferences"]
    assert answer["token_usage"]["total_tokens"] <= quote["tokens"]
    assert len(answer["tool_calls_made"]) <= quote["tool_calls"] == 6


async def test_the_limit_of_calls_is_lowered_and_never_raised() -> None:
    async with lead(limits={"tool_calls": 5}) as served:
        lower = await ask(served, limits={"tool_calls": 1})
        higher = await served.post(chat(COUNT, agent="lead", limits={"tool_calls": 6}))
    assert [each["is_error"] for each in lower.json["tool_calls_made"]] == [False, True]
    assert (higher.status, higher.json["details"]["errors"][0]["field"]) == (422, "limits.tool_calls")


async def test_an_agent_is_offered_only_where_it_is_named() -> None:
    async with lead() as served:
        unnamed = await served.post(chat(COUNT))
        alone = await served.post(chat(COUNT, tools=["agent:counter"]))
        unknown = await served.post(chat(COUNT, tools=["agent:nowhere"]))
    assert "agent__counter" not in [each["name"] for each in unnamed.json["tool_calls_made"]]
    assert [each["name"] for each in alone.json["tool_calls_made"]] == ["agent__counter"]
    assert (unknown.status, unknown.json["code"]) == (422, "TOOL_NOT_FOUND")


async def test_replicas_call_no_agent_that_reaches_what_they_may_not_call() -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    fields: dict[str, Any] = {"mode": "redundant", "output": {"schema": schema}}
    async with lead() as served:
        refused = await served.post(chat("Hello", tools=["agent:asker"], **fields))
        permitted = await served.post(chat("Hello", tools=["agent:counter"], **fields))
    assert (refused.status, refused.json["details"]["errors"][0]["field"]) == (422, "tools")
    assert permitted.status == 200


async def test_a_plan_calls_an_agent_in_a_step() -> None:
    step = {
        "name": "sum",
        "type": "tool",
        "input": {"name": "agent:counter", "arguments": {"message": "calculate 6*7"}},
    }
    body = {"mode": "plan", "messages": [{"role": "user", "content": "Go"}], "plan": {"steps": [step]}}
    async with lead() as served:
        answer = await served.post(orjson.dumps({**body, "request_id": "q"}))
        replayed = await send_command(served, "replay")
    assert (answer.status, answer.json["content"][-2:]) == (200, "42")
    assert [(each["name"], each["step_name"]) for each in answer.json["tool_calls_made"]] == [
        ("agent__counter", "sum"),
        ("calculate", "agent:counter"),
    ]
    assert replayed.json["identical"] is True


async def test_a_cost_limit_needs_the_prices_of_all_agents() -> None:
    engines = {
        "priced": {"model": "rehearsal://a", "price": {"input": 1.0, "output": 1.0}},
        "free": {"model": "rehearsal://b"},
    }
    agents = {**AGENTS, "counter": {**AGENTS["counter"], "model": "free"}}
    async with lead(engines=engines, routes={"default": ["priced"]}, agents=agents) as served:
        refused = await ask(served, limits={"cost": 1})
    assert (refused.status, [each["field"] for each in refused.json["details"]["errors"]]) == (422, ["limits.cost"])
