"""The `AgentTrace` of an execution [pipeline seed], read off its event log."""

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
from app.domain.lifecycle import State

S = TypeVar("S")
E = TypeVar("E")


class TracedStage(BaseModel):
    """One stage of the pipeline."""

    stage: str = Field(description="The stage.")
    started_at: datetime = Field(description="When it began; of one that is summed, when its first part did.")
    duration_ms: float = Field(description="Milliseconds that it took, all its parts together.")
    outcome: str = Field(description="How it ended.")


class TracedAttempt(BaseModel):
    """One attempt on one provider. What is null has not ended, or never did: its process was gone."""

    segment: str = Field(description="The attempt, as events name it.")
    step_name: str | None = Field(description="The step of a plan that it belongs to.")
    replica: int | None = Field(description="The replica that it belongs to.")
    provider: str = Field(description="The configured engine.")
    model: str = Field(description="The model as that engine names it.")
    started_at: datetime = Field(description="When it began.")
    duration_ms: float | None = Field(description="Milliseconds that it took.")
    tokens_in: int = Field(description="Tokens read.")
    tokens_out: int = Field(description="Tokens written.")
    finish_reason: FinishReason | None = Field(description="Why it ended.")
    tool_call_count: int = Field(description="Tool calls that it asked for.")


class TracedToolCall(BaseModel):
    """One attempt at one tool call. What is null has not ended."""

    tool_call_id: ToolCallId = Field(description="The call, as events name it.")
    tool_name: str = Field(description="The tool.")
    step_name: str | None = Field(description="The step of a plan that it belongs to.")
    args_hash: str = Field(description="A keyed hash of the arguments.")
    started_at: datetime = Field(description="When it began.")
    duration_ms: float | None = Field(description="Milliseconds that it took.")
    success: bool | None = Field(description="Whether the tool did what it was asked.")
    error_code: Code | None = Field(description="Why not.")


class AgentTrace(BaseModel):
    """What one execution did, from its first event to its last so far."""

    request_id: RequestId = Field(description="The request's id.")
    session_id: SessionId | None = Field(description="The session's id.")
    trace_id: TraceId = Field(description="The trace's id.")
    started_at: datetime = Field(description="When it began.")
    completed_at: datetime | None = Field(description="When it ended; null until then.")
    outcome: State = Field(description="Where it stands.")
    error: SystemError | None = Field(description="The failure that ended it.")
    stages: list[TracedStage] = Field(description="The stages that have ended, in order.")
    attempts: list[TracedAttempt] = Field(description="Every attempt on a provider, in the order of their beginnings.")
    tool_calls: list[TracedToolCall] = Field(description="Every attempt at a tool call, in the order of beginnings.")
    provider_used: str | None = Field(description="The engine that answered last.")
    model_used: str | None = Field(description="Its model.")
    total_tokens: TokenUsage = Field(description="Tokens over all attempts.")
    fallback_attempts: int = Field(description="Attempts beyond the first of each inference.")


def agent_trace(events: Sequence[StoredEvent]) -> AgentTrace:
    """The trace that these events, all from the first on, tell; there must be one at least."""
    standing = ExecutionStatus(events[0].at).apply((), events)
    ids, response = events[0].correlation, standing.response
    attempts = _attempts(events)
    provider, model = _used(response, attempts)
    return AgentTrace(
        request_id=ids.request_id,
        session_id=ids.session_id,
        trace_id=ids.trace_id,
        started_at=_moment(events[0].at),
        completed_at=_moment(events[-1].at) if standing.ended else None,
        outcome=standing.state,
        error=None if response is None else response.error,
        stages=_stages(events),
        attempts=attempts,
        tool_calls=_tool_calls(events),
        provider_used=provider,
        model_used=model,
        total_tokens=_tokens(attempts) if response is None else response.token_usage,
        fallback_attempts=_beyond_first(attempts) if response is None else response.metadata.fallback_attempts,
    )


def _stages(events: Sequence[StoredEvent]) -> list[TracedStage]:
    """Stages are told of when they end; those two that are summed began with the first that they sum."""
    summed = {
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
            started_at=_moment(min(summed.get(item.event.stage, ()), default=item.at - item.event.duration_ms / 1000)),
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
            started_at=_moment(item.at),
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
            started_at=_moment(item.at),
            duration_ms=None if end is None else end.duration_ms,
            success=None if end is None else end.success,
            error_code=None if end is None else end.error_code,
        )
        for item, start, end in _pairs(events, ToolStart, ToolEnd)
    ]


def _pairs(events: Sequence[StoredEvent], begins: type[S], ends: type[E]) -> list[tuple[StoredEvent, S, E | None]]:
    """Every start with its end, if it has one. A step that began twice, since its process was gone, ended once."""
    found: list[tuple[StoredEvent, S, E | None]] = []
    begun: dict[str, int] = {}
    for item in events:
        if isinstance(item.event, begins):
            begun[item.anchor] = len(found)
            found.append((item, item.event, None))
        elif isinstance(item.event, ends) and item.anchor in begun:
            place = begun.pop(item.anchor)
            found[place] = (*found[place][:2], item.event)
    return found


def _used(response: SystemResponse | None, attempts: Sequence[TracedAttempt]) -> tuple[str | None, str | None]:
    if response is not None:
        return response.metadata.provider, response.metadata.model
    return (attempts[-1].provider, attempts[-1].model) if attempts else (None, None)


def _tokens(attempts: Sequence[TracedAttempt]) -> TokenUsage:
    """What is known of them while the execution has no response that says it all."""
    read, written = sum(each.tokens_in for each in attempts), sum(each.tokens_out for each in attempts)
    return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _beyond_first(attempts: Sequence[TracedAttempt]) -> int:
    return sum(not each.segment.endswith("/0") for each in attempts)


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
