"""Code of an agent within a flow: it stops for a person in the middle, and goes on with each call once."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from portico.adapters.system import SystemClock
from portico.domain.access.tool_policy import PolicyRule, PolicyRules
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.flow import AgentConfig, FlowGraph, flow
from portico.ports.tool import ToolContext
from tests.orchestration.flow.test_flow_loop import flow_request, pattern_of, submit
from tests.support.code import code_harness, in_real_time, runs
from tests.support.harness import Harness, open_suspensions, replay_offline
from tests.support.tools import FakeTool

RULES = PolicyRules(approve=(PolicyRule("refund", arguments={"properties": {"order": {"const": 2}}}),))
CODE = "for order in [1, 2, 3]:\n    await refund(order=order)\n'all'"


class Orders(BaseModel):
    """Entry of the flow."""


class Refunded(BaseModel):
    text: str


@flow("refunds")
def refunds() -> FlowGraph[Orders, Refunded]:
    config = AgentConfig("Refund.", "default").with_tools(["run_code", "refund"])
    return FlowGraph.builder(Orders, Refunded).agent(Orders, Refunded, config).build()


async def test_code_of_a_node_stops_for_a_person_and_goes_on_with_each_call_once() -> None:
    orders: list[int] = []

    async def refund(arguments: Mapping[str, Any], _context: ToolContext) -> str:
        orders.append(arguments["order"])
        return "refunded"

    def made(*replies: Mapping[str, Any]) -> Harness:
        tool = FakeTool("refund", refund, idempotent=False, side_effects=SideEffects.WRITE)
        return code_harness(SystemClock(), *replies, tools=[tool], rules=RULES)

    with in_real_time():
        response, record = await made(runs(CODE)).run(flow_request(refunds, input={}), pattern_of(refunds))
        assert response.state is State.SUSPENDED
        assert [each.tool_id for each in open_suspensions(record)] == ["Orders::run_code::refund"]
        assert orders == [1]
        response, after = await made(submit("all")).resume(record, {"decision": "approve"}, pattern=pattern_of(refunds))
    assert (response.state, response.structured_output) == (State.COMPLETE, {"text": "all"})
    assert orders == [1, 2, 3]
    assert replay_offline(after, pattern=pattern_of(refunds)) == len(after.steps)
