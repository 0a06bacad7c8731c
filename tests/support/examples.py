"""Examples: each outcome, each event, and the log of a plain chat."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from portico.domain import fallback
from portico.domain.access.tool_policy import ApprovalReason, ApprovalTerms, CallVerdict
from portico.domain.context.guards import GuardVerdict
from portico.domain.context.report import (
    ContextChunk,
    ContextReport,
    ContextTerms,
    ExcludedSkill,
    HistoryCut,
    UsedSkill,
)
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import ExecutionHints, Limits, OutputContract, PlanStep, SystemRequest
from portico.domain.contract.response import (
    NO_USAGE,
    ResponseMetadata,
    StepStatus,
    Suspension,
    SuspensionKind,
    SystemError,
    SystemResponse,
    TokenUsage,
    ValidationResult,
)
from portico.domain.failures import Code, failure
from portico.domain.ids import DocumentId, UserId
from portico.domain.journal import events
from portico.domain.journal.events import (
    CorrelationContext,
    Event,
    InferenceDelta,
    LiveDelta,
    StoredEvent,
    UnnumberedEvent,
)
from portico.domain.journal.header import EffectiveLimits, ExecutionHeader
from portico.domain.journal.outcomes import (
    AgentCallStarted,
    AgentStarted,
    AnswerValidated,
    Approver,
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    CallDecided,
    Candidate,
    CauseCandidates,
    CodeRound,
    CodeStarted,
    CompactionStarted,
    GrantUsed,
    InferenceSetup,
    MediaFetched,
    NodeEnded,
    Plan,
    PlanningInputs,
    Prepared,
    RaceDecided,
    RecordedStep,
    Refused,
    Retrieved,
    StageTrace,
    StopDecision,
    SuspensionAnswer,
    TimerFired,
    ToolCallSuspended,
    ToolEnded,
)
from portico.domain.lifecycle import Mode, State
from portico.domain.memory import EmbeddingCharge, FoundChunk, LegState
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.domain.tools import OfferedTool
from tests.support.virtual_time import EPOCH

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
CALL = ToolCall(id="call_1", name="roll_dice", arguments={"count": 2, "sides": [6, 8.5, None, "µ\u2028"]})
USAGE = TokenUsage(input_tokens=12, output_tokens=34, reasoning_tokens=5, cached_tokens=6, total_tokens=46)
REPLY = Reply(
    text="two\nlines",
    tool_calls=(CALL,),
    finish_reason="tool",
    raw_finish="tool_calls",
    usage=USAGE,
    model="gpt-4o-mini",
    reasoning="hm",
    withheld=("hints.seed",),
)

CONTEXT = ContextReport(
    ContextTerms(system=20, history=300, message=12, tools=80, skills=45, memory=200, limit=6_000),
    HistoryCut(messages=12, summarised=10),
    {"email": 2},
    (UsedSkill("dice", 45),),
    (ExcludedSkill("cards", "budget"),),
    (ContextChunk("rules", 3, 0.75, 200), ContextChunk("rules", 4, 0.5, 9_000, used=False)),
)

OUTCOMES: Sequence[Any] = (
    PlanningInputs(({"name": "roll_dice", "description": "Rolls.", "parameters": {"type": "object"}},)),
    PlanningInputs((), (Message(role="user", content="hello"),)),
    PlanningInputs(
        (),
        step_types=({"name": "count", "description": "Counts.", "parameters": {"type": "object"}},),
        plan=Plan((PlanStep(name="first", type="count", input="two words"),), "by_rules", ""),
    ),
    Plan((PlanStep(name="ask", type="infer", input="why?"),), "authored", ""),
    Prepared(
        messages=(Message(role="user", content="roll"), REPLY.message("primary")),
        tools=("roll_dice",),
        truncated_history=True,
        stages=(StageTrace("ContextGuard", 0.25),),
        context=CONTEXT,
    ),
    CompactionStarted(("user: I am Ada.",), "A greeting.", 12, is_untrusted=False, max_tokens=800),
    InferenceSetup(
        tools=(OfferedTool("roll_dice", unsafe=False),),
        candidates=(Candidate("primary", "gpt-4o-mini", (0.15, 0.6)),),
        left_out=(Candidate("backup", "claude"),),
        cut=(3, 4),
        terms=CONTEXT.terms,
        by_cause=(CauseCandidates(AttemptFailureReason.CONTEXT_EXCEEDED, (Candidate("large", "gpt-4.1"),)),),
    ),
    AttemptSucceeded(REPLY, 812.5),
    AttemptFailed(
        reason=AttemptFailureReason.RATE_LIMITED,
        message="429",
        wait=2.0,
        retry_after=2.0,
        streamed=True,
        partial="tw",
        usage=USAGE,
        duration_ms=3.25,
    ),
    AttemptFailed(
        reason=AttemptFailureReason.OVER_BUDGET,
        message="limits.tokens leaves 5 and the next inference needs 9",
        wait=None,
        retry_after=None,
        streamed=False,
        partial="",
        usage=NO_USAGE,
        duration_ms=0.0,
        details={"field": "limits.tokens", "limit": 100, "used": 95, "needed": 9},
    ),
    ToolEnded("[3, 4]", is_error=True, code=Code.TOOL_TIMEOUT, duration_ms=0.1, retry=True),
    ToolCallSuspended({"question": "really?"}, 0.5),
    CallDecided(CallVerdict.ASK, "f" * 32),
    CallDecided(
        CallVerdict.ASK, "f" * 32, ApprovalReason.RULE, ApprovalTerms(2, 600, "deny", grants=False), grantable=True
    ),
    GrantUsed(),
    GrantUsed("grant-1", UserId("boss"), 1.5),
    NodeEnded('{"text":"done"}', 1.5),
    AgentStarted("Be brief.", "primary", "helper"),
    AgentCallStarted(
        "helper",
        "Be brief.",
        Mode.STRUCTURED,
        1,
        "primary",
        ("roll_dice",),
        ExecutionHints(temperature=0.5),
        OutputContract.model_validate({"schema": {"type": "object"}}),
        Limits(tool_rounds=3),
        1024,
    ),
    CodeStarted("monty 1.4.0", (OfferedTool("roll_dice", unsafe=False, digest="d1"),), 1024),
    CodeRound((ToolCall(id="call_1/0/1/0", name="roll_dice", arguments={"sides": 6}),)),
    Retrieved(
        "which lamp?",
        (FoundChunk(DocumentId("lamps"), 2, "The lamp is green.", 0.5),),
        LegState.ANSWERED,
        LegState.FAILED,
        2.5,
        EmbeddingCharge("embedder", "small", 4, 0.001),
        {"other#1": "no-orders"},
    ),
    MediaFetched("image/png", "iVBORw0KGgo=", 2.5, (GuardVerdict("no_secrets", "flag", tripped=True),)),
    TimerFired(),
    SuspensionAnswer(
        {"decision": "approve", "list": [1, 2.5, None]},
        (GuardVerdict("no_secrets", "flag", tripped=True),),
        is_untrusted=True,
        by=(Approver(UserId("boss"), 1.5, "fine"), Approver(UserId("chief"), 2.5)),
        expired=True,
    ),
    Refused(
        Code.TOOL_NOT_FOUND,
        "no such tool",
        {"path": ["a", 1]},
        retry_after=1.5,
        stages=(StageTrace("x", 1.0, "error"),),
    ),
    AttemptCancelled(duration_ms=7.0, usage=USAGE, partial="tw"),
    RaceDecided((0, 2)),
    StopDecision(Code.CANCELLED_SIGNAL, "cancelled"),
    AnswerValidated({"a": [1, 2.5, None]}, ValidationResult(valid=True, repairs=[{"action": "x"}], attempts=2)),
    AnswerValidated(
        None,
        ValidationResult(valid=False, errors=[{"path": "$", "message": "too large"}]),
        Refused(Code.CONSTRAINT_SCHEMA_INVALID, "too large", {"violations": [{"path": "$", "message": "too large"}]}),
    ),
)


def header(execution_id: str, request_id: str = "r-1", tenant: str = "local") -> ExecutionHeader:
    """Return the header of a small chat."""
    request = SystemRequest(
        request_id=request_id, messages=[Message(role="user", content="hello")], output={"schema": {"type": "object"}}
    )
    return ExecutionHeader(
        execution_id=execution_id,
        request_id=request_id,
        tenant=tenant,
        trace_id=TRACE,
        parent_span_id=None,
        mode=Mode.CHAT,
        pattern_version=1,
        request=request,
        bounds=EffectiveLimits(timeout=600.0, tool_rounds=20, calls_per_reply=32, max_retries=1),
        currency="USD",
        args_key="00" * 32,
        created_at=EPOCH,
    )


def recorded_step(key: str) -> RecordedStep:
    """Return a step that records a fired timer."""
    return RecordedStep(key, "f" * 32, TimerFired(), EPOCH)


def correlation(request_id: str = "r-1") -> CorrelationContext:
    """Return the correlation of an event of that request."""
    return CorrelationContext(request_id, None, TRACE, SPAN, None)


def response(state: State = State.COMPLETE, code: Code | None = None) -> SystemResponse:
    """Return a response; a failure if there is a code."""
    return SystemResponse(
        request_id="r-1",
        session_id=None,
        trace_id=TRACE,
        mode=Mode.CHAT,
        state=state,
        content="an answer nobody logs",
        token_usage=USAGE,
        metadata=ResponseMetadata(provider="primary", model="gpt-4o-mini", finish_reason="stop", tool_rounds=2),
        error=None if code is None else SystemError.of(failure(code, "it failed")),
    )


SUSPENSION = Suspension(
    suspension_id="s-1",
    kind=SuspensionKind.QUESTION,
    tool_id="ask_person",
    tool_call_id="call_1",
    value={"question": "a question nobody logs"},
    expires_at=datetime(2026, 11, 28, tzinfo=UTC),
)
COMPLETED = events.ExecutionCompleted(response())
FAILED = events.ExecutionFailed(response(State.ERROR, Code.INFERENCE_MODEL_UNAVAILABLE))
CANCELLED = events.ExecutionCancelled(response(State.CANCELLED, Code.CANCELLED_TIMEOUT))
SUSPENDED = events.ExecutionSuspended((SUSPENSION,), response(State.SUSPENDED))
MOVED = events.LifecycleTransition(State.EXECUTE, State.VALIDATE, 1, "output_ready")
STARTED = events.InferenceStart(
    segment="1/0",
    message_count=2,
    tool_defs_count=3,
    schema_present=False,
    grammar_present=False,
    temperature=0.0,
    provider="primary",
    model="gpt-4o-mini",
)
ENDED = events.InferenceEnd(
    segment="1/0",
    duration_ms=812.5,
    tokens_in=12,
    tokens_out=34,
    finish_reason="stop",
    tool_call_count=0,
    tokens_cached=5,
    tokens_cache_written=3,
    tokens_reasoning=21,
    cost=0.25,
)
TOOL_ENDED = events.ToolEnd("roll_dice", "call_1", 0.25, success=False, error_code=Code.TOOL_TIMEOUT)
DELTA = InferenceDelta(segment="1/0", offset=0, text="text nobody logs")


def fallback_transition(before: fallback.State, after: fallback.State, by: fallback.Event) -> events.FallbackTransition:
    """Return a transition of the fallback machine."""
    return events.FallbackTransition(before, after, by, "primary", "gpt-4o-mini", 0, "because", "1/0")


EVENTS: Sequence[Event] = (
    MOVED,
    fallback_transition(fallback.State.IDLE, fallback.State.SELECTING, fallback.Event.START),
    events.StageEnd("ContextGuard", 0.125, "ok"),
    STARTED,
    events.InferenceRetracted("1/0"),
    ENDED,
    events.ToolStart("roll_dice", "call_1", "0f" * 16),
    TOOL_ENDED,
    events.ConstraintRepaired(1, ({"action": "quotes_added", "path": "$.city", "times": 2},)),
    events.ValidationEnd(2, valid=False, errors=({"path": "$", "message": "is no object"},), warnings=()),
    events.PlanCreated("authored", ({"name": "a", "type": "infer", "depends_on": []},)),
    events.VoteCast(1, "failed", Code.CONSTRAINT_JSON_INVALID),
    events.VoteDecided(5, 3, 1, True, 3, 0.6, 0, None),
    events.StepStart("infer", 1),
    events.StepEnd("infer", 1, StepStatus.FAILED, 3.5, Code.CONSTRAINT_SCHEMA_INVALID),
    events.StepStart("subplan", 1, 2),
    events.StepEnd("subplan", 1, StepStatus.COMPLETED, 3.5, None, 2),
    events.ContextAssembled(
        CONTEXT.terms, CONTEXT.cut, CONTEXT.redacted, CONTEXT.skills, CONTEXT.excluded, CONTEXT.chunks
    ),
    events.GuardEnd("no_secrets", "flag", tripped=True),
    events.PassEnd(2, False, 0.75, 0.9, False, ("plan_inconsistent",), 1),
    events.NodeStart("Draft"),
    events.RetrievalStart(5),
    events.RetrievalEnd(5, 1, LegState.ANSWERED, LegState.SKIPPED, 2.5),
    events.FlowStep("Draft", "suspend"),
    SUSPENDED,
    events.ExecutionResumed("2/0/0/0/1", SuspensionKind.QUESTION, "ask_person", "local"),
    events.ApprovalGiven("2/0/0", UserId("boss"), 1, 2),
    COMPLETED,
    FAILED,
    CANCELLED,
)


def unnumbered(*given: Event) -> list[UnnumberedEvent]:
    """Return the events in the form that an execution puts into its journal."""
    return [("0", correlation(), event) for event in given]


def stored_events(*given: Event) -> list[StoredEvent]:
    """Return the events as a stored log, one second apart."""
    return [StoredEvent(number, EPOCH + number, "0", correlation(), event) for number, event in enumerate(given, 1)]


def live_delta(delta: InferenceDelta = DELTA, at: float = EPOCH) -> LiveDelta:
    """Return a delta as it is published."""
    return LiveDelta(at, correlation(), delta)


def plain_chat() -> list[StoredEvent]:
    """Return the log of a chat without tools."""
    machine, happening = fallback.State, fallback.Event
    return stored_events(
        events.LifecycleTransition(None, State.INIT, 1, "accepted"),
        events.StageEnd("AuthResolve", 0.1, "ok"),
        events.LifecycleTransition(State.INIT, State.PREPARE, 1, "admitted"),
        *(events.StageEnd(stage, 0.1, "ok") for stage in ("HistorySanitize", "ContextGuard", "ToolSplit")),
        events.LifecycleTransition(State.PREPARE, State.EXECUTE, 1, "prepared"),
        fallback_transition(machine.IDLE, machine.SELECTING, happening.START),
        fallback_transition(machine.SELECTING, machine.ATTEMPTING, happening.PROVIDER_SUCCESS),
        STARTED,
        ENDED,
        fallback_transition(machine.ATTEMPTING, machine.SUCCEEDED, happening.PROVIDER_SUCCESS),
        *(events.StageEnd(stage, 0.1, "ok") for stage in ("Execute", "FailoverDecide")),
        events.LifecycleTransition(State.EXECUTE, State.COMPLETE, 1, "answered"),
        COMPLETED,
    )
