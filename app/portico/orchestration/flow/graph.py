"""Typed graph of a flow, and its builder.

    graph = (
        FlowGraph.builder(Question, Report)
        .work(draft)                      # async def draft(question: Question, context: Context) -> Draft
        .either(judge)                    # def judge(draft: Draft, context: Context) -> Good | Poor
        .agent(Poor, Draft, AgentConfig("Improve the draft.", "default"))
        .work(publish)                    # async def publish(good: Good, context: Context) -> Report
        .build()
    )

A state is keyed by the name of its model, a node by the names of its inputs. `build` reports all problems at once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, JsonValue

from portico.domain.fingerprints import digest
from portico.orchestration.flow.agent_config import AgentConfig
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.errors import Invalid
from portico.orchestration.flow.invariants import violations
from portico.orchestration.flow.nodes import (
    AgentNode,
    EitherNode,
    ForkNode,
    JoinNode,
    Node,
    StateType,
    WorkNode,
    model_key,
    node_key,
)
from portico.orchestration.flow.signatures import (
    SignatureError,
    alternative_models,
    check_async,
    function_name,
    input_models,
    output_model,
    tuple_models,
)

Input = TypeVar("Input", bound=BaseModel)
Output = TypeVar("Output", bound=BaseModel)
In = TypeVar("In", bound=BaseModel)
Out = TypeVar("Out", bound=BaseModel)
A = TypeVar("A", bound=BaseModel)
B = TypeVar("B", bound=BaseModel)
SEPARATOR = "::"
"""Between the entry of an inlined flow and its inner keys, and between a node and its tool."""


@dataclass(frozen=True)
class FlowGraph(Generic[Input, Output]):
    """A valid graph: it has an entry, an output, and nodes that lead from one to the other."""

    entry: StateType
    output: StateType
    nodes: tuple[Node, ...]
    name: str = ""
    """The name under which it is registered; empty without a registration."""

    @staticmethod
    def builder(entry: type[Input], output: type[Output]) -> "FlowBuilder[Input, Output]":
        """Return a builder of a graph that begins with one model and ends with the other."""
        return FlowBuilder(entry, output)

    @cached_property
    def consumers(self) -> Mapping[str, Node]:
        """The node that takes each state, by key; the output has none."""
        return {key: node for node in self.nodes for key in node.input_keys}

    @cached_property
    def states(self) -> Mapping[str, StateType]:
        """All states, by key."""
        states = {self.entry.key: self.entry}
        states.update((state.key, state) for node in self.nodes for state in (*node.inputs, *node.outputs))
        return states

    @cached_property
    def max_visits(self) -> Mapping[str, int] | None:
        """The highest number of times that each node fires, by key; None for a graph with a cycle, which has none."""
        producers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for state in node.outputs:
                producers.setdefault(state.key, []).append(node)
        before = {node: [each for key in node.input_keys for each in producers.get(key, ())] for node in self.nodes}
        visits: dict[str, int] = {}

        def arrivals(key: str) -> int:
            return (key == self.entry.key) + sum(visits[node.key] for node in producers.get(key, ()))

        try:
            for node in TopologicalSorter(before).static_order():
                visits[node.key] = min(map(arrivals, node.input_keys))
        except CycleError:
            return None
        return visits

    @cached_property
    def fingerprint(self) -> str:
        """Digest of keys, kinds, edges, the schemas of the states, and `idempotent`: what a snapshot depends on.

        Raises: Invalid for a state without a schema.
        """
        nodes = [
            (
                node.key,
                node.kind,
                node.input_keys,
                [state.key for state in node.outputs],
                getattr(node, "idempotent", None),
            )
            for node in self.nodes
        ]
        schemas = {key: state.schema() for key, state in self.states.items()}
        return digest(self.entry.key, self.output.key, nodes, schemas)

    def as_json(self) -> dict[str, JsonValue]:
        """Return the graph as JSON: entry, output, and nodes with their edges."""
        nodes: list[JsonValue] = [
            {
                "key": node.key,
                "kind": node.kind,
                "inputs": list(node.input_keys),
                "outputs": [state.key for state in node.outputs],
            }
            for node in self.nodes
        ]
        return {"entry": self.entry.key, "output": self.output.key, "nodes": nodes}

    def as_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart: states are rounded, nodes are boxes with their kind."""
        ids = {key: f"s{number}" for number, key in enumerate(self.states)}
        lines = ["flowchart TD"]
        lines += [f"    {ids[key]}([{_label(key)}])" for key in self.states]
        for number, node in enumerate(self.nodes):
            lines.append(f"    n{number}[{_label(node.kind)}]")
            lines += [f"    {ids[key]} --> n{number}" for key in node.input_keys]
            lines += [f"    n{number} --> {ids[state.key]}" for state in node.outputs]
        return "\n".join(lines)


class FlowBuilder(Generic[Input, Output]):
    """Builder of a graph. Its methods never raise: `build` reports their problems together with all others."""

    def __init__(self, entry: type[Input], output: type[Output]) -> None:
        self._problems: list[str] = []
        self._nodes: list[Node] = []
        self._entry = self._state(entry)
        self._output = self._state(output)

    def work(
        self, function: Callable[[In, Context], Awaitable[Out]], *, idempotent: bool = True
    ) -> "FlowBuilder[Input, Output]":
        """Add an async function. One that is not `idempotent` is never run twice by the service."""
        node = partial(WorkNode, function=function, idempotent=idempotent)
        return self._add(node, function, 1, lambda: [output_model(function)], is_async=True)

    def either(self, function: Callable[[In, Context], BaseModel]) -> "FlowBuilder[Input, Output]":
        """Add a pure function that returns one of two models."""
        return self._add(partial(EitherNode, function=function), function, 1, lambda: alternative_models(function))

    def fork(
        self, function: Callable[[In, Context], tuple[BaseModel, BaseModel, *tuple[BaseModel, ...]]]
    ) -> "FlowBuilder[Input, Output]":
        """Add a pure function that returns a tuple of models, which are all produced."""
        return self._add(partial(ForkNode, function=function), function, 1, lambda: tuple_models(function))

    def join(self, function: Callable[[A, B, Context], Out]) -> "FlowBuilder[Input, Output]":
        """Add a pure function of two models; it fires when both are there."""
        return self._add(partial(JoinNode, function=function), function, 2, lambda: [output_model(function)])

    def agent(
        self, task: type[BaseModel], answer: type[BaseModel], config: AgentConfig
    ) -> "FlowBuilder[Input, Output]":
        """Add an agent that turns one model into another."""
        task_state, answer_state = self._state(task), self._state(answer)
        self._nodes.append(AgentNode(task_state.key, (task_state,), (answer_state,), config))
        return self

    def flow(self, graph: FlowGraph[Any, Any]) -> "FlowBuilder[Input, Output]":
        """Inline a flow. Its entry and output keep their keys; all others are prefixed with the key of its entry."""
        kept, prefix = {graph.entry.key, graph.output.key}, graph.entry.key + SEPARATOR

        def rename(key: str) -> str:
            return key if key in kept else prefix + key

        self._nodes += [node.renamed(rename) for node in graph.nodes]
        return self

    def build(self) -> FlowGraph[Input, Output]:
        """Return the graph. Raises: Invalid, with every problem."""
        problems = [*self._problems, *violations(self._entry, self._output, self._nodes)]
        if problems:
            raise Invalid(list(dict.fromkeys(problems)))
        return FlowGraph(self._entry, self._output, tuple(self._nodes))

    def _add(
        self,
        make: Callable[..., Node],
        function: object,
        input_count: int,
        find_outputs: Callable[[], Sequence[type[BaseModel]]],
        *,
        is_async: bool = False,
    ) -> "FlowBuilder[Input, Output]":
        try:
            check_async(function, expected=is_async)
            inputs = tuple(map(self._state, input_models(function, input_count)))
            outputs = tuple(map(self._state, find_outputs()))
        except SignatureError as problem:
            self._problems.append(f"{function_name(function)}: {problem}")
        else:
            self._nodes.append(make(node_key(inputs), inputs, outputs))
        return self

    def _state(self, model: type[BaseModel]) -> StateType:
        key = model_key(model)
        if SEPARATOR in key:
            self._problems.append(f"{key}: a name must not contain {SEPARATOR}; give the model another title")
        return StateType(key, model)


def _label(text: str) -> str:
    return '"' + text.replace('"', "#quot;") + '"'
