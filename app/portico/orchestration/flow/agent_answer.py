"""The answer of an agent: how it is asked for, and whether it is the node's output.

An agent without tools answers in its response format. One with tools hands its answer in by calling `submit`, whose
parameters are the same schema.
"""

from collections.abc import Sequence
from typing import Any

from portico.capabilities.models.format_enforcement import SUBMIT_TOOL, submit_description
from portico.capabilities.output.enforcement import enforce
from portico.capabilities.output.schema.compiled import compile_schema
from portico.capabilities.prompting.registry import default_registry
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.failures import ConstraintFailure
from portico.domain.model_call import ResponseFormat
from portico.domain.tools import ToolDefinition
from portico.domain.value import value
from portico.orchestration.flow.errors import DeserializeError, SerializeError
from portico.orchestration.flow.nodes import NOT_WRITABLE, AgentNode, StateType

MAX_REPAIRS = 1
"""How often an agent may correct its answer."""
_ACCEPTED = "accepted"
_CANCELLED = "cancelled: the answer was handed in"


@value
class AgentAnswer:
    """An answer as the node's output in JSON, or the violations that make it unusable, as pairs of path and message."""

    output: str | None
    violations: Sequence[tuple[str, str]] = ()


NOT_SUBMITTED = AgentAnswer(None, [("$", f"hand in the answer by calling {SUBMIT_TOOL}")])


def response_format(node: AgentNode) -> ResponseFormat:
    """Return the format in which an agent without tools answers."""
    return ResponseFormat(schema=node.outputs[0].schema())


def submit_definition(node: AgentNode) -> ToolDefinition:
    """Return the tool with which an agent hands in its answer."""
    return ToolDefinition(SUBMIT_TOOL, submit_description(default_registry()), node.outputs[0].schema())


def written_answer(node: AgentNode, text: str) -> AgentAnswer:
    """Return the answer that a model wrote in the response format, repaired if that is possible."""
    output = node.outputs[0]
    try:
        enforced = enforce(text, schema=compile_schema(output.schema()), grammar=None, repair_allowed=True)
    except ConstraintFailure as failure:
        violations = failure.details.get("violations", ())
        found = [(each["path"], each["message"]) for each in violations]
        return AgentAnswer(None, found or [("$", failure.message)])
    return _answer(output, enforced.value)


def submission(node: AgentNode, calls: Sequence[ToolCall]) -> tuple[AgentAnswer | None, list[str]]:
    """Return the answer that a reply submits, None without one, and the results of `submit` and of the calls behind."""
    index = next((number for number, call in enumerate(calls) if call.name == SUBMIT_TOOL), None)
    if index is None:
        return None, []
    answer = _submitted(node, calls[index])
    result = _ACCEPTED if answer.output is not None else rejection(answer.violations)
    return answer, [result, *[_CANCELLED] * (len(calls) - index - 1)]


def rejection(violations: Sequence[tuple[str, str]]) -> str:
    """Return the result of a `submit` that was rejected."""
    return "rejected: " + "; ".join(f"{path}: {message}" for path, message in violations)


def _submitted(node: AgentNode, call: ToolCall) -> AgentAnswer:
    if UNREADABLE_ARGUMENTS in call.arguments:
        return AgentAnswer(None, [("$", "the arguments are no JSON object")])
    return _answer(node.outputs[0], call.arguments)


def _answer(output: StateType, value: Any) -> AgentAnswer:
    try:
        return AgentAnswer(output.parse(value))
    except DeserializeError as misfit:
        return AgentAnswer(None, misfit.errors)
    except SerializeError:
        return AgentAnswer(None, [("$", NOT_WRITABLE)])
