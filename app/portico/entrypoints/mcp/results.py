"""Results of tools: the answer of an execution, its state, or why there is none."""

from collections.abc import Sequence
from typing import Any, Final

import orjson
from mcp import types

from portico.domain.contract.response import Suspension, SystemError, SystemResponse
from portico.domain.failures import Failure
from portico.domain.ids import RequestId
from portico.domain.lifecycle import State
from portico.domain.value import value
from portico.entrypoints.mcp.questions import question_of
from portico.orchestration.facade import ExecutionView

PERSON_DECIDES: Final = "A person decides this"


@value
class CallOutcome:
    """Outcome of an execution so far: its state, what is open, and its response once there is one."""

    request_id: RequestId
    state: State
    response: SystemResponse | None = None
    suspensions: Sequence[Suspension] = ()

    @classmethod
    def of_response(cls, response: SystemResponse) -> "CallOutcome":
        """Return the outcome that a response tells of."""
        return cls(response.request_id, response.state, response, response.suspensions)

    @classmethod
    def of_view(cls, view: ExecutionView) -> "CallOutcome":
        """Return the outcome of an execution as it is stored."""
        return cls(view.request_id, view.state, view.response, view.suspensions)


def result_of(outcome: CallOutcome) -> types.CallToolResult:
    """Return the result of a call whose execution has this outcome."""
    response, error = outcome.response, None if outcome.response is None else outcome.response.error
    if error is not None:
        return _result(_failed(error), {"request_id": outcome.request_id, "error": _public(error)}, is_error=True)
    shown: dict[str, Any] = {"request_id": outcome.request_id, "state": outcome.state}
    if response is not None:
        answer = {
            "content": response.content,
            "structured_output": response.structured_output,
            "confidence": response.confidence,
        }
        shown |= {name: each for name, each in answer.items() if each is not None}
    if outcome.suspensions:
        shown["suspensions"] = [each.model_dump(mode="json", exclude_none=True) for each in outcome.suspensions]
    return _result(_text(outcome), shown)


def refused(failure: Failure) -> types.CallToolResult:
    """Return the result of a call that was refused."""
    error = SystemError.of(failure)
    return _result(_failed(error), {"error": _public(error)}, is_error=True)


def for_person(suspension: Suspension) -> types.CallToolResult:
    """Return the result for a model that tried to decide for a person."""
    return _result(
        f"{PERSON_DECIDES}: {question_of(suspension)}", {"error": {"message": PERSON_DECIDES}}, is_error=True
    )


def _text(outcome: CallOutcome) -> str:
    if outcome.state is State.SUSPENDED:
        asked = "; ".join(question_of(each) for each in outcome.suspensions)
        return (
            f"Waiting for a person: {asked}. Call get_execution with request_id {outcome.request_id} to see the answer."
        )
    response = outcome.response
    if response is None:
        return f"{outcome.state}. Call get_execution with request_id {outcome.request_id} later."
    if response.content is not None:
        return response.content
    return orjson.dumps(response.structured_output).decode()


def _failed(error: SystemError) -> str:
    return f"{error.code}: {error.message}"


def _public(error: SystemError) -> dict[str, Any]:
    return error.model_dump(mode="json", exclude_none=True)


def _result(text: str, structured: dict[str, Any], *, is_error: bool = False) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=structured, is_error=is_error)
