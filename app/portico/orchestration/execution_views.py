"""Views of executions: what clients see of one in whole and in brief."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field

from portico.domain.access.principal import Principal
from portico.domain.contract.response import Cost, Suspension, SystemError, SystemResponse
from portico.domain.failures import (
    TAXONOMY,
    failure,
)
from portico.domain.ids import ChannelName, RequestId, SessionId, ToolCallId, UserId
from portico.domain.journal.events import ToolProgress
from portico.domain.journal.status import ExecutionStatus
from portico.domain.lifecycle import TERMINAL, Mode, State
from portico.orchestration.redaction import (
    redacted_error,
    redacted_progress,
    redacted_response,
    redacted_suspensions,
    sees_all,
)
from portico.ports.storage import (
    StoredExecution,
)


class ForkOrigin(BaseModel):
    """The execution from which a fork or a continuation comes."""

    request_id: RequestId = Field(description="The request's id.")
    from_step: int | Literal["end"] = Field(
        description="Number of top-level steps that were inherited; `end`: it goes on after the last message."
    )


class ExecutionFacts(BaseModel):
    """An execution and its status, without its response."""

    request_id: RequestId = Field(description="The request's id.")
    title: str | None = Field(
        description="The first 80 characters of the last user message, with white space collapsed, always redacted; "
        "null without text."
    )
    user: UserId = Field(description="User who asked for the execution.")
    origin: ForkOrigin | None = Field(description="What it is a fork or a continuation of.")
    session_id: SessionId | None = Field(description="The session's id.")
    mode: Mode = Field(description="The mode, which selects the pattern.")
    agent: str | None = Field(description="The agent that the request names.")
    channel: ChannelName = Field(description="The channel by which the request came, such as `api` or `openai`.")
    state: State = Field(description="The state of its lifecycle.")
    created_at: datetime = Field(description="The time at which it was accepted.")
    run_at: datetime | None = Field(
        description="The time at which it is to start, as its request says; it is in INIT until then. Null: at once."
    )
    started_at: datetime | None = Field(description="The time at which it began to run; null before.")
    entered_at: datetime = Field(description="The time at which it entered its state.")
    attempt: int = Field(description="Attempts at a valid answer, the current one included.")
    provider: str | None = Field(description="The engine that was asked last; null before the first inference.")
    model: str | None = Field(description="The model that was asked last, as it is configured.")
    total_steps: int = Field(
        description="Plan steps that have ended, waves of a flow in which a node has, or else rounds: inferences at "
        "the top level."
    )
    events: int = Field(
        description="Number of its last event. It only grows, also when events are deleted: of two views the one with "
        "the higher number is newer."
    )
    last_step: str | None = Field(
        description="Name of the plan step, or key of the flow's node, that ended last, or else `round N`."
    )
    fork_points: int | None = Field(
        description="Highest `from_step` of a fork besides `end`; null if it is not known any more."
    )
    last_error: SystemError | None = Field(description="The most recent error; it may have been recovered from.")
    suspensions: list[Suspension] = Field(description="Open suspensions.")


class ProgressView(BaseModel):
    """Progress of a call of a tool, as the tool has said last."""

    tool_name: str = Field(description="Name of the tool.")
    tool_call_id: ToolCallId = Field(description="Id of the call.")
    progress: float = Field(description="From 0 to 1.")
    message: str = Field(description="In words; empty without.")


class ExecutionView(ExecutionFacts):
    """An execution and its status."""

    progress: ProgressView | None = Field(
        None,
        description="How far a call of a tool is that runs, if the tool says so; null otherwise, and on another "
        "replica than the one that runs it. It is not stored.",
    )
    response: SystemResponse | None = Field(description="The response; null until there is one.")


class ExecutionSummary(ExecutionFacts):
    """An execution and its status in brief, with figures instead of its response."""

    tokens: int | None = Field(description="Input and output tokens together; null until there is a response.")
    cost: Cost | None = Field(description="Cost of the tokens, if prices are configured.")
    duration: float | None = Field(description="Seconds from its start to its end; null until it has ended.")


def view_of(execution: StoredExecution, progress: ToolProgress | None = None) -> ExecutionView:
    """Return the view of a stored execution, or of one that runs here, with its progress."""
    shown = None if progress is None else ProgressView.model_validate(progress, from_attributes=True)
    return ExecutionView(**_facts(execution), progress=shown, response=execution.status.response)


def _facts(execution: StoredExecution) -> dict[str, Any]:
    """Return what a view and a summary have in common."""
    status, origin, from_step = execution.status, execution.origin, execution.origin_step
    return {
        "request_id": execution.request_id,
        "title": execution.title,
        "user": execution.user,
        "origin": None
        if origin is None
        else ForkOrigin(request_id=origin, from_step="end" if from_step is None else from_step),
        "session_id": execution.session_id,
        "mode": execution.mode,
        "agent": execution.agent,
        "channel": execution.channel,
        "state": status.state,
        "created_at": datetime.fromtimestamp(execution.created_at, UTC),
        "run_at": None if execution.run_at is None else datetime.fromtimestamp(execution.run_at, UTC),
        "started_at": None if status.started_at is None else datetime.fromtimestamp(status.started_at, UTC),
        "entered_at": datetime.fromtimestamp(status.entered_at, UTC),
        "attempt": status.attempt,
        "provider": status.provider,
        "model": status.model,
        "total_steps": status.total_steps,
        "events": execution.last_sequence_number,
        "last_step": status.last_step,
        "fork_points": status.fork_points,
        "last_error": _last_error(status),
        "suspensions": list(execution.suspensions),
    }


def shown_view(view: ExecutionView, principal: Principal) -> ExecutionView:
    """Return the view as the principal sees it."""
    return _redacted(view, is_whole=sees_all(principal))


def _redacted(view: ExecutionView, *, is_whole: bool) -> ExecutionView:
    if is_whole:
        return view
    response = None if view.response is None else redacted_response(view.response)
    error = None if view.last_error is None else redacted_error(view.last_error)
    suspensions, progress = redacted_suspensions(view.suspensions), redacted_progress(view.progress)
    changes = {"suspensions": suspensions, "progress": progress, "response": response, "last_error": error}
    return view.model_copy(update=changes)


def listed_execution(execution: StoredExecution, *, is_whole: bool) -> bytes:
    """Return the JSON of the execution in brief, redacted unless it `is_whole`.

    It is written from the fields, since making the model first takes twice as long and lists change often.
    """
    facts = _facts(execution)
    if not is_whole:
        facts["suspensions"] = redacted_suspensions(execution.suspensions)
        facts["last_error"] = None if facts["last_error"] is None else redacted_error(facts["last_error"])
    return orjson.dumps(facts | _figures(facts, execution.status.response), _model_json, orjson.OPT_UTC_Z)


def _model_json(model: BaseModel) -> orjson.Fragment:
    return orjson.Fragment(model.model_dump_json())


def summary_of(view: ExecutionView) -> ExecutionSummary:
    """Return the view in brief."""
    facts = {name: getattr(view, name) for name in ExecutionFacts.model_fields}
    return ExecutionSummary(**facts, **_figures(facts, view.response))


def _figures(facts: Mapping[str, Any], response: SystemResponse | None) -> dict[str, Any]:
    """Return what a summary has instead of the response."""
    started_at = facts["started_at"] if facts["state"] in TERMINAL else None
    return {
        "tokens": None if response is None else response.token_usage.total_tokens,
        "cost": None if response is None else response.cost,
        "duration": None if started_at is None else (facts["entered_at"] - started_at).total_seconds(),
    }


def _last_error(status: ExecutionStatus) -> SystemError | None:
    """Return the response's error if it has one; of an error that was recovered from only the code is stored."""
    code, response = status.last_error, status.response
    if response is not None and response.error is not None:
        return response.error
    return None if code is None else SystemError.of(failure(code, TAXONOMY[code].meaning))
