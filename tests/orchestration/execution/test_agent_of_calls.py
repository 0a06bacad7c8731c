"""The agent that acts: every way into a tool call, under every rule of policy that names an agent.

The rules are about the agents `vip*`. In the ways in which none of them acts, a step or a node has the name of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from portico.bootstrap.flows import LoadedFlow, with_agents
from portico.capabilities.tools.agents import AgentCatalogue
from portico.capabilities.tools.step_function import StepFunction, step
from portico.domain.access.tool_policy import PolicyRule, PolicyRules
from portico.domain.agents import RequestedAgent
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse, ToolCallMade
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.execution import Execution
from portico.orchestration.flow import AgentConfig, Context, FlowGraph
from portico.orchestration.flow.flow_loop import flow_loop
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.planning.plan_mode import make_plan, run_plan
from portico.orchestration.runtime.fork import ForkRequest, fork_execution
from portico.ports.journal import ExecutionHistory
from portico.ports.model import Engine
from portico.ports.tool import ToolContext, ToolError
from tests.support.agents import agent, asks, to
from tests.support.harness import (
    Harness,
    answer_suspension,
    make_harness,
    replay_offline,
    response_of,
    scripted_engine,
)
from tests.support.passes import PhasesEngine
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

RAN, ASKED, REFUSED, NOT_CALLED = "ran", "asked", "refused", "not called"
DISGUISE = "agent:vip"
ADA = {"to": "Ada"}
SEND, LOOK, NOTE, ASK = (asks((name, ADA)) for name in ("send", "look", "note", "ask"))
VIP, LEAD = asks(to("vip")), asks(to("lead"))
DONE, DRAFT = {"text": "done"}, asks(("submit", {"text": "done"}))
VOTE, SCHEMA = {"text": '{"text": "done"}'}, {"type": "object", "properties": {"text": {"type": "string"}}}
AGENTS = AgentCatalogue(
    [
        agent("vip", "send", "ask", model=None),
        agent("lead", "agent:vip", "send", model=None),
        agent("helper", "send", model=None),
    ]
)


class Task(BaseModel):
    task: str


class Disguised(Task):
    model_config = ConfigDict(title=DISGUISE)


class Draft(BaseModel):
    text: str


def of_flow(config: AgentConfig) -> Any:
    """Return the pattern of a flow whose only node is this agent; the key of the node is the title of the task."""
    task = Task if config.agent == "vip" else Disguised
    graph = replace(FlowGraph.builder(task, Draft).agent(task, Draft, config).build(), name="work")
    served = with_agents({"work": LoadedFlow(graph, ())}, AGENTS)["work"].graph
    return partial(flow_loop, {"work": ServedFlow(served, Context())})


@dataclass(frozen=True)
class Way:
    """A way into a call of `tool`; `actor` is the agent that acts, `fields` are those of the request.

    The model answers from the `script`, or in the phases of planning from `phases`. With `asks_first` it asks a person
    before the call, and with `from_step` a fork makes it.
    """

    actor: str | None
    fields: Mapping[str, Any]
    script: Sequence[Mapping[str, Any]] = ()
    tool: str = "send"
    pattern: Any = agent_loop
    planning: Any = None
    phases: Mapping[str, Any] = field(default_factory=dict)
    asks_first: bool = False
    from_step: int | None = None

    @property
    def is_replica(self) -> bool:
        return self.tool == "look"

    def engine(self, clock: VirtualClock) -> Engine:
        return PhasesEngine(clock, **self.phases) if self.phases else scripted_engine(clock, "a", *self.script)

    def request(self) -> SystemRequest:
        asked = {} if self.fields.get("mode") == "flow" else {"messages": [{"role": "user", "content": "hello"}]}
        return SystemRequest.model_validate(asked | dict(self.fields))


def chat(actor: str | None, *script: Mapping[str, Any], tools: Sequence[str] = ("send", "ask"), **more: Any) -> Way:
    fields = {"tools": list(tools)} | more.pop("fields", {})
    return Way(actor, fields, script, **more)


def plan(actor: str | None, planned: Mapping[str, Any], *script: Mapping[str, Any], **more: Any) -> Way:
    """Return the way through a plan of one step, which is named like an agent."""
    steps = [{"name": DISGUISE, "input": "hello"} | planned]
    policy = {"allowed_step_types": [planned["type"], "tool"]}
    fields = {"mode": "plan", "plan": {"steps": steps, "policy": policy}} | more.pop("fields", {})
    return Way(actor, fields, script, pattern=run_plan, planning=make_plan, **more)


def flow(actor: str | None, config: AgentConfig, *script: Mapping[str, Any], **more: Any) -> Way:
    fields = {"mode": "flow", "flow": {"name": "work", "input": {"task": "send it"}}}
    return Way(actor, fields, (*script, DRAFT), pattern=of_flow(config), **more)


OF_VIP = {"agent": "vip"}
OWN_NODE = AgentConfig("Work.", "default").with_tools(["send", "ask"])
DELEGATING_NODE = AgentConfig("Delegate.", "default").with_tools(["agent:vip"])
INFER = {"type": "infer", "tools": ["send", "ask"]}
TOOL_STEP = {"type": "tool", "input": {"name": "send", "arguments": ADA}}
AGENT_STEP = {"type": "tool", "input": {"name": "agent:vip", "arguments": {"message": "go"}}}
OWN_TYPE = {"type": "send", "input": "Ada"}
VOTES = {"type": "redundant", "tools": ["look"], "schema": SCHEMA, "n": 2}
PLANNED = {"profile": {}, "plan": {"steps": [TOOL_STEP | {"name": "inner"}]}}
WAYS: Mapping[str, Way] = {
    "chat": chat(None, SEND, DONE),
    "chat of an agent": chat("vip", SEND, DONE, fields=OF_VIP),
    "called agent": chat("vip", VIP, SEND, DONE, DONE, tools=["agent:vip", "send"]),
    "agent of an agent": chat("vip", LEAD, VIP, SEND, DONE, DONE, DONE, tools=["agent:lead", "agent:vip", "send"]),
    "another agent of an agent": chat(
        "helper", asks(to("helper")), SEND, DONE, DONE, tools=["agent:helper", "send"], fields=OF_VIP
    ),
    "caller behind its agent": chat(None, VIP, DONE, SEND, DONE, tools=["agent:vip", "send"]),
    "infer step": plan(None, INFER, SEND, DONE),
    "infer step of an agent": plan("vip", INFER | {"name": "other"}, SEND, DONE, fields=OF_VIP),
    "tool step": plan(None, TOOL_STEP),
    "tool step that calls an agent": plan("vip", AGENT_STEP, SEND, DONE),
    "redundant step": plan(None, VOTES, LOOK, LOOK, VOTE, VOTE, tool="look"),
    "redundant step of an agent": plan("vip", VOTES, LOOK, LOOK, VOTE, VOTE, tool="look", fields=OF_VIP),
    "subplan": plan(None, {"type": "subplan"}, phases=PLANNED),
    "own step type": plan(None, OWN_TYPE, tool="step:send"),
    "own step type of an agent": plan("vip", OWN_TYPE, tool="step:send", fields=OF_VIP),
    "node that is an agent": flow("vip", AgentConfig.named("vip"), SEND),
    "node that is another agent": flow("helper", AgentConfig.named("helper"), SEND),
    "agent of the flow": flow(None, OWN_NODE, SEND),
    "agent that a node calls": flow("vip", DELEGATING_NODE, VIP, SEND, DONE),
    "fork": chat(None, NOTE, DONE, SEND, DONE, tools=["send", "note"], from_step=2),
    "fork of an agent": chat("vip", NOTE, DONE, SEND, DONE, tools=["send", "note"], from_step=2, fields=OF_VIP),
    "resumed chat of an agent": chat("vip", ASK, SEND, DONE, asks_first=True, fields=OF_VIP),
    "resumed agent": chat("vip", VIP, ASK, SEND, DONE, DONE, tools=["agent:vip", "send", "ask"], asks_first=True),
    "resumed step": plan(None, INFER, ASK, SEND, DONE, asks_first=True),
    "resumed node that is an agent": flow("vip", AgentConfig.named("vip"), ASK, SEND, asks_first=True),
    "resumed agent of the flow": flow(None, OWN_NODE, ASK, SEND, asks_first=True),
}


def rules_of(kind: str, tool: str) -> PolicyRules:
    """Return the rules of that kind about the agents `vip*`; without them every call runs, or waits for a person."""
    about, always = PolicyRule(tool, agent="vip*"), (PolicyRule(tool),)
    trusted = PolicyRules(trusted_output=("*",))
    match kind:
        case "deny":
            return replace(trusted, deny=(about,), pre_authorise=always)
        case "deny calls":
            return replace(trusted, deny=(replace(about, arguments={"type": "object"}),), pre_authorise=always)
        case "approve":
            return replace(trusted, approve=(about,), pre_authorise=always)
        case "pre_authorise":
            return replace(trusted, pre_authorise=(about,))
        case "allow":
            others = tuple(map(PolicyRule, ("agent__*", "ask", "note")))
            return replace(trusted, allow=(about, *others), pre_authorise=always)
        case _:
            return trusted


def expected(kind: str, way: Way) -> str:
    """Return what becomes of the call."""
    concerned = way.actor == "vip"
    if way.is_replica and kind == "approve":
        return NOT_CALLED  # a plan must not let several replicas wait for a person
    if way.is_replica and kind == "pre_authorise":
        return RAN  # the tool acts on nothing
    table = {
        "deny": (REFUSED, RAN),
        "deny calls": (REFUSED, RAN),
        "approve": (ASKED, RAN),
        "pre_authorise": (RAN, ASKED),
        "allow": (RAN, REFUSED),
        "none": (ASKED, ASKED),
    }
    end = table[kind][not concerned]
    return ASKED if end == RAN and way.from_step is not None else end  # the text of a fork is not trusted


class World:
    """Executions of a way on an engine that goes on where the last of them stopped; `acts` has the calls that ran."""

    def __init__(self, clock: VirtualClock, way: Way) -> None:
        self.acts: list[str] = []
        self._clock, self._way, self._engine = clock, way, way.engine(clock)

    async def run(self, rules: PolicyRules) -> tuple[SystemResponse, ExecutionHistory]:
        """Return the response and the history behind the call."""
        way, here = self._way, self._harness(rules)
        named = RequestedAgent("", ("send", "ask", "look", "note", "agent__helper"))
        execution = here.execution(way.request(), agent=named if "agent" in way.fields else None)
        await here.drive(execution, way.pattern, way.planning)
        if way.from_step is not None:
            execution = await self._fork(here, here.record(execution), way.from_step)
        response, record = response_of(execution), here.record(execution)
        return await self.answer(record, "go on", rules) if way.asks_first else (response, record)

    async def answer(
        self, record: ExecutionHistory, payload: Any, rules: PolicyRules
    ) -> tuple[SystemResponse, ExecutionHistory]:
        """Answer the open question, and continue in another process, whose store lacks the origin of a fork."""
        answered = answer_suspension(self._clock, record, payload)
        answered = replace(answered, header=replace(answered.header, ancestors=()))
        return await self._harness(rules).recover(answered, self._way.pattern, self._way.planning)

    def outcome(self, response: SystemResponse) -> str:
        """Return what became of the call."""
        if not calls_of(response, self._way.tool):
            return NOT_CALLED
        if self.acts:
            return RAN
        return ASKED if response.state is State.SUSPENDED else REFUSED

    async def _fork(self, here: Harness, origin: ExecutionHistory, from_step: int) -> Execution:
        fresh = here.execution(self._way.request()).header
        fresh = replace(fresh, execution_id="fork", request_id="fork", durability="journaled")
        request = ForkRequest.model_validate({"from_step": from_step})
        header, steps = fork_execution(fresh, origin, from_step, request, tools=None)
        await here.journal.open(header, steps=steps)
        history = ExecutionHistory(header, {each.key: each for each in steps}, ())
        execution = Execution(header, environment=here.environment, journal=here.journal, history=history)
        await here.drive(execution, self._way.pattern)
        return execution

    def _harness(self, rules: PolicyRules) -> Harness:
        tools = [
            FakeTool("send", self._act, side_effects=SideEffects.EXTERNAL, idempotent=False),
            FakeTool("look", self._act),
            FakeTool("note", side_effects=SideEffects.WRITE, idempotent=False),
            FakeTool("ask", self._ask),
        ]
        here = make_harness(
            self._clock,
            self._engine,
            tools=[*tools, *AGENTS.tools(each.info() for each in tools)],
            step_functions=[self._own_type()],
            rules=rules,
            attempts=1,
            tool_calls=200,
        )
        return replace(here, environment=replace(here.environment, agents=AGENTS))

    def _own_type(self) -> StepFunction:
        @step(side_effects=SideEffects.EXTERNAL, idempotent=False)
        async def send(whom: str) -> str:
            """Send."""
            self.acts.append("step:send")
            return f"sent to {whom}"

        return send

    async def _act(self, _arguments: Mapping[str, Any], _context: ToolContext) -> str:
        self.acts.append("call")
        return "done"

    async def _ask(self, _arguments: Mapping[str, Any], _context: ToolContext) -> str:
        raise ToolError.suspend("whom?")


def calls_of(response: SystemResponse, tool: str) -> list[ToolCallMade]:
    return [each for each in response.tool_calls_made if each.name == tool]


def actors(response: SystemResponse, tool: str) -> set[str | None]:
    """Return the agents that the response shows for the calls of the tool, and for the questions about them."""
    calls = calls_of(response, tool)
    open_calls = [each for each in response.suspensions if each.tool_call_id in {call.id for call in calls}]
    assert len(open_calls) == len(response.suspensions)
    return {each.agent for each in (*calls, *open_calls)}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("kind", ["deny", "deny calls", "approve", "pre_authorise", "allow"])
async def test_a_rule_about_an_agent_concerns_the_calls_that_this_agent_makes_and_no_others(
    clock: VirtualClock, kind: str, name: str
) -> None:
    way = WAYS[name]
    world, rules = World(clock, way), rules_of(kind, way.tool)
    response, record = await world.run(rules)
    assert world.outcome(response) == expected(kind, way)
    assert actors(response, way.tool) == ({way.actor} if calls_of(response, way.tool) else set())
    assert replay_offline(record, way.pattern, way.planning) == len(record.steps)
    if response.state is State.SUSPENDED:
        response, record = await world.answer(record, {"decision": "approve"}, rules)
        assert (world.outcome(response), actors(response, way.tool)) == (RAN, {way.actor})
        assert replay_offline(record, way.pattern, way.planning) == len(record.steps)


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if not way.is_replica])
async def test_an_emergency_denial_for_an_agent_stops_its_approved_calls_and_no_others(
    clock: VirtualClock, name: str
) -> None:
    way = WAYS[name]
    world = World(clock, way)
    response, record = await world.run(rules_of("none", way.tool))
    assert (world.outcome(response), actors(response, way.tool)) == (ASKED, {way.actor})
    response, record = await world.answer(record, {"decision": "approve"}, rules_of("deny calls", way.tool))
    assert world.outcome(response) == (REFUSED if way.actor == "vip" else RAN)
    assert replay_offline(record, way.pattern, way.planning) == len(record.steps)
