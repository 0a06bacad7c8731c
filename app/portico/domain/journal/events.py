"""Events that the core emits; the union is closed.

The core neither logs nor measures nor traces: sinks do, by these events. A `StoredEvent` is an event in the log of its
execution, with its number and correlation; a delta is only live and has no number. These envelopes are named tuples,
since one or two are made for every event and a frozen dataclass takes three times as long to make. Events have no
slots, since orjson writes a dataclass that has a dict five times as fast.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from math import modf
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

from portico.domain.context.guards import GuardAction
from portico.domain.context.report import ContextChunk, ContextTerms, ExcludedSkill, HistoryCut, UsedSkill
from portico.domain.contract.response import StepStatus, Suspension, SuspensionKind, SystemResponse
from portico.domain.failures import Code
from portico.domain.fallback import Event as FsmEvent
from portico.domain.fallback import State as FsmState
from portico.domain.ids import RequestId, SessionId, SpanId, SuspensionId, ToolCallId, TraceId, UserId
from portico.domain.lifecycle import State
from portico.domain.memory import LegState
from portico.domain.value import value

INIT_ANCHOR = "init"
END_ANCHOR = "end"
"""Anchors of the first and the last events, which belong to no step."""
RESUME_ANCHOR = "resume"
"""Anchor of the events of a resume, which belong to no step and not to the pattern."""
MAX_TOOL_CONTENT = 64 * 1024
"""Characters of the content of a call that a live event shows."""
FinishReason = Literal["stop", "tool", "length", "content_filter", "cancelled", "error"]


@value(slots=False)
class CorrelationContext:
    """Ids that link an event to its execution and span [boundary seed].

    `trace_id` is 32 hex digits, span ids are 16. `caused_by` is the tool call or step that led here, `step_name` the
    plan step in which it happened.
    """

    request_id: RequestId
    session_id: SessionId | None
    trace_id: TraceId
    span_id: SpanId
    parent_span_id: SpanId | None
    caused_by: str | None = None
    step_name: str | None = None

    def caused(self, span_id: SpanId, cause: SpanId) -> "CorrelationContext":
        """Return the context of a span within the one that caused it."""
        return CorrelationContext(
            self.request_id, self.session_id, self.trace_id, span_id, cause, cause, self.step_name
        )

    def child(self, span_id: SpanId, caused_by: str | None = None) -> "CorrelationContext":
        """Return the context of a span within this one."""
        return CorrelationContext(
            self.request_id, self.session_id, self.trace_id, span_id, self.span_id, caused_by, self.step_name
        )


@value(slots=False)
class LifecycleTransition:
    """Change of the execution's state. The first one has no `from_state`."""

    type: ClassVar[str] = "lifecycle.transition"
    from_state: State | None
    to_state: State
    attempt: int
    reason: str


@value(slots=False)
class FallbackTransition:
    """Change of the fallback machine of one inference; `segment` is the attempt concerned, if there is one."""

    type: ClassVar[str] = "fallback.transition"
    from_state: FsmState
    to_state: FsmState
    fsm_event: FsmEvent
    provider: str | None
    model: str | None
    retry_count: int
    reason: str
    segment: str | None
    deployment: str | None = None


@value(slots=False)
class StageEnd:
    """End of a pipeline stage."""

    type: ClassVar[str] = "stage.end"
    stage: str
    duration_ms: float
    outcome: str


@value(slots=False)
class ContextAssembled:
    """The context of the first inference, if more than the request is in it: tokens of each term, and what was cut,
    redacted, chosen and retrieved. It has ids and counts and never a text.
    """

    type: ClassVar[str] = "context.assembled"
    terms: ContextTerms
    cut: HistoryCut
    redacted: Mapping[str, int]
    skills: tuple[UsedSkill, ...]
    excluded: tuple[ExcludedSkill, ...]
    chunks: tuple[ContextChunk, ...]


@value(slots=False)
class GuardEnd:
    """End of a guard: the action that it takes if it trips, and if it did."""

    type: ClassVar[str] = "guard.end"
    guard: str
    action: GuardAction
    tripped: bool


@value(slots=False)
class InferenceStart:
    """Start of an attempt on a provider. `replica` is None outside redundant mode."""

    type: ClassVar[str] = "inference.start"
    segment: str
    message_count: int
    tool_defs_count: int
    schema_present: bool
    grammar_present: bool
    temperature: float | None
    provider: str
    model: str
    replica: int | None = None
    deployment: str | None = None


@value(slots=False)
class InferenceDelta:
    """Piece of an answer. `offset` is the number of characters of its kind before it in the segment.

    `value` is the partial value of a structured answer; `offset` is then the number of characters it was read from.
    """

    type: ClassVar[str] = "inference.delta"
    segment: str
    offset: int
    text: str | None = None
    reasoning: str | None = None
    value: Any = None


@value(slots=False)
class InferenceRetracted:
    """Withdrawal of the streamed content of a segment; another attempt follows."""

    type: ClassVar[str] = "inference.retracted"
    segment: str


@value(slots=False)
class InferenceEnd:
    """End of an attempt on a provider."""

    type: ClassVar[str] = "inference.end"
    segment: str
    duration_ms: float
    tokens_in: int
    tokens_out: int
    finish_reason: FinishReason
    tool_call_count: int
    tool_call_ids: tuple[ToolCallId, ...] = ()
    """The calls that the reply asks for."""
    tokens_cached: int = 0
    tokens_cache_written: int = 0
    tokens_reasoning: int = 0
    cost: float | None = None
    """The input tokens that the provider read from and wrote to a cache, the output tokens of reasoning, and the cost,
    if the engine has prices.
    """


@value(slots=False)
class ToolStart:
    """Start of an attempt at a tool call."""

    type: ClassVar[str] = "tool.start"
    tool_name: str
    tool_call_id: ToolCallId
    args_hash: str
    replica: int | None = None
    """The branch where several replicas answer."""
    client: bool = False
    """True if the client runs the tool."""


@value(slots=False)
class ToolContent:
    """Arguments of a tool call as it starts, or its result as it ends. Live only: never stored, never logged."""

    type: ClassVar[str] = "tool.content"
    tool_call_id: ToolCallId
    arguments: Any = None
    result: str | None = None
    client: bool = False
    """True if the client runs the tool."""


@value(slots=False)
class ToolProgress:
    """Progress of a tool call from 0 to 1, as its tool reports it. Live only: never stored, never logged."""

    type: ClassVar[str] = "tool.progress"
    tool_name: str
    tool_call_id: ToolCallId
    progress: float
    message: str = ""


@value(slots=False)
class ToolEnd:
    """End of an attempt at a tool call."""

    type: ClassVar[str] = "tool.end"
    tool_name: str
    tool_call_id: ToolCallId
    duration_ms: float
    success: bool
    error_code: Code | None


@value(slots=False)
class ConstraintRepaired:
    """Repairs or respellings that made an answer match its format; each has `action`, `path` and `times`.

    `replica` is None outside redundant mode.
    """

    type: ClassVar[str] = "constraint.repaired"
    attempt: int
    repairs: tuple[Any, ...]
    replica: int | None = None


@value(slots=False)
class ValidationEnd:
    """Result of a validation.

    Rules never quote the answer, but a judge may. `replica` is None outside redundant mode.
    """

    type: ClassVar[str] = "validation.end"
    attempt: int
    valid: bool
    errors: tuple[Any, ...]
    warnings: tuple[Any, ...]
    replica: int | None = None


@value(slots=False)
class PlanCreated:
    """The plan to run; each step has `name`, `type` and `depends_on`, the names of its predecessors.

    A refined plan, which replaces the one before it, and the plan of a `subplan` step each have an event of their own.
    """

    type: ClassVar[str] = "plan.created"
    planner_id: str
    steps: tuple[Mapping[str, Any], ...]


@value(slots=False)
class VoteCast:
    """Vote of a replica, or its failure without one. The event does not contain the vote."""

    type: ClassVar[str] = "vote.cast"
    replica: int
    status: Literal["voted", "failed"]
    error_code: Code | None


@value(slots=False)
class VoteDecided:
    """End of a vote: the `votes` of the winner or a failure, early if some `replicas` were cancelled.

    `replica` is the first one that gave the winning answer. `confidence` is between 0 and 1.
    """

    type: ClassVar[str] = "vote.decided"
    replicas: int
    voted: int
    failed: int
    stopped_early: bool
    votes: int | None
    confidence: float | None
    replica: int | None
    error_code: Code | None


@value(slots=False)
class StepStart:
    """Start of an attempt at a plan step; attempts are counted from 1. Several passes over a plan are, too."""

    type: ClassVar[str] = "step.start"
    step_type: str
    attempt: int
    pass_number: int | None = None


@value(slots=False)
class StepEnd:
    """End of an attempt at a plan step, or its cut-off by the end of the execution. Another may follow a failed one."""

    type: ClassVar[str] = "step.end"
    step_type: str
    attempt: int
    status: StepStatus
    duration_ms: float
    error_code: Code | None
    pass_number: int | None = None


@value(slots=False)
class PassEnd:
    """End of a pass over a plan: the scores of the assessment, between 0 and 1, and the verdict.

    An assessment that could not be read has no scores. `reasons` are codes of everything that spoke against
    convergence. `ttl_remaining` is the number of passes that are left.
    """

    type: ClassVar[str] = "pass.end"
    pass_number: int
    converged: bool
    completeness: float | None
    coherence: float | None
    consistent: bool
    reasons: tuple[str, ...]
    ttl_remaining: int


@value(slots=False)
class NodeStart:
    """Start of the function of a flow's node."""

    type: ClassVar[str] = "node.start"
    node: str


@value(slots=False)
class FlowStep:
    """Step of a flow: a node put out what follows, waits for an answer, or put out the flow's result."""

    type: ClassVar[str] = "flow.step"
    node: str
    outcome: Literal["continue", "suspend", "done"]


@value(slots=False)
class RetrievalStart:
    """Start of a search of the memory, for at most `top_k` chunks of documents."""

    type: ClassVar[str] = "retrieval.start"
    top_k: int


@value(slots=False)
class RetrievalEnd:
    """End of a search of the memory: how many chunks were found, and the state of each of its two legs.

    A leg is `skipped` if there was nothing to search, or no room in the context for what it could find.
    """

    type: ClassVar[str] = "retrieval.end"
    top_k: int
    found: int
    lexical: LegState
    vector: LegState
    duration_ms: float


@value(slots=False)
class ExecutionSuspended:
    """Suspension of the execution: nothing can run until the open suspensions are answered."""

    type: ClassVar[str] = "execution.suspended"
    suspensions: tuple[Suspension, ...]
    response: SystemResponse


@value(slots=False)
class ExecutionResumed:
    """Answer to an open suspension; the execution continues when none is left."""

    type: ClassVar[str] = "execution.resumed"
    suspension_id: SuspensionId
    kind: SuspensionKind
    tool_id: str
    resumed_by: str


@value(slots=False)
class ApprovalGiven:
    """Approval of a call that more than one user must approve; `given` of the `needed` have."""

    type: ClassVar[str] = "approval.given"
    suspension_id: SuspensionId
    user: UserId
    given: int
    needed: int


@value(slots=False)
class ExecutionCompleted:
    """Terminal event of an execution that ended with an answer."""

    type: ClassVar[str] = "execution.completed"
    response: SystemResponse


@value(slots=False)
class ExecutionFailed:
    """Terminal event of an execution that ended with a failure."""

    type: ClassVar[str] = "execution.failed"
    response: SystemResponse


@value(slots=False)
class ExecutionCancelled:
    """Terminal event of an execution that a client, a signal or the deadline ended."""

    type: ClassVar[str] = "execution.cancelled"
    response: SystemResponse


TerminalEvent: TypeAlias = ExecutionCompleted | ExecutionFailed | ExecutionCancelled
TERMINAL_EVENTS: frozenset[type[Any]] = frozenset({ExecutionCompleted, ExecutionFailed, ExecutionCancelled})
"""No event follows one of these."""
RESTING_EVENTS = TERMINAL_EVENTS | {ExecutionSuspended}
"""No event follows one of these unless a suspension is answered."""
Event: TypeAlias = (
    LifecycleTransition
    | FallbackTransition
    | StageEnd
    | ContextAssembled
    | GuardEnd
    | InferenceStart
    | InferenceRetracted
    | InferenceEnd
    | ToolStart
    | ToolEnd
    | ConstraintRepaired
    | ValidationEnd
    | PlanCreated
    | VoteCast
    | VoteDecided
    | StepStart
    | StepEnd
    | PassEnd
    | NodeStart
    | FlowStep
    | RetrievalStart
    | RetrievalEnd
    | ExecutionSuspended
    | ExecutionResumed
    | ApprovalGiven
    | TerminalEvent
)
"""Every event that is numbered and stored; a `LiveEvent` is neither."""
LiveEvent: TypeAlias = InferenceDelta | ToolContent | ToolProgress


class StoredEvent(NamedTuple):
    """Event in the log of its execution, numbered from 1 without gaps. `at` is in Unix seconds."""

    sequence_number: int
    at: float
    anchor: str
    correlation: CorrelationContext
    event: Event


class InheritedEvent(StoredEvent):
    """Event of a step that a fork inherits. It happened in the origin, so it is not counted again."""

    __slots__ = ()


UnnumberedEvent: TypeAlias = tuple[str, CorrelationContext, Event]
"""The anchor of an event (the step it belongs to), its correlation, and the event, as they are put into the journal."""


class LiveDelta(NamedTuple):
    """Delta on its way to subscribers; it is not stored."""

    at: float
    correlation: CorrelationContext
    event: LiveEvent


def format_timestamp(at: float) -> str:
    """Return Unix seconds as RFC 3339 in UTC, with microseconds, rounded as `datetime.fromtimestamp` does it."""
    fraction, seconds = modf(at)
    more, microseconds = divmod(round(fraction * 1_000_000), 1_000_000)
    return f"{_second(int(seconds) + more)}.{microseconds:06d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


EVENT_TYPES: tuple[type[Any], ...] = (
    LifecycleTransition,
    FallbackTransition,
    StageEnd,
    ContextAssembled,
    GuardEnd,
    InferenceStart,
    InferenceDelta,
    InferenceRetracted,
    InferenceEnd,
    ToolStart,
    ToolContent,
    ToolProgress,
    ToolEnd,
    ConstraintRepaired,
    ValidationEnd,
    PlanCreated,
    VoteCast,
    VoteDecided,
    StepStart,
    StepEnd,
    PassEnd,
    NodeStart,
    FlowStep,
    RetrievalStart,
    RetrievalEnd,
    ExecutionSuspended,
    ExecutionResumed,
    ApprovalGiven,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionCancelled,
)
STORED_EVENT_TYPES: frozenset[type[Any]] = frozenset(EVENT_TYPES) - frozenset(get_args(LiveEvent))
EVENT_FIELDS: Mapping[type[Any], tuple[str, ...]] = MappingProxyType(
    {kind: tuple(field.name for field in fields(kind)) for kind in EVENT_TYPES}
)
WIRE_NAMES: Mapping[str, str] = MappingProxyType({"pass_number": "pass"})
"""Names that clients see for fields whose own name cannot be theirs."""
