"""Snapshots of flows in the service: equal to those of the runtime alone, and continued by it."""

from dataclasses import replace
from typing import Any

import pytest

from portico.domain.contract.response import SuspensionKind
from portico.orchestration.flow import Context, FlowRuntime, FlowSnapshot, FlowSuspension, NodeFailed, RunOut
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.runtime.flow_snapshot import flow_snapshot
from portico.ports.journal import ExecutionHistory
from tests.orchestration.flow.test_flow_loop import FLOWS, flow_request, pattern_of
from tests.support import example_flows as examples
from tests.support.harness import Harness, make_harness, scripted_engine, watch_commits
from tests.support.virtual_time import VirtualClock

CONTEXT = Context()


def snapshot_of(definition: Any, record: ExecutionHistory) -> FlowSnapshot:
    graph = definition()
    record = replace(record, header=replace(record.header, flow_fingerprint=graph.fingerprint))
    return flow_snapshot(record, {graph.name: ServedFlow(graph, CONTEXT)})


def harness(clock: VirtualClock, *replies: Any) -> Harness:
    return make_harness(
        clock, scripted_engine(clock, "default", *replies), tools=[examples.search, examples.ask_editor]
    )


async def run_alone(runtime: FlowRuntime[Any, Any], payloads: list[Any]) -> Any:
    """Return the result of the flow; suspensions get these answers."""
    while True:
        match await runtime.next(CONTEXT):
            case RunOut.Done(value):
                return value.model_dump()
            case RunOut.Suspend(suspensions):
                for each in suspensions:
                    await runtime.resume(CONTEXT, each.tool_id, payloads.pop(0), each.suspension_id)


@pytest.mark.parametrize(
    ("definition", "entry", "replies", "payloads", "output"), FLOWS, ids=[each[0].name for each in FLOWS]
)
async def test_the_runtime_alone_goes_on_from_every_commit_to_the_same_result(
    clock: VirtualClock, definition: Any, entry: Any, replies: list[Any], payloads: list[Any], output: Any
) -> None:
    here = watch_commits(harness(clock, *replies))
    response, record = await here.run(flow_request(definition, input=entry), pattern_of(definition))
    for commit, _ in [*here.journal.commits, (record, None)]:
        snapshot = FlowSnapshot.model_validate_json(snapshot_of(definition, commit).model_dump_json())
        replied = [each for agent in snapshot.agents.values() for each in agent.messages if each.role == "assistant"]
        engine = scripted_engine(clock, "default", *replies[len(replied) :])
        runtime = FlowRuntime.from_snapshot(definition(), snapshot).with_engines({"default": engine})
        left = list(payloads)
        if snapshot.is_announced:
            for each in response.suspensions:
                await runtime.resume(CONTEXT, each.tool_id, left.pop(0), each.suspension_id)
        assert await run_alone(runtime, left) == output
    assert snapshot.usage == response.token_usage


async def test_a_suspended_agent_shows_its_conversation_and_its_open_calls(clock: VirtualClock) -> None:
    replies = FLOWS[5][2]
    response, record = await harness(clock, *replies).run(
        flow_request(examples.research, input={"topic": "sea"}), pattern_of(examples.research)
    )
    snapshot = snapshot_of(examples.research, record)
    agent = snapshot.agents["Topic"]
    assert (snapshot.flow, snapshot.state, snapshot.suspensions) == ("research", (("Topic", {"topic": "sea"}),), ())
    assert [message.role for message in agent.messages] == ["user", "assistant"]
    assert [(each.call.name, each.result, each.suspension is None) for each in agent.calls] == [
        ("search", "three books about sea", True),
        ("ask_editor", None, False),
    ]
    assert [each.suspension_id for each in agent.suspensions] == [each.suspension_id for each in response.suspensions]
    assert (snapshot.steps, agent.is_working, agent.tool_rounds) == (1, True, 1)


async def test_a_suspended_node_shows_its_question(clock: VirtualClock) -> None:
    request = flow_request(examples.approval, input={"number": "7", "amount": 500})
    response, record = await harness(clock).run(request, pattern_of(examples.approval))
    snapshot = snapshot_of(examples.approval, record)
    [asked] = snapshot.suspensions
    assert (asked.node, asked.tool_id, asked.value) == ("Invoice", "Invoice", response.suspensions[0].value)
    assert (snapshot.steps, snapshot.is_announced, snapshot.fingerprint) == (1, True, examples.approval().fingerprint)


async def test_a_flow_that_has_ended_shows_its_output(clock: VirtualClock) -> None:
    request = flow_request(examples.linear, input={"text": "a b"})
    _, record = await harness(clock).run(request, pattern_of(examples.linear))
    assert snapshot_of(examples.linear, record).state == (("Count", {"count": 2}),)


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        ({"decision": "happened", "result": {"receipt": "paid"}}, {"receipt": "paid"}),
        ({"decision": "run"}, {"receipt": "paid, approved by ada"}),
    ],
)
async def test_the_runtime_takes_the_answer_to_what_an_uncertain_node_has_done(payload: Any, result: Any) -> None:
    graph = examples.approval()
    asked = FlowSuspension(
        suspension_id="s", kind=SuspensionKind.UNKNOWN_OUTCOME, node="Approved", tool_id="Approved", value=None
    )
    state = (("Approved", {"by": "ada"}),)
    snapshot = FlowSnapshot(flow=graph.name, fingerprint=graph.fingerprint, state=state, suspensions=(asked,))
    runtime = FlowRuntime.from_snapshot(graph, snapshot)
    await runtime.resume(CONTEXT, "Approved", payload)
    assert await run_alone(runtime, []) == result
    with pytest.raises(NodeFailed):
        await FlowRuntime.from_snapshot(graph, snapshot).resume(CONTEXT, "Approved", {"decision": "give_up"})
