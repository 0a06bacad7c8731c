"""The trees of spans that a whole service exports, as a real collector receives them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import orjson
import pytest

from tests.support.collector import CLIENT, Collector, grpc_collector, http_collector
from tests.support.http_server import RunningServer
from tests.support.portico import ASK_PERSON, EVENTS, JSON_BODY, chat, events, portico, resume

FLOWS = {"modules": ["tests.support.example_flows"]}
REHEARSAL = {"model": "rehearsal://"}
FAILOVER = {
    "engines": {"down": {"model": "ollama://127.0.0.1:9/llama"}, "spare": REHEARSAL},
    "routes": {"default": ["down", "spare"]},
    "failover": {"max_retries": 0},
}
PLAN = {"steps": [{"name": "draft", "type": "infer"}, {"name": "polish", "type": "infer", "depends_on": ["draft"]}]}
COLOUR = {"schema": {"type": "object", "properties": {"red": {"type": "integer"}}, "required": ["red"]}}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as running:
        yield running


@asynccontextmanager
async def traced(collector: Collector, *, ratio: float = 1, **tables: Any) -> AsyncIterator[RunningServer]:
    telemetry = {"otlp_endpoint": collector.endpoint, "sample_ratio": ratio} | tables.pop("telemetry", {})
    async with portico(telemetry=telemetry, **tables) as (served, _):
        yield served


async def execute(served: RunningServer, body: bytes, **headers: str) -> list[dict[str, Any]]:
    """Run a request and return its events."""
    return events(await served.post(body, {**JSON_BODY, **EVENTS, **headers}))


def check_span_ids(logged: list[dict[str, Any]], collector: Collector) -> None:
    """Fail unless every event names a span that was received, and that one has the parent that the event names."""
    received = {each.span_id: each for each in collector.spans}
    for event in logged:
        assert received[event["span_id"]].trace_id == event["trace_id"], event
        assert received[event["span_id"]].parent_id == (event["parent_span_id"] or ""), event


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_a_tool_call_lies_below_the_attempt_that_asked_for_it(protocol: str) -> None:
    with http_collector() if protocol == "http" else grpc_collector() as collector:
        async with traced(collector, telemetry={"otlp_protocol": protocol}) as served:
            logged = await execute(served, chat("Use roll_dice: 2d6", request_id="q"))
    assert collector.trees() == [
        "invoke_agent\n  chat rehearsal\n    execute_tool roll_dice\n  chat rehearsal",
    ]
    check_span_ids(logged, collector)
    tool = collector.named("execute_tool roll_dice")
    assert tool.attributes["gen_ai.operation.name"] == "execute_tool"
    assert "portico.tool.client" not in tool.attributes
    assert collector.resources[0]["service.name"] == "portico"
    [request] = collector.requests
    assert collector.named("invoke_agent").parent_id == request.span_id


async def test_a_call_that_the_client_runs_is_marked(collector: Collector) -> None:
    tool = {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
    async with traced(collector) as served:
        await execute(served, chat("Use read_file: a", request_id="q", client_tools=[tool]))
        assert (await resume(served, tool_id="read_file", payload={"result": "seven lines"})).status == 200
    assert collector.named("execute_tool read_file").attributes["portico.tool.client"] is True


async def test_an_attempt_shows_what_was_asked_of_which_model(collector: Collector) -> None:
    hints = {"max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["canary"]}
    async with traced(collector) as served:
        await execute(served, chat("hello", hints=hints, session_id="s-1"))
    attempt, root = collector.named("chat rehearsal"), collector.named("invoke_agent")
    assert attempt.kind == CLIENT
    assert attempt.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "rehearsal",
        "gen_ai.request.model": "rehearsal",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "rehearsal",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": attempt.attributes["gen_ai.response.time_to_first_chunk"],
        "gen_ai.usage.input_tokens": root.attributes["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": root.attributes["gen_ai.usage.output_tokens"],
        "portico.provider": next(iter({attempt.attributes["portico.provider"]})),
    }
    assert root.attributes["gen_ai.conversation.id"] == "s-1"
    assert "canary" not in str(collector.spans)


async def test_a_failover_shows_both_attempts_and_the_transitions_between_them(collector: Collector) -> None:
    async with traced(collector, **FAILOVER) as served:
        logged = await execute(served, chat("hello"))
    assert collector.trees() == [
        "invoke_agent\n  chat llama  ! INFERENCE_MODEL_UNAVAILABLE\n  chat rehearsal",
    ]
    check_span_ids(logged, collector)
    failed, root = collector.named("chat llama"), collector.named("invoke_agent")
    assert failed.is_error
    assert not root.is_error
    assert (failed.attributes["server.address"], failed.attributes["server.port"]) == ("127.0.0.1", 9)
    assert failed.attributes["gen_ai.provider.name"] == "ollama"
    moves = [found for name, found in root.events if name == "portico.fallback.transition"]
    assert any(found["portico.from_state"] == "RETRYING" for found in moves)


async def test_each_step_of_a_plan_is_a_span_with_its_attempts(collector: Collector) -> None:
    body = {"mode": "plan", "messages": [{"role": "user", "content": "hi"}], "plan": PLAN}
    async with traced(collector) as served:
        logged = await execute(served, orjson.dumps(body))
    assert collector.trees() == [
        "invoke_workflow plan\n  plan\n  step draft\n    chat rehearsal\n  step polish\n    chat rehearsal",
    ]
    check_span_ids(logged, collector)
    assert collector.named("step draft").attributes["portico.step.status"] == "completed"


async def test_each_pass_is_a_span_with_its_steps_and_its_assessment(collector: Collector) -> None:
    body = {"mode": "plan", "messages": [{"role": "user", "content": "hi [[again:1]]"}], "plan": {"passes": 3}}
    async with traced(collector) as served:
        logged = await execute(served, orjson.dumps(body))
    check_span_ids(logged, collector)
    collector.check()
    first, second = collector.named("pass 1"), collector.named("pass 2")
    assert [first.attributes["portico.pass.converged"], second.attributes["portico.pass.converged"]] == [False, True]
    steps = [each for each in collector.spans if each.name.startswith("step ")]
    assert {each.parent_id for each in steps} == {first.span_id, second.span_id}
    assert collector.named("plan").attributes["gen_ai.operation.name"] == "plan"


async def test_a_vote_has_a_span_with_one_for_each_replica(collector: Collector) -> None:
    body = {"mode": "redundant", "messages": [{"role": "user", "content": "red 1"}], "output": COLOUR}
    async with traced(collector) as served:
        logged = await execute(served, orjson.dumps({**body, "redundancy": {"n": 3, "voting": "unanimity"}}))
    replicas = "".join(f"\n    replica {number}\n      chat rehearsal" for number in range(3))
    assert collector.trees() == [f"invoke_agent\n  vote{replicas}"]
    check_span_ids(logged, collector)


async def test_each_node_of_a_flow_is_a_step(collector: Collector) -> None:
    body = {"mode": "flow", "flow": {"name": "linear", "input": {"text": "one two"}}}
    async with traced(collector, flows=FLOWS) as served:
        logged = await execute(served, orjson.dumps(body))
    [tree] = collector.trees()
    assert tree.splitlines()[0] == "invoke_workflow linear"
    assert [line.startswith("  step ") for line in tree.splitlines()[1:]] == [True, True]
    check_span_ids(logged, collector)


async def test_an_agent_that_a_call_runs_lies_within_the_call(collector: Collector) -> None:
    agents = {
        "chief": {"system_prompt": "Use agent__helper.", "tools": ["agent:helper"], "description": "Asks."},
        "helper": {"system_prompt": "Help.", "description": "Helps.", "tools": ["roll_dice"]},
    }
    text = 'Use agent__helper: "Use roll_dice: 2d6"'
    async with traced(collector, agents=agents) as served:
        logged = await execute(served, chat(text, agent="chief", hints={"tool_choice": {"name": "agent__helper"}}))
    check_span_ids(logged, collector)
    collector.check()
    call, agent = collector.named("execute_tool agent__helper"), collector.named("invoke_agent helper")
    assert agent.parent_id == call.span_id
    assert any(each.parent_id == agent.span_id for each in collector.spans if each.name == "chat rehearsal")
    assert collector.named("invoke_agent chief").attributes["gen_ai.agent.name"] == "chief"


async def test_a_resume_on_another_replica_continues_the_tree(collector: Collector, tmp_path: Path) -> None:
    storage = {"url": f"sqlite:///{tmp_path}/traces.db"}
    async with traced(collector, storage=storage) as served:
        logged = await execute(served, chat(ASK_PERSON, request_id="q"))
    before = {each.span_id for each in collector.spans}
    assert "invoke_agent" not in {each.name for each in collector.spans}
    async with traced(collector, storage=storage, ratio=0) as served:
        assert (await resume(served)).status == 200
        logged += events(await served.get("/v1/executions/q/events", EVENTS))
    collector.check()
    assert before < {each.span_id for each in collector.spans}
    check_span_ids(logged, collector)
    assert {each.trace_id for each in collector.spans} == {logged[0]["trace_id"]}


async def test_the_next_owner_after_a_crash_builds_what_is_missing(collector: Collector, tmp_path: Path) -> None:
    crashed, copied = tmp_path / "crashed", tmp_path / "copied"
    crashed.mkdir()
    with http_collector() as lost:
        async with traced(lost, storage={"url": f"sqlite:///{crashed}/traces.db"}) as served:
            body = chat("hello [[slow:100]]", request_id="q", background=True)
            assert (await served.post(body, JSON_BODY)).status == 202
            while not (await served.get("/v1/executions/q")).json["provider"]:
                pass
            copytree(crashed, copied)
    async with traced(collector, ratio=0, storage={"url": f"sqlite:///{copied}/traces.db"}) as served:
        logged = events(await served.get("/v1/executions/q/events", EVENTS))
    assert [event["type"] for event in logged].count("inference.start") == 2
    collector.check()
    check_span_ids(logged, collector)
    assert collector.trees() == ["invoke_agent\n  chat rehearsal  ! _OTHER\n  chat rehearsal"]


async def test_what_goes_on_from_an_execution_links_to_it(collector: Collector) -> None:
    async with traced(collector) as served:
        first = await execute(served, chat("one", request_id="one"))
        await execute(served, chat("two", request_id="two", after="one"))
        fork = await served.post(b'{"from_step": 0}', JSON_BODY, path="/v1/executions/one/fork")
        assert fork.status == 200
    roots = {each.attributes["portico.request_id"]: each for each in collector.spans if each.name == "invoke_agent"}
    origin = (first[0]["trace_id"], roots["one"].span_id)
    others = [each for name, each in roots.items() if name != "one"]
    assert [each.links for each in others] == [[origin], [origin]]
    assert len({each.trace_id for each in roots.values()}) == 3
    collector.check()


async def test_an_execution_that_is_not_sampled_is_kept_if_it_fails_or_fails_over(collector: Collector) -> None:
    async with traced(collector, ratio=0) as served:
        await execute(served, chat("hello"))
        await execute(served, chat("hello [[fail:400]]", request_id="failed"))
    [root] = [each for each in collector.spans if each.name == "invoke_agent"]
    assert root.attributes["portico.request_id"] == "failed"
    assert root.is_error
    assert root.attributes["error.type"] == "INFERENCE_ENGINE_ERROR"
    collector.spans.clear()
    async with traced(collector, ratio=0, **FAILOVER) as served:
        await execute(served, chat("hello"))
    assert [each.name for each in collector.spans] == ["chat llama", "chat rehearsal", "invoke_agent"]
    collector.spans.clear()
    async with traced(collector, ratio=0, telemetry={"sample_errors": False}, **FAILOVER) as served:
        await execute(served, chat("hello"))
    assert collector.spans == []
