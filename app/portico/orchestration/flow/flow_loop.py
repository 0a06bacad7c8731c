"""FlowLoop, the pattern of mode `flow`: fire what can fire, in waves, until only the output is left.

Theory of operation

1. All nodes that can fire in the present state fire at once, as branches of one top-level step. Their outputs go to the
   tail of the state in the order of the state; the first failure in that order is the failure of the flow.
2. A node that waits for an answer keeps its place and is passed over. When nothing else can fire, the nodes that wait
   continue in a wave of their own, each in its first branch, where its recorded steps are. Without their answers the
   execution is suspended there.
3. Which branches of a wave had ended is recorded as soon as one waits. So a replay, which knows the answers from the
   start, takes the same waves.
4. Every node that fires is one step of the limit, an agent as many as it has inferences.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import orjson
from pydantic import JsonValue

from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.output.canonical_json import canonical_json
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import WHOLE_ANSWER, Suspension, SuspensionKind
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import Code, ConfigurationFailure, Failure, OrchestrationFailure, StorageFailure, failure
from portico.domain.journal.events import FlowStep
from portico.domain.journal.header import EffectiveLimits
from portico.domain.journal.outcomes import AgentStarted, NodeEnded, Refused, ToolCallSuspended
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import State
from portico.domain.pattern_result import PatternResult
from portico.domain.raised_exception import CodeKind
from portico.domain.value import replace, value
from portico.orchestration.execution.branch_span import in_span
from portico.orchestration.execution.branches import Waiting
from portico.orchestration.execution.context import RunContext, caller_of, perform, report_exception, set_findings
from portico.orchestration.execution.effect import BranchStopped, BranchSuspended
from portico.orchestration.execution.pattern import (
    BoundInputs,
    FieldError,
    Pattern,
    UpperBound,
    in_parallel,
    in_sequence,
)
from portico.orchestration.execution.progress import Conversation
from portico.orchestration.execution.settled_branches import Branch, settle
from portico.orchestration.flow.agent_config import AgentConfig
from portico.orchestration.flow.errors import DeserializeError, FlowError, SerializeError
from portico.orchestration.flow.graph import FlowGraph
from portico.orchestration.flow.node_run import replace_inputs, run_pure
from portico.orchestration.flow.nodes import (
    NOT_WRITABLE,
    AgentNode,
    EitherNode,
    ForkNode,
    JoinNode,
    Node,
    StateType,
    WorkNode,
)
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.flow.service_agent import ServiceAgent, max_inferences, step_limit
from portico.orchestration.flow.work_effect import NonIdempotentWorkEffect, WorkEffect
from portico.orchestration.patterns.validated_answer import compiled_contract, validate_answer
from portico.ports.current_caller import acting_for

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


@value
class Fired:
    """The end of a node: its outputs by key, its steps, and what an agent goes on with."""

    outputs: Mapping[str, str]
    steps: int = 1
    started: AgentStarted | None = None


class FlowRun:
    """One run of a flow, from its entry to its output."""

    def __init__(self, context: RunContext, served: ServedFlow, entry: str) -> None:
        self._context = context
        self._served = served
        self._graph = served.graph
        self._state: dict[str, str] = {served.graph.entry.key: entry}
        self._waiting: dict[str, tuple[StepKey, Waiting]] = {}
        """The nodes that wait, by their first state: the key of their branch."""
        self._conversations: dict[str, Conversation] = {}
        self._started: dict[str, AgentStarted] = {}
        self._steps_left = context.limits.flow_steps
        self.agents: dict[str, ServiceAgent] = {}
        """The agents with their last tasks, by node."""
        self._outputs: dict[str, Mapping[str, str]] = {}
        """The last outputs of the nodes that have ended, by node."""
        set_findings(context, self._findings)

    @property
    def graph(self) -> FlowGraph[Any, Any]:
        """The graph of the flow."""
        return self._graph

    @property
    def state(self) -> Mapping[str, str]:
        """The state at the end of the last wave: keys and JSON, from its head."""
        return self._state

    @property
    def steps(self) -> int:
        """The steps that were taken, those of agents at work included."""
        at_work = sum(agent.inference_count for agent in self.agents.values() if agent.is_working)
        return self._context.limits.flow_steps - self._steps_left + at_work

    async def run(self) -> str:
        """Return the output in JSON.

        Raises: Failure: that of a node; OrchestrationFailure (ORCHESTRATION_DEADLOCK, ORCHESTRATION_ITERATION_LIMIT).
        """
        output = self._graph.output.key
        try:
            while list(self._state) != [output]:
                await self._run_wave(self._next_wave())
        except (Failure, BranchSuspended):
            await self._read_waiting()
            raise
        self._context.emit(FlowStep(output, "done"))
        return self._state[output]

    def _next_wave(self) -> list[Node]:
        """Return the nodes that can fire, else those that wait. Raises: BranchSuspended; OrchestrationFailure."""
        nodes = dict.fromkeys(self._graph.consumers[key] for key in self._state if key in self._graph.consumers)
        ready = [node for node in nodes if all(key in self._state for key in node.input_keys)]
        fireable = [node for node in ready if node.key not in self._waiting]
        if fireable:
            return fireable
        if not self._waiting:
            waiting = [key for key in self._state if key != self._graph.output.key]
            message = "no node of the flow can fire"
            raise OrchestrationFailure(Code.ORCHESTRATION_DEADLOCK, message, {"waiting": waiting})
        if any(end.has_run for _, end in self._waiting.values()):
            raise BranchSuspended
        return ready

    async def _run_wave(self, wave: list[Node]) -> None:
        if self._steps_left < len(wave):
            raise step_limit(self._context)
        ends = await settle(self._context, [self._branch(node) for node in wave])
        for node, settled in zip(wave, ends, strict=True):
            if isinstance(settled.end, Waiting):
                self._waiting[node.key] = (settled.key, settled.end)
        for settled in ends:
            if isinstance(settled.end, Failure):
                raise settled.end
        for node, settled in zip(wave, ends, strict=True):
            context = in_span(self._context, settled.key)
            if isinstance(settled.end, Fired):
                self._apply(node, settled.end, settled.conversation)
                context.emit(FlowStep(node.key, "continue"))
            elif isinstance(settled.end, Waiting) and settled.end.has_run:
                context.emit(FlowStep(node.key, "suspend"))
        if not any(isinstance(settled.end, Fired) for settled in ends):
            raise BranchSuspended

    async def _read_waiting(self) -> None:
        """Compare the recorded steps of nodes that wait, in an offline replay that did not begin them."""
        unread = [
            node for node in self._graph.nodes if node.key in self._waiting and self._waiting[node.key][1].is_unread
        ]
        if unread:
            with suppress(BranchStopped):  # their steps end before the node does
                await settle(self._context, [self._branch(node) for node in unread])

    def _apply(self, node: Node, fired: Fired, conversation: Conversation) -> None:
        """Replace the inputs of the node by its outputs. Raises: Failure if an output is there already."""
        try:
            self._state = replace_inputs(node, self._state, fired.outputs)
        except FlowError as error:
            raise self._failure(node, error) from error
        self._waiting.pop(node.key, None)
        self._outputs[node.key] = fired.outputs
        self._steps_left -= fired.steps
        if fired.started is not None:
            self._started[node.key], self._conversations[node.key] = fired.started, conversation

    def _findings(self) -> Mapping[str, JsonValue]:
        """Return the last outputs of the nodes that have ended, each by its state."""
        return {
            node: {key: orjson.loads(text) for key, text in outputs.items()} for node, outputs in self._outputs.items()
        }

    def _branch(self, node: Node) -> Branch[Fired]:
        inputs = [self._state[key] for key in node.input_keys]
        correlation = replace(self._context.settings.correlation, step_name=node.key)
        key, _ = self._waiting.get(node.key, (None, None))
        conversation = self._conversations.get(node.key, Conversation()).copy()
        settings = replace(self._context.settings, correlation=correlation, flow=self._served.context)
        return Branch(partial(self._fire, node, inputs, conversation), settings, conversation, key)

    async def _fire(self, node: Node, inputs: list[str], conversation: Conversation, context: RunContext) -> Fired:
        """Return the outputs of the node. Raises: Failure; BranchSuspended."""
        context = in_span(context)
        match node:
            case AgentNode():
                agent = self.agents[node.key] = ServiceAgent(node, context, conversation, steps_left=self._steps_left)
                task = canonical_json(orjson.loads(inputs[0])).decode()
                output, started = await agent.run(task, self._started.get(node.key))
                return Fired({node.outputs[0].key: output}, agent.inference_count, started)
            case WorkNode():
                return Fired({node.outputs[0].key: await self._work(node, inputs[0], context)})
            case EitherNode() | ForkNode() | JoinNode():
                try:
                    with acting_for(caller_of(context)):
                        return Fired(run_pure(node, inputs, self._served.context))
                except FlowError as error:
                    raise self._failure(node, error) from error
            case _:
                raise AssertionError("there are no other nodes")

    async def _work(self, node: WorkNode, value: str, context: RunContext) -> str:
        """Return the output of the function, or the answer to its question, in JSON."""
        kind = WorkEffect if node.idempotent else NonIdempotentWorkEffect
        with acting_for(caller_of(context)):
            outcome = (await perform(context, partial(kind, node, value, self._served))).outcome
        if isinstance(outcome, Refused):
            raise outcome.failure()
        if isinstance(outcome, ToolCallSuspended):
            payload = await context.suspend(outcome.value, node.key, SuspensionKind.FLOW)
            try:
                return node.outputs[0].parse(payload)
            except FlowError as error:
                raise self._failure(node, error) from error
        assert isinstance(outcome, NodeEnded)  # noqa: S101 - the other outcome of the function
        return outcome.output

    def _failure(self, node: Node, error: FlowError) -> Failure:
        """Return the failure of a node; the text of its error goes to the log and nowhere else."""
        report_exception(self._context, CodeKind.NODE, node.key, error.raised)
        return failure(error.code, "a node of the flow failed", details={"node": node.key})


async def flow_loop(
    flows: Mapping[str, ServedFlow], context: RunContext, observe: Callable[[FlowRun], None] | None = None
) -> PatternResult:
    """Return the output of the request's flow, which keeps the output contract; `observe` gets the run as it begins.

    Raises: as `FlowRun.run`; ConstraintFailure, ValidationFailure for an output that breaks the contract.
    """
    options = context.request.flow
    served = None if options is None else flows.get(options.name)
    if options is None or served is None:
        raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "the flow of the execution is not registered any more")
    try:
        entry = served.graph.entry.parse(options.input)
    except FlowError as misfit:
        raise failure(Code.REQUEST_INVALID, f"flow.input: {misfit}") from misfit
    flow_run = FlowRun(context, served, entry)
    if observe is not None:
        observe(flow_run)
    text = await flow_run.run()
    context.transition_to(State.VALIDATE, "output_ready")
    value: Any = orjson.loads(text)
    output = context.settings.output
    if output.schema_ is None and output.grammar is None and not output.rules and not output.semantic:
        return PatternResult(text, value, repeated=WHOLE_ANSWER)

    def set_partial_result(result: PatternResult) -> None:
        context.set_partial_result(replace(result, repeated=WHOLE_ANSWER))

    contract, content = await compiled_contract(context), AnswerContent(text, value)
    validated = await validate_answer(context, contract, content, 1, set_partial_result=set_partial_result)
    if validated.failure is not None:
        raise validated.failure
    return replace(validated.pattern_result, repeated=WHOLE_ANSWER)


def flow_pattern(flows: Mapping[str, ServedFlow]) -> Pattern:
    """Return the pattern of mode `flow` for these flows, by name."""
    return Pattern(
        partial(flow_loop, flows),
        VERSION,
        partial(upper_bound, flows),
        admit=partial(admit, flows),
        own_fields=frozenset({"flow"}),
        starts_with_request=False,
        needs_messages=False,
        models=partial(_models, flows),
        own_tools=partial(_tools, flows),
        own_agents=partial(_agents, flows),
        fingerprint=partial(_fingerprint, flows),
        answer_errors=partial(_answer_errors, flows),
    )


def admit(
    flows: Mapping[str, ServedFlow], request: SystemRequest, _limits: EffectiveLimits, _catalogue: EngineCatalogue
) -> Iterator[FieldError]:
    """Yield the errors of the flow's input. Raises: ConfigurationFailure (CONFIG_FLOW_INVALID) for an unknown flow."""
    if request.flow is None:
        yield FieldError("flow", "is required in mode flow")
        return
    served = flows.get(request.flow.name)
    if served is None:
        message = "flow.name: no flow has that name; GET /v1/flows lists them"
        raise ConfigurationFailure(Code.CONFIG_FLOW_INVALID, message, {"field": "flow.name"})
    for path, what in _misfits(served.graph.entry, request.flow.input):
        yield FieldError(f"flow.input{path.removeprefix('$')}", what)


def upper_bound(flows: Mapping[str, ServedFlow], inputs: BoundInputs) -> UpperBound:
    """Return the bound of a flow: that of the tasks of its agents, which a cycle limits by the steps only."""
    served, steps = _served(flows, inputs.request), inputs.limits.flow_steps
    if served is None:
        return inputs.transitions()
    agents = [node for node in served.graph.nodes if isinstance(node, AgentNode)]
    tasks = [_agent_bound(inputs, node, min(steps, max_inferences(node, inputs.limits.tool_rounds))) for node in agents]
    together, visits = in_parallel(tasks), served.graph.max_visits
    if visits is None:
        # Agents that work at once know the steps that were left before them, so the last ones may exceed the limit.
        one = reduce(UpperBound.maximum, [_agent_bound(inputs, node, steps) for node in agents], UpperBound())
        most = one if len(agents) == 1 else one.then(together)
    else:
        most = in_sequence(task.times(min(steps, visits[node.key])) for node, task in zip(agents, tasks, strict=True))
    most = replace(most, tokens_in_flight=together.tokens_in_flight, cost_in_flight=together.cost_in_flight)
    judgement = inputs.inferences(1 if inputs.request.output.semantic else 0)
    return most.then(judgement).then(inputs.transitions())


def _agent_bound(inputs: BoundInputs, node: AgentNode, count: int) -> UpperBound:
    """Return the bound of so many inferences of an agent, each with tool calls."""
    calls = count * inputs.limits.calls_per_reply * inputs.tool_attempts(node.config.tool_names)
    return inputs.inferences(count, node.config.model).then(UpperBound(tool_calls=calls))


def _served(flows: Mapping[str, ServedFlow], request: SystemRequest) -> ServedFlow | None:
    return None if request.flow is None else flows.get(request.flow.name)


def _models(flows: Mapping[str, ServedFlow], request: SystemRequest) -> Sequence[str | None]:
    """Return the models of the flow's agents, and the request's own if there is none or a judge is asked."""
    served = _served(flows, request)
    nodes = () if served is None else served.graph.nodes
    models: list[str | None] = [node.config.model for node in nodes if isinstance(node, AgentNode)]
    return models if models and not request.output.semantic else [*models, request.model]


def _configs(flows: Mapping[str, ServedFlow], request: SystemRequest) -> list[AgentConfig]:
    served = _served(flows, request)
    return [] if served is None else [node.config for node in served.graph.nodes if isinstance(node, AgentNode)]


def _tools(flows: Mapping[str, ServedFlow], request: SystemRequest) -> Collection[str]:
    return [name for config in _configs(flows, request) for name in config.tool_names]


def _agents(flows: Mapping[str, ServedFlow], request: SystemRequest) -> Collection[str]:
    return [config.agent for config in _configs(flows, request) if config.agent is not None]


def _fingerprint(flows: Mapping[str, ServedFlow], request: SystemRequest) -> str | None:
    served = _served(flows, request)
    return None if served is None else served.graph.fingerprint


def _answer_errors(
    flows: Mapping[str, ServedFlow], request: SystemRequest, suspension: Suspension, payload: JsonValue
) -> Sequence[tuple[str, str]]:
    """Return why the answer to a work node is not its output."""
    served = _served(flows, request)
    node = None if served is None else served.graph.consumers.get(suspension.tool_id)
    field, result = "payload", payload
    if suspension.kind is SuspensionKind.UNKNOWN_OUTCOME and isinstance(payload, dict):
        if payload.get("decision") != "happened":
            return ()
        field, result = "payload.result", payload.get("result")
    if not isinstance(node, WorkNode) or suspension.kind not in {SuspensionKind.FLOW, SuspensionKind.UNKNOWN_OUTCOME}:
        return ()
    return [(f"{field}{path.removeprefix('$')}", what) for path, what in _misfits(node.outputs[0], result)]


def _misfits(state: StateType, value: JsonValue) -> Sequence[tuple[str, str]]:
    """Return why a value that comes from outside does not fit, as pairs of path and message."""
    try:
        state.parse(value)
    except DeserializeError as misfit:
        return misfit.errors
    except SerializeError:
        return [("$", NOT_WRITABLE)]
    return ()
