"""Invariants of a flow's graph [flow seed]. All violations are found at once, each with its node and its remedy."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from portico.capabilities.models.format_enforcement import SUBMIT_TOOL
from portico.orchestration.flow.nodes import AgentNode, EitherNode, ForkNode, JoinNode, Node, StateType, WorkNode

MAX_TOOL_ID_CHARACTERS = 256
"""Length of the longest `tool_id`, which is `node::tool`."""
NodesByKey: TypeAlias = Mapping[str, Sequence[Node]]


def violations(entry: StateType, output: StateType, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield what is wrong with the graph."""
    yield from _model_violations(entry, output, nodes)
    for node in nodes:
        yield from _node_violations(node)
    consumers, producers = _by_key(nodes, _input_keys), _by_key(nodes, _output_keys)
    for key, takers in consumers.items():
        if len(takers) > 1:
            yield f"{key}: more than one node takes it; give each node an input of its own"
    if entry.key not in consumers:
        yield f"{entry.key}: the entry has no node; add one that takes it"
    yield from _ambiguous_keys(nodes)
    yield from _unregistered(nodes, consumers, producers)
    yield from _unreachable(entry, nodes, consumers)
    yield from _terminal_violations(output, consumers, producers)
    yield from _endless(nodes, consumers, producers)


def _model_violations(entry: StateType, output: StateType, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the keys that two models share."""
    models: dict[str, type] = {}
    for state in chain((entry, output), *((*node.inputs, *node.outputs) for node in nodes)):
        if models.setdefault(state.key, state.model) is not state.model:
            yield f"{state.key}: two models have this name; rename one, or give it another title"


def _node_violations(node: Node) -> Iterator[str]:
    inputs, outputs = node.input_keys, [state.key for state in node.outputs]
    match node:
        case WorkNode() | AgentNode() if inputs[0] in outputs:
            yield f"{node.key}: it returns its own input; return another model"
        case EitherNode() | ForkNode() if len(set(outputs)) < len(outputs):
            yield f"{node.key}: its outputs must have distinct names"
        case JoinNode():
            if len(set(inputs)) < len(inputs):
                yield f"{node.key}: it must take two distinct inputs"
            if set(inputs) & set(outputs):
                yield f"{node.key}: it returns one of its inputs; return another model"
        case _:
            pass
    if isinstance(node, AgentNode):
        yield from _agent_violations(node)


def _agent_violations(node: AgentNode) -> Iterator[str]:
    names = node.config.tool_names
    if "://" in node.config.model:
        yield f"{node.key}: its model must be the name of a route or an engine, not a URL"
    if SUBMIT_TOOL in names:
        yield f"{node.key}: its tools contain submit, which is added to them; remove it"
    for name in {name for name in names if names.count(name) > 1}:
        yield f"{node.key}: its tools contain {name} twice; remove one"
    longest = max((len(name) for name in names), default=0)
    if len(node.key) + len("::") + longest > MAX_TOOL_ID_CHARACTERS:
        yield f"{node.key}: node::tool must be at most {MAX_TOOL_ID_CHARACTERS} characters; shorten the name"


def _ambiguous_keys(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the keys that two nodes share: that of a join is like the name of a state."""
    inputs: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        if inputs.setdefault(node.key, node.input_keys) != node.input_keys:
            yield f"{node.key}: two nodes have this name; give a model another title"


def _unregistered(nodes: Sequence[Node], consumers: NodesByKey, producers: NodesByKey) -> Iterator[str]:
    """Yield the outputs of forks that no node takes, and the inputs of joins that no node produces."""
    for node in nodes:
        if isinstance(node, ForkNode):
            for key in _output_keys(node):
                if key not in consumers:
                    yield f"{node.key}: no node takes its output {key}; add one, or drop the output"
        if isinstance(node, JoinNode):
            for key in node.input_keys:
                if key not in producers:
                    yield f"{node.key}: no node produces its input {key}; add one"


def _unreachable(entry: StateType, nodes: Sequence[Node], consumers: NodesByKey) -> Iterator[str]:
    """Yield the nodes whose inputs cannot all exist: a node produces its outputs once all its inputs can exist."""
    reached, found = {entry.key}, [entry.key]
    while found:
        for node in consumers.get(found.pop(), ()):
            if reached.issuperset(node.input_keys):
                found += [key for key in _output_keys(node) if key not in reached]
                reached.update(_output_keys(node))
    for node in nodes:
        if not reached.issuperset(node.input_keys):
            yield f"{node.key}: it cannot be reached from the entry; connect it, or remove it"


def _terminal_violations(output: StateType, consumers: NodesByKey, producers: NodesByKey) -> Iterator[str]:
    terminals = sorted(producers.keys() - consumers.keys())
    for key in terminals:
        if key != output.key:
            yield f"{key}: it ends the flow, which must end in {output.key}; add a node that takes it"
    if output.key in consumers:
        yield f"{output.key}: the flow's output must not be the input of a node"
    elif output.key not in terminals:
        yield f"{output.key}: no node produces the flow's output"


def _endless(nodes: Sequence[Node], consumers: NodesByKey, producers: NodesByKey) -> Iterator[str]:
    """Yield the nodes from which no path leads to an end."""
    found = list(producers.keys() - consumers.keys())
    ending = set(found)
    while found:
        for node in producers.get(found.pop(), ()):
            found += [key for key in node.input_keys if key not in ending]
            ending.update(node.input_keys)
    for node in nodes:
        if not ending.issuperset(node.input_keys):
            yield f"{node.key}: no path leads from it to the end; add one, such as an either"


def _by_key(nodes: Sequence[Node], keys_of: Callable[[Node], Iterable[str]]) -> NodesByKey:
    found: dict[str, list[Node]] = {}
    for node in nodes:
        for key in dict.fromkeys(keys_of(node)):
            found.setdefault(key, []).append(node)
    return found


def _input_keys(node: Node) -> tuple[str, ...]:
    return node.input_keys


def _output_keys(node: Node) -> tuple[str, ...]:
    return tuple(state.key for state in node.outputs)
