"""Stepwise runtime of a flow, on its own: each `next` takes one bounded step.

    runtime = FlowRuntime(graph, Question(...)).with_engines({"default": engine})
    while True:
        match await runtime.next(context):
            case RunOut.Continue():
                continue
            case RunOut.Done(report):
                return report
            case RunOut.Suspend(suspensions):
                store(runtime.snapshot())      # later: FlowRuntime.from_snapshot(graph, snapshot), then resume

Rules

1. The state is an ordered map from keys to JSON. The first node from its head fires whose inputs are all there and
   that does not wait for an answer. Its inputs are removed, then its outputs are added at the tail.
2. A step that fails raises a `FlowError` and leaves everything as it was, so it may be tried again.
3. An agent takes one step per inference with its tool calls, and keeps its place in the state until it has an answer.
4. When only the output is left, the next step is Done. When nothing can fire, the flow is suspended if a node waits for
   an answer; otherwise it is in a deadlock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeAlias, TypeVar, cast

import orjson
from pydantic import BaseModel, JsonValue
from pydantic_core import from_json

from portico.capabilities.output.canonical_json import canonical_json
from portico.domain.contract.messages import Message
from portico.domain.contract.response import NO_USAGE, SuspensionKind, TokenUsage
from portico.domain.journal.suspensions import UNKNOWN_OUTCOME_DECISIONS, GiveUp, Happened, RunAgain, payload_errors
from portico.domain.value import value
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.errors import (
    Deadlock,
    DeserializeError,
    FlowError,
    NodeFailed,
    NotFound,
    ResumeRequired,
    ResumptionMismatch,
    SnapLoadError,
    StepLimit,
    UnexpectedResumption,
)
from portico.orchestration.flow.graph import FlowGraph
from portico.orchestration.flow.local_agent import AgentStep, LocalAgent
from portico.orchestration.flow.node_run import replace_inputs, run_pure, run_work
from portico.orchestration.flow.nodes import AgentNode, EitherNode, ForkNode, JoinNode, Node, WorkNode
from portico.orchestration.flow.snapshot import AgentRecord, FlowSnapshot, FlowSuspension
from portico.ports.model import Engine
from portico.ports.tool import ToolSuspended

Input = TypeVar("Input", bound=BaseModel)
Output = TypeVar("Output", bound=BaseModel)
T = TypeVar("T")
MAX_STEPS = 500


class RunOut:
    """The outcome of a step: Continue, Done or Suspend."""

    @value
    class Continue:
        """The step is done, and others remain."""

    @value
    class Done(Generic[T]):
        """The flow has ended with this value."""

        value: T

    @value
    class Suspend:
        """The flow waits for answers, and nothing else can fire."""

        suspensions: tuple[FlowSuspension, ...]

        @property
        def value(self) -> JsonValue:
            """The question of the first suspension."""
            return self.suspensions[0].value

        @property
        def tool_id(self) -> str:
            """The name by which a resume answers the first suspension."""
            return self.suspensions[0].tool_id


Outcome: TypeAlias = RunOut.Continue | RunOut.Done[Output] | RunOut.Suspend
_CONTINUE = RunOut.Continue()


@dataclass(slots=True)
class _Progress:
    """The part of a flow that steps change. `suspended` are the questions of nodes that are no agents, by node."""

    state: dict[str, str]
    suspended: dict[str, FlowSuspension] = field(default_factory=dict)
    agents: dict[str, AgentRecord] = field(default_factory=dict)
    steps: int = 0
    usage: TokenUsage = NO_USAGE
    is_announced: bool = False

    @property
    def suspensions(self) -> tuple[FlowSuspension, ...]:
        """All open questions, in the order of the state."""
        asked = [each for record in self.agents.values() for each in record.suspensions]
        order = {key: index for index, key in enumerate(self.state)}
        return tuple(sorted([*self.suspended.values(), *asked], key=lambda each: order[each.node]))


class FlowRuntime(Generic[Input, Output]):
    """A flow and its state, begun with its entry or with a snapshot. It fails after `step_limit` steps.

    Raises: SerializeError for an entry that cannot be written as JSON; SnapLoadError for a snapshot of another graph,
    or a broken one.
    """

    def __init__(
        self, graph: FlowGraph[Input, Output], entry: Input | FlowSnapshot, *, step_limit: int = MAX_STEPS
    ) -> None:
        self._graph = graph
        self._step_limit = step_limit
        self._engines: Mapping[str, Engine] = {}
        if isinstance(entry, FlowSnapshot):
            self._progress = _restored(graph, entry)
        else:
            self._progress = _Progress({graph.entry.key: graph.entry.write(entry)})

    @classmethod
    def from_snapshot(cls, graph: FlowGraph[Input, Output], snapshot: FlowSnapshot) -> Self:
        """Return the flow as it was. Raises: SnapLoadError."""
        return cls(graph, snapshot)

    def with_engines(self, engines: Mapping[str, Engine]) -> Self:
        """Give the agents their engines, by the names of their models."""
        self._engines = engines
        return self

    def with_history(self, history: Mapping[str, Sequence[Message]]) -> Self:
        """Replace the conversations of these agents, by node. Raises: NotFound for a node that is no agent."""
        for key, messages in history.items():
            node = self._graph.consumers.get(key)
            if not isinstance(node, AgentNode):
                raise NotFound(f"{key}: there is no agent of that name")
            record = self._progress.agents.get(key) or _new_record(node)
            self._progress.agents[key] = record.model_copy(update={"messages": tuple(messages)})
        return self

    def history(self) -> dict[str, tuple[Message, ...]]:
        """Return the conversations of the agents, by node."""
        return {key: record.messages for key, record in self._progress.agents.items()}

    def snapshot(self) -> FlowSnapshot:
        """Return everything that is needed to go on, as a value that can be written as JSON."""
        progress = self._progress
        return FlowSnapshot(
            flow=self._graph.name,
            fingerprint=self._graph.fingerprint,
            state=tuple((key, from_json(text)) for key, text in progress.state.items()),
            suspensions=tuple(progress.suspended.values()),
            agents=dict(progress.agents),
            steps=progress.steps,
            usage=progress.usage,
            is_announced=progress.is_announced,
        )

    async def next(self, context: Context) -> Outcome[Output]:
        """Take one step. Raises: FlowError, of any kind but those of a resume."""
        progress, node = self._progress, self._fireable()
        if node is None:
            return self._rest()
        if progress.steps >= self._step_limit:
            raise StepLimit(self._step_limit)
        await self._fire(node, context)
        progress.steps += 1
        progress.is_announced = False
        is_suspended = self._is_waiting(node) and self._fireable() is None
        return self._rest() if is_suspended else _CONTINUE

    async def resume(
        self, context: Context, tool_id: str, payload: JsonValue, suspension_id: str | None = None
    ) -> Outcome[Output]:
        """Take the answer to a question; a node goes on when all its questions are answered, without an inference.

        Raises: UnexpectedResumption, ResumptionMismatch, DeserializeError for a payload that is no such answer; then
        nothing has changed. FlowError of the node that goes on.
        """
        progress = self._progress
        suspension = _select(progress.suspensions, tool_id, suspension_id)
        errors = payload_errors(suspension.kind, payload)
        if errors:
            raise DeserializeError(tool_id, errors)
        node = self._graph.consumers[suspension.node]
        if isinstance(node, AgentNode):
            await self._answer_agent(node, suspension, payload, context)
        else:
            self._answer_node(node, suspension, payload)
            del progress.suspended[node.key]
        progress.is_announced = bool(progress.suspensions)
        return RunOut.Suspend(progress.suspensions) if progress.suspensions else _CONTINUE

    def _rest(self) -> Outcome[Output]:
        """Return the outcome when nothing can fire. Raises: ResumeRequired; Deadlock."""
        progress, output = self._progress, self._graph.output
        if list(progress.state) == [output.key]:
            return RunOut.Done(cast("Output", output.read(progress.state[output.key])))
        suspensions = progress.suspensions
        if not suspensions:
            raise Deadlock([key for key in progress.state if key != output.key])
        if progress.is_announced:
            raise ResumeRequired([each.tool_id for each in suspensions])
        progress.is_announced = True
        return RunOut.Suspend(suspensions)

    def _fireable(self) -> Node | None:
        """Return the first node from the head of the state that can fire."""
        state, consumers = self._progress.state, self._graph.consumers
        for key in state:
            node = consumers.get(key)
            if node is not None and not self._is_waiting(node) and all(each in state for each in node.input_keys):
                return node
        return None

    def _is_waiting(self, node: Node) -> bool:
        record = self._progress.agents.get(node.key)
        return node.key in self._progress.suspended or (record is not None and bool(record.suspensions))

    async def _fire(self, node: Node, context: Context) -> None:
        inputs = [self._progress.state[key] for key in node.input_keys]
        match node:
            case AgentNode():
                record = self._progress.agents.get(node.key) or _new_record(node)
                task = canonical_json(orjson.loads(inputs[0])).decode()
                self._apply(node, await LocalAgent(node, self._engines, context).infer(record, task))
            case WorkNode():
                try:
                    self._replace(node, await run_work(node, inputs, context))
                except ToolSuspended as question:
                    self._suspend(node, question.value)
            case EitherNode() | ForkNode() | JoinNode():
                self._replace(node, run_pure(node, inputs, context))
            case _:
                raise AssertionError("there are no other nodes")

    def _suspend(self, node: Node, value: JsonValue) -> None:
        suspension_id = f"{node.key}::{self._progress.steps}"
        self._progress.suspended[node.key] = FlowSuspension(
            suspension_id=suspension_id, kind=SuspensionKind.FLOW, node=node.key, tool_id=node.key, value=value
        )

    def _answer_node(self, node: Node, suspension: FlowSuspension, payload: JsonValue) -> None:
        """Take the answer as the node's output; a node that is to run once more keeps its input. Raises: FlowError."""
        output = node.outputs[0]
        if suspension.kind is SuspensionKind.UNKNOWN_OUTCOME:
            match UNKNOWN_OUTCOME_DECISIONS.validate_python(payload):
                case Happened(result=result):
                    payload = result
                case RunAgain():
                    return
                case GiveUp():
                    raise NodeFailed(node.key, "it is not known what it has done")
        self._replace(node, {output.key: output.parse(payload)})

    async def _answer_agent(
        self, node: AgentNode, suspension: FlowSuspension, payload: JsonValue, context: Context
    ) -> None:
        agent, record = LocalAgent(node, self._engines, context), self._progress.agents[node.key]
        calls = [agent.answer(each, payload) if each.suspension == suspension else each for each in record.calls]
        record = record.model_copy(update={"calls": tuple(calls)})
        step = AgentStep(record) if record.suspensions else await agent.run_calls(record)
        self._apply(node, step)

    def _apply(self, node: Node, step: AgentStep) -> None:
        if step.output is not None:
            self._replace(node, {node.outputs[0].key: step.output})
        self._progress.agents[node.key] = step.record
        self._progress.usage += step.usage

    def _replace(self, node: Node, outputs: Mapping[str, str]) -> None:
        self._progress.state = replace_inputs(node, self._progress.state, outputs)


def _restored(graph: FlowGraph[Any, Any], snapshot: FlowSnapshot) -> _Progress:
    """Return the progress of a snapshot. Raises: SnapLoadError."""
    if snapshot.fingerprint != graph.fingerprint:
        raise SnapLoadError(f"the graph of {snapshot.flow} has changed since the snapshot was made")
    state: dict[str, str] = {}
    for key, written in snapshot.state:
        if key not in graph.states or key in state:
            raise SnapLoadError(f"the snapshot has a state {key!a:.80} that the graph does not have, or has it twice")
        try:
            state[key] = graph.states[key].parse(written)
        except FlowError as unreadable:
            raise SnapLoadError(f"the snapshot cannot be read: {unreadable}") from unreadable
    suspended = {each.node: each for each in snapshot.suspensions}
    agents = {key for key, node in graph.consumers.items() if isinstance(node, AgentNode)}
    if not snapshot.agents.keys() <= agents or not suspended.keys() <= graph.consumers.keys() - agents:
        raise SnapLoadError("the snapshot has the record of a node that the graph does not have")
    if any(each.node != key for key, record in snapshot.agents.items() for each in record.suspensions):
        raise SnapLoadError("a question of an agent of the snapshot names another node")
    waiting = {*suspended, *(key for key, record in snapshot.agents.items() if record.suspensions)}
    if not waiting <= state.keys():
        raise SnapLoadError("a node of the snapshot waits for an answer, and has no input")
    return _Progress(state, suspended, dict(snapshot.agents), snapshot.steps, snapshot.usage, snapshot.is_announced)


def _select(suspensions: Sequence[FlowSuspension], tool_id: str, suspension_id: str | None) -> FlowSuspension:
    """Return the one suspension that an answer names. Raises: UnexpectedResumption; ResumptionMismatch."""
    if not suspensions:
        raise UnexpectedResumption(f"{tool_id}: the flow is not suspended")
    named = [each for each in suspensions if each.tool_id == tool_id and suspension_id in {None, each.suspension_id}]
    if len(named) != 1:
        what = "more than one suspension; name its suspension_id" if named else "no open suspension"
        raise ResumptionMismatch(f"{tool_id} names {what}")
    return named[0]


def _new_record(node: AgentNode) -> AgentRecord:
    return AgentRecord(model=node.config.model, preamble=node.config.preamble)
