"""Firing of a node: its function is called with copies of its inputs, and what it returns becomes its outputs."""

import asyncio
from collections.abc import Mapping, Sequence

import orjson
from pydantic import BaseModel, JsonValue

from portico.capabilities.tools.executor import is_cancelled
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.errors import NodeFailed
from portico.orchestration.flow.nodes import EitherNode, ForkNode, JoinNode, Node, StateType, WorkNode
from portico.ports.tool import ToolSuspended


async def run_work(node: WorkNode, inputs: Sequence[str], context: Context) -> dict[str, str]:
    """Return the outputs of an async function, by key.

    Raises: NodeFailed; DeserializeError, SerializeError; ToolSuspended if the function asks a question.
    """
    [value] = _read(node, inputs)
    try:
        result = await node.function(value, context)
    except ToolSuspended as question:
        raise ToolSuspended(_question(node, question.value)) from None
    except asyncio.CancelledError as stray:
        if is_cancelled():
            raise
        raise _failed(node, stray) from stray
    except (Exception, SystemExit) as error:  # other people's code may raise anything
        raise _failed(node, error) from error
    return _write(node, [(node.outputs[0], result)])


def run_pure(node: EitherNode | ForkNode | JoinNode, inputs: Sequence[str], context: Context) -> dict[str, str]:
    """Return the outputs of a pure function, by key. Raises: NodeFailed; DeserializeError, SerializeError."""
    values = _read(node, inputs)
    try:
        result = node.function(*values, context)
    except (Exception, SystemExit) as error:  # other people's code may raise anything
        raise _failed(node, error) from error
    match node:
        case EitherNode():
            return _write(node, [(_chosen(node, result), result)])
        case ForkNode():
            if not isinstance(result, tuple) or len(result) != len(node.outputs):
                raise NodeFailed(node.key, f"it must return a tuple of {len(node.outputs)} models")
            return _write(node, list(zip(node.outputs, result, strict=True)))
        case JoinNode():
            return _write(node, [(node.outputs[0], result)])


def replace_inputs(node: Node, state: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, str]:
    """Return the state without the node's inputs and with its outputs at the tail.

    Raises: NodeFailed if an output is there already.
    """
    after = {key: text for key, text in state.items() if key not in node.input_keys}
    for key, text in outputs.items():
        if key in after:
            raise NodeFailed(node.key, f"its output {key} is there already")
        after[key] = text
    return after


def _chosen(node: EitherNode, result: object) -> StateType:
    """Return the output of that very model, else one whose subclass it is, else any."""
    exact = [state for state in node.outputs if type(result) is state.model]
    return [*exact, *(state for state in node.outputs if isinstance(result, state.model)), node.outputs[0]][0]


def _read(node: Node, inputs: Sequence[str]) -> list[BaseModel]:
    return [state.read(text) for state, text in zip(node.inputs, inputs, strict=True)]


def _write(node: Node, results: Sequence[tuple[StateType, object]]) -> dict[str, str]:
    outputs: dict[str, str] = {}
    for state, result in results:
        if not isinstance(result, state.model):
            expected = " or ".join(each.model.__name__ for each in node.outputs)
            raise NodeFailed(node.key, f"it must return {expected}, not {type(result).__name__}")
        outputs[state.key] = state.write(result)
    return outputs


def _question(node: Node, value: object) -> JsonValue:
    """Return what the function asks as it is stored. Raises: NodeFailed."""
    try:
        question: JsonValue = orjson.loads(orjson.dumps(value))
    except TypeError:
        raise NodeFailed(node.key, "its question must be JSON") from None
    return question


def _failed(node: Node, error: BaseException) -> NodeFailed:
    return NodeFailed(node.key, f"{type(error).__name__}: {error}")
