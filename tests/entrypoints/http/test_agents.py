"""Agents over HTTP: what a request is given by its agent, what it may narrow, and what it may not widen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from portico.domain.failures import ConfigurationFailure
from portico.settings import load_settings
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import chat, portico

SIZE = {"type": "object", "required": ["size"], "properties": {"size": {"enum": ["small", "large"]}}}
AGENTS: dict[str, dict[str, Any]] = {
    "counter": {
        "description": "Does sums.",
        "system_prompt": "You are the counter. CANARY-PROMPT",
        "model": "twin",
        "tools": ["calculate", "agent:dicer"],
        "limits": {"tool_rounds": 3, "tokens": 50_000},
        "hints": {"max_tokens": 300, "temperature": 0.1},
    },
    "dicer": {"description": "Rolls dice.", "tools": ["roll_dice"]},
    "sizer": {"description": "Tells sizes.", "mode": "structured", "output": {"schema": SIZE}},
}
ENGINES = {"first": {"model": "rehearsal://first"}, "twin": {"model": "rehearsal://twin"}}
SUM = "Please calculate 17*3"


@asynccontextmanager
async def agents(**tables: Any) -> AsyncIterator[RunningServer]:
    async with portico(**{"engines": ENGINES, "agents": AGENTS} | tables) as (served, _):
        yield served


async def ask(served: RunningServer, text: str = SUM, **fields: Any) -> HttpAnswer:
    return await served.post(chat(text, request_id="q", agent="counter", **fields))


async def test_a_request_has_what_its_agent_gives_it() -> None:
    async with agents() as served:
        answer = await ask(served, metadata={"a": "b"})
        shown = await served.get("/v1/executions/q")
        trace = await served.get("/v1/executions/q/trace")
        admitted = await served.get("/v1/executions/q/input")
        await served.post(chat("Hello", request_id="plain"))
        found = [await served.get(f"/v1/executions?agent={name}") for name in ("counter", "dicer")]
    assert answer.status == 200
    assert [each["name"] for each in answer.json["tool_calls_made"]] == ["calculate"]
    assert answer.json["metadata"]["provider"] == "twin"
    assert (shown.json["agent"], trace.json["agent"]) == ("counter", "counter")
    assert [[each["request_id"] for each in page.json["data"]] for page in found] == [["q"], []]
    assert admitted.json["hints"]["temperature"] == 0.1
    assert admitted.json["limits"]["tool_rounds"] == 3
    assert [message["role"] for message in admitted.json["messages"]] == ["user"]


async def test_the_mode_and_the_output_are_those_of_the_agent() -> None:
    async with agents() as served:
        answer = await served.post(chat("How large is Ulm?", agent="sizer"))
        repeated = await served.post(
            chat("How large is Ulm?", agent="sizer", mode="structured", output=AGENTS["sizer"]["output"])
        )
    assert [(each.status, each.json["mode"]) for each in (answer, repeated)] == [(200, "structured")] * 2
    assert answer.json["structured_output"].keys() == {"size"}


async def test_an_agent_that_chats_answers_in_the_format_of_the_request() -> None:
    async with agents() as served:
        answer = await served.post(chat(SUM, agent="counter", mode="structured", output=AGENTS["sizer"]["output"]))
    assert (answer.status, answer.json["mode"]) == (200, "structured")
    assert answer.json["structured_output"].keys() == {"size"}


async def test_a_request_narrows_its_agent() -> None:
    async with agents() as served:
        without = await ask(served, tools=[])
        lower = await served.post(chat(SUM, agent="counter", limits={"tool_rounds": 0}, hints={"max_tokens": 100}))
    assert without.json["tool_calls_made"] == []
    assert (lower.status, lower.json["error"]["details"]) == (422, {"tool_rounds": 0})


WIDENING = [
    ({"mode": "structured"}, "mode"),
    ({"model": "first"}, "model"),
    ({"tools": ["calculate", "current_time"]}, "tools.1"),
    ({"limits": {"tool_rounds": 4}}, "limits.tool_rounds"),
    ({"limits": {"tokens": 50_001}}, "limits.tokens"),
    ({"hints": {"max_tokens": 301}}, "hints.max_tokens"),
    ({"agent": "unknown"}, "agent"),
]


@pytest.mark.parametrize(("fields", "field"), WIDENING, ids=[field for _, field in WIDENING])
async def test_a_request_does_not_widen_its_agent(fields: dict[str, Any], field: str) -> None:
    async with agents() as served:
        body = orjson.loads(chat(SUM, agent="counter")) | fields
        answer = await served.post(orjson.dumps(body))
        quoted = await served.post(orjson.dumps(body), path="/v1/quote")
    assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
    assert [each["field"] for each in answer.json["details"]["errors"]] == [field]
    assert quoted.status == 422


async def test_tools_of_agents_that_it_calls_may_be_named() -> None:
    async with agents() as served:
        answer = await ask(served, tools=["calculate", "agent:dicer", "roll_dice"])
    assert answer.status == 200


async def test_the_prompt_of_the_agent_comes_first_and_stays_out_of_the_session() -> None:
    async with agents() as served:
        system = [{"role": "system", "content": "Be brief."}]
        body = {"agent": "counter", "session_id": "s", "messages": [*system, {"role": "user", "content": "Hello"}]}
        first = await served.post(orjson.dumps({**body, "request_id": "one"}))
        second = await served.post(chat("And now?", agent="counter", session_id="s", request_id="two"))
        prepared = [await _prepared(served, name) for name in ("one", "two")]
        stored = await served.get("/v1/sessions/s/messages")
    assert (first.status, second.status) == (200, 200)
    assert [(each["role"], each["content"][:9]) for each in prepared[0]] == [
        ("system", "You are t"),
        ("system", "Be brief."),
        ("user", "Hello"),
    ]
    assert [each["content"][:9] for each in prepared[1]][:3] == ["You are t", "Be brief.", "Hello"]
    assert "CANARY-PROMPT" not in stored.body.decode()


async def _prepared(served: RunningServer, request_id: str) -> list[dict[str, Any]]:
    steps = (await served.get(f"/v1/executions/{request_id}/steps")).json["data"]
    [found] = [step["outcome"]["messages"] for step in steps if step["kind"] == "prepare"]
    messages: list[dict[str, Any]] = found
    return messages


async def test_the_catalogue_shows_agents_without_their_prompts() -> None:
    async with agents() as served:
        listed = await served.get("/v1/agents")
        tools = await served.get("/v1/tools")
    names = [each["name"] for each in listed.json["data"]]
    assert names == ["counter", "dicer", "sizer"]
    assert listed.json["data"][0]["tools"] == ["calculate", "agent:dicer"]
    assert listed.json["data"][0]["limits"] == {"tool_rounds": 3, "tokens": 50_000}
    assert listed.json["data"][2]["output_schema"] == SIZE
    assert "CANARY" not in listed.body.decode() + tools.body.decode()


async def test_a_fork_and_a_continuation_keep_the_agent() -> None:
    async with agents() as served:
        await ask(served)
        fork = await served.post(orjson.dumps({"from_step": 1}), path="/v1/executions/q/fork")
        after = {"from_step": "end", "overrides": {"messages": [{"role": "user", "content": SUM}]}}
        continued = await served.post(orjson.dumps(after), path="/v1/executions/q/fork")
        widened = await served.post(
            orjson.dumps({"from_step": 0, "overrides": {"tools": ["current_time"]}}), path="/v1/executions/q/fork"
        )
        shown = await served.get(f"/v1/executions/{fork.json['request_id']}")
        replayed = [
            await served.post(b"", path=f"/v1/executions/{each.json['request_id']}/replay")
            for each in (fork, continued)
        ]
    assert (fork.status, continued.status, widened.status) == (200, 200, 422)
    assert shown.json["agent"] == "counter"
    assert [each.json["identical"] for each in replayed] == [True, True]


BROKEN = {
    "agents.a.tools.0": 'tools = ["agent:b"]',
    "agents.a.model": 'model = "fist"',
    "agents.a.system_prompt_file": 'system_prompt_file = "missing.txt"',
    "agents.a.limits.tool_rounds": "limits = { tool_rounds = 21 }",
    "agents.a.hints.timeout": "hints = { timeout = 601 }",
    "agents.a.mode": 'mode = "flow"',
    "agents.a.skills": 'mode = "plan"\nskills = ["x"]',
    "agents.a.skills.0": 'skills = ["a b"]',
    "agents.a.tools": 'tools = ["agent:a"]',
}


@pytest.mark.parametrize(("key", "line"), BROKEN.items(), ids=BROKEN)
def test_a_broken_agent_stops_the_start_and_its_key_is_named(key: str, line: str, tmp_path: Any) -> None:
    file = tmp_path / "portico.toml"
    file.write_text(f'[engines.first]\nmodel = "rehearsal://first"\n[agents.a]\ndescription = "A"\n{line}\n')
    with pytest.raises(ConfigurationFailure) as caught:
        load_settings({}, file)
    assert [error.split()[0].rstrip(":") for error in caught.value.details["errors"]] == [key]


def test_agents_that_name_each_other_in_a_cycle_stop_the_start(tmp_path: Any) -> None:
    tables = [f'[agents.{a}]\ndescription = "x"\ntools = ["agent:{b}"]\n' for a, b in ("ab", "bc", "cb")]
    file = tmp_path / "portico.toml"
    file.write_text("".join(tables))
    with pytest.raises(ConfigurationFailure, match=r"agents\.b\.tools.*b -> c -> b"):
        load_settings({}, file)


@pytest.mark.parametrize(
    ("agent", "key"),
    [
        ({"tools": ["calculat"]}, r"agents\.a\.tools\.0: must name a registered tool; did you mean calculate"),
        ({"output": {"schema": {"type": "objct"}}}, r"agents\.a\.output"),
    ],
)
async def test_an_agent_that_cannot_run_here_stops_the_start(agent: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigurationFailure, match=key):
        async with portico(agents={"a": {"description": "A", **agent}}):
            pass
