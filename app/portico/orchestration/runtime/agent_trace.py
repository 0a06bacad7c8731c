"""AgentTrace of the pipeline seed: a summary of one execution, read from its event log."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Self, TypeVar

from pydantic import BaseModel, Field

from portico.domain.context.report import (
    ContextChunk,
    ContextTerms,
    ExcludedSkill,
    HistoryCut,
    UsedSkill,
)
from portico.domain.contract.response import SystemError, SystemResponse, TokenUsage
from portico.domain.failures import Code
from portico.domain.ids import RequestId, SessionId, ToolCallId, TraceId
from portico.domain.journal.events import (
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
from portico.domain.journal.outcomes import InferenceSetup, Outcome, Prepared, RecordedStep, Refused
from portico.domain.journal.status import ExecutionStatus
from portico.domain.journal.step_key import PREPARE_KEY, StepKey, attempt_of
from portico.domain.lifecycle import State

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
    client: bool = Field(description="True if the client runs the tool.")
    started_at: datetime = Field(description="Start time.")
    duration_ms: float | None = Field(description="Duration in milliseconds.")
    success: bool | None = Field(description="True if the tool succeeded.")
    error_code: Code | None = Field(description="The error code if it did not.")


class TracedTerms(BaseModel):
    """The budget equation of one context, in tokens."""

    system: int = Field(description="The system prompt, without skills.")
    skills: int = Field(description="Skills.")
    history: int = Field(description="Earlier messages and their summary.")
    memory: int = Field(description="Retrieved context.")
    message: int = Field(description="The last message.")
    tools: int = Field(description="Definitions of tools.")
    used: int = Field(description="The sum of the terms.")
    limit: int = Field(description="Context window of the largest engine of the route, less its response reserve.")

    @classmethod
    def of(cls, terms: ContextTerms) -> Self:
        """Return the terms with their sum."""
        return cls(**asdict(terms), used=terms.used)


class TracedContext(BaseModel):
    """Choices of PREPARE for the first inference: ids and counts."""

    terms: TracedTerms = Field(description="The budget equation.")
    cut: HistoryCut = Field(description="Earlier messages that are left out, summed up or repaired.")
    redacted: Mapping[str, int] = Field(description="Number of values of the history that were redacted, by kind.")
    skills: list[UsedSkill] = Field(description="The skills that were chosen, with their tokens.")
    excluded: list[ExcludedSkill] = Field(description="The skills that were not, and why.")
    chunks: list[ContextChunk] = Field(description="The chunks that were retrieved; one that is not used did not fit.")


class TracedInference(BaseModel):
    """The context of one inference; its attempts have the segments `KEY/0`, `KEY/1`, …."""

    key: str = Field(description="Key of the inference.")
    step_name: str | None = Field(description="The step of a plan that it belongs to.")
    terms: TracedTerms = Field(description="The budget equation, behind the cut.")
    results_cut: int = Field(description="Number of tool results that were cut to fit.")
    fits: bool = Field(description="False if the inference was refused because its context is too large.")


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
    context: TracedContext | None = Field(
        description="The context of the first inference; null before PREPARE has ended."
    )
    inferences: list[TracedInference] = Field(description="The context of each inference, in order.")
    provider_used: str | None = Field(description="The engine that answered last.")
    model_used: str | None = Field(description="Its model.")
    total_tokens: TokenUsage = Field(description="Tokens of all attempts.")
    fallback_attempts: int = Field(description="Attempts after the first one of each inference.")


def agent_trace(
    events: Sequence[StoredEvent], agent: str | None = None, steps: Iterable[RecordedStep] = ()
) -> AgentTrace:
    """Return the summary of an execution for that agent; `events` are all from the first on, and at least one.

    The contexts are read from the `steps`.
    """
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
        context=next((_context(step.outcome) for step in steps if step.key == PREPARE_KEY), None),
        inferences=_inferences(events, steps),
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
            client=start.client,
            started_at=_datetime(item.at),
            duration_ms=None if end is None else end.duration_ms,
            success=None if end is None else end.success,
            error_code=None if end is None else end.error_code,
        )
        for item, start, end in _pairs(events, ToolStart, ToolEnd)
    ]


def _context(outcome: Outcome) -> TracedContext | None:
    report = outcome.context if isinstance(outcome, Prepared) else None
    if report is None:
        return None
    return TracedContext(
        terms=TracedTerms.of(report.terms),
        cut=report.cut,
        redacted=report.redacted,
        skills=list(report.skills),
        excluded=list(report.excluded),
        chunks=list(report.chunks),
    )


def _inferences(events: Sequence[StoredEvent], steps: Iterable[RecordedStep]) -> list[TracedInference]:
    """Return the contexts of the inferences, also of one that was refused because its context is too large."""
    step_names = {attempt_of(item.anchor): item.correlation.step_name for item in events}
    found: list[TracedInference] = []
    for step in steps:
        outcome = step.outcome
        terms = outcome.terms if isinstance(outcome, InferenceSetup) else _refused_terms(outcome)
        if terms is not None:
            key = StepKey(step.key)
            name = step_names.get(key) or step_names.get(key.child(0))
            cut = len(outcome.cut) if isinstance(outcome, InferenceSetup) else 0
            fits = terms.used <= terms.limit
            found.append(
                TracedInference(key=key, step_name=name, terms=TracedTerms.of(terms), results_cut=cut, fits=fits)
            )
    return found


def _refused_terms(outcome: Outcome) -> ContextTerms | None:
    """Return the terms of a context that was too large; None for any other outcome."""
    if not isinstance(outcome, Refused) or outcome.code is not Code.INFERENCE_CONTEXT_EXCEEDED:
        return None
    return ContextTerms(**{each.name: outcome.details.get(each.name, 0) for each in fields(ContextTerms)})


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
