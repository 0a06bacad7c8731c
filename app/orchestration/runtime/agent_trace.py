"""AgentTrace of the pipeline seed: a summary of one execution, read from its event log."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel, Field

from app.domain.contract.response import SystemError, SystemResponse, TokenUsage
from app.domain.failures import Code
from app.domain.ids import RequestId, SessionId, ToolCallId, TraceId
from app.domain.journal.events import (
    FallbackTransition,
    FinishReason,
    InferenceEnd,
    InferenceStart,
    LifecycleTransition,
    StageEnd,
    StoredEvent,
    ToolEnd,
    ToolStart,
)
from app.domain.journal.status import ExecutionStatus
from app.domain.journal.step_key import attempt_of
from app.domain.lifecycle import State

S = TypeVar("S")
E = TypeVar("E")


class TracedStage(BaseModel):
    """One stage of the pipeline."""

    stage: str = Field(description="The stage's name.")
    started_at: datetime = Field(description="Start time; of a summed stage, the start of its first part.")
    duration_ms: float = Field(description="Duration in milliseconds; of a summed stage, of all its parts together.")
    outcome: str = Field(description="`ok` or `failed`.")


class TracedAttempt(BaseModel):
    """One provider attempt; null values mean that it has not ended, or never did because its process died."""

    segment: str = Field(description="The attempt's id in events.")
    step_name: str | None = Field(description="The step of a plan that it belongs to.")
    replica: int | None = Field(description="The replica that it belongs to.")
    provider: str = Field(description="The configured engine.")
    model: str = Field(description="The model's name at the provider.")
    started_at: datetime = Field(description="Start time.")
    duration_ms: float | None = Field(description="Duration in milliseconds.")
    tokens_in: int = Field(description="Input tokens.")
    tokens_out: int = Field(description="Output tokens.")
    finish_reason: FinishReason | None = Field(description="The reason for which it ended.")
    tool_call_count: int = Field(description="Number of tool calls in its reply.")


class TracedToolCall(BaseModel):
    """One attempt at a tool call; null values mean that it has not ended."""

    tool_call_id: ToolCallId = Field(description="The call's id in events.")
    tool_name: str = Field(description="The tool's name.")
    step_name: str | None = Field(description="The step of a plan that it belongs to.")
    args_hash: str = Field(description="Keyed hash of the arguments.")
    started_at: datetime = Field(description="Start time.")
    duration_ms: float | None = Field(description="Duration in milliseconds.")
    success: bool | None = Field(description="True if the tool succeeded.")
    error_code: Code | None = Field(description="The error code if it did not.")


class AgentTrace(BaseModel):
    """Summary of one execution, from its first event to its last so far."""

    request_id: RequestId = Field(description="The request's id.")
    session_id: SessionId | None = Field(description="The session's id.")
    trace_id: TraceId = Field(description="The trace's id.")
    agent: str | None = Field(description="The agent that the request names.")
    started_at: datetime = Field(description="Start time.")
    completed_at: datetime | None = Field(description="End time; null until the execution has ended.")
    outcome: State = Field(description="The state of its lifecycle.")
    error: SystemError | None = Field(description="The failure that ended it.")
    stages: list[TracedStage] = Field(description="The stages that have ended, in order.")
    attempts: list[TracedAttempt] = Field(description="All provider attempts, in the order in which they started.")
    tool_calls: list[TracedToolCall] = Field(
        description="All attempts at tool calls, in the order in which they started."
    )
    provider_used: str | None = Field(description="The engine that answered last.")
    model_used: str | None = Field(description="Its model.")
    total_tokens: TokenUsage = Field(description="Tokens of all attempts.")
    fallback_attempts: int = Field(description="Attempts after the first one of each inference.")


def agent_trace(events: Sequence[StoredEvent], agent: str | None = None) -> AgentTrace:
    """Return the summary of an execution for that agent; `events` are all from the first on, and at least one."""
    status = ExecutionStatus(events[0].at).apply((), events)
    ids, response = events[0].correlation, status.response
    attempts = _attempts(events)
    provider, model = _last_engine(response, attempts)
    return AgentTrace(
        request_id=ids.request_id,
        session_id=ids.session_id,
        trace_id=ids.trace_id,
        agent=agent,
        started_at=_datetime(events[0].at),
        completed_at=_datetime(events[-1].at) if status.ended else None,
        outcome=status.state,
        error=None if response is None else response.error,
        stages=_stages(events),
        attempts=attempts,
        tool_calls=_tool_calls(events),
        provider_used=provider,
        model_used=model,
        total_tokens=_tokens(attempts) if response is None else response.token_usage,
        fallback_attempts=_fallbacks(attempts) if response is None else response.metadata.fallback_attempts,
    )


def _stages(events: Sequence[StoredEvent]) -> list[TracedStage]:
    """Return the stages; an event reports a stage when it ends, and a summed stage started with its first part."""
    first_parts = {
        "Execute": [
            item.at
            for item in events
            if isinstance(item.event, LifecycleTransition) and item.event.to_state is State.EXECUTE
        ],
        "FailoverDecide": [item.at for item in events if isinstance(item.event, FallbackTransition)],
    }
    return [
        TracedStage(
            stage=item.event.stage,
            started_at=_datetime(
                min(first_parts.get(item.event.stage, ()), default=item.at - item.event.duration_ms / 1000)
            ),
            duration_ms=item.event.duration_ms,
            outcome=item.event.outcome,
        )
        for item in events
        if isinstance(item.event, StageEnd)
    ]


def _attempts(events: Sequence[StoredEvent]) -> list[TracedAttempt]:
    return [
        TracedAttempt(
            segment=start.segment,
            step_name=item.correlation.step_name,
            replica=start.replica,
            provider=start.provider,
            model=start.model,
            started_at=_datetime(item.at),
            duration_ms=None if end is None else end.duration_ms,
            tokens_in=0 if end is None else end.tokens_in,
            tokens_out=0 if end is None else end.tokens_out,
            finish_reason=None if end is None else end.finish_reason,
            tool_call_count=0 if end is None else end.tool_call_count,
        )
        for item, start, end in _pairs(events, InferenceStart, InferenceEnd)
    ]


def _tool_calls(events: Sequence[StoredEvent]) -> list[TracedToolCall]:
    return [
        TracedToolCall(
            tool_call_id=start.tool_call_id,
            tool_name=start.tool_name,
            step_name=item.correlation.step_name,
            args_hash=start.args_hash,
            started_at=_datetime(item.at),
            duration_ms=None if end is None else end.duration_ms,
            success=None if end is None else end.success,
            error_code=None if end is None else end.error_code,
        )
        for item, start, end in _pairs(events, ToolStart, ToolEnd)
    ]


def _pairs(events: Sequence[StoredEvent], starts: type[S], ends: type[E]) -> list[tuple[StoredEvent, S, E | None]]:
    """Return every start with its end, if it has one; a step that a crash made start twice ended once."""
    found: list[tuple[StoredEvent, S, E | None]] = []
    started: dict[str, int] = {}
    for item in events:
        if isinstance(item.event, starts):
            started[item.anchor] = len(found)
            found.append((item, item.event, None))
        elif isinstance(item.event, ends) and item.anchor in started:
            index = started.pop(item.anchor)
            found[index] = (*found[index][:2], item.event)
    return found


def _last_engine(response: SystemResponse | None, attempts: Sequence[TracedAttempt]) -> tuple[str | None, str | None]:
    """Return the provider and the model of the response, or else of the last attempt."""
    if response is not None:
        return response.metadata.provider, response.metadata.model
    return (attempts[-1].provider, attempts[-1].model) if attempts else (None, None)


def _tokens(attempts: Sequence[TracedAttempt]) -> TokenUsage:
    """Return the tokens of the attempts that have ended, for an execution that has no response yet."""
    tokens_in, tokens_out = sum(each.tokens_in for each in attempts), sum(each.tokens_out for each in attempts)
    return TokenUsage(input_tokens=tokens_in, output_tokens=tokens_out, total_tokens=tokens_in + tokens_out)


def _fallbacks(attempts: Sequence[TracedAttempt]) -> int:
    return sum(not attempt_of(each.segment).is_first_attempt for each in attempts)


def _datetime(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
