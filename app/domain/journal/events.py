"""The closed union of events: what the core says while it runs.

The core never logs, measures or traces; it emits these. An event says only what happened. `Recorded` is an event in
its execution's log, with its number and its correlation; a delta is live only and has no number. These envelopes are
named tuples, since one or two are made for every event and a frozen dataclass takes three times as long to make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from app.domain.contract.response import StepStatus, Suspension, SuspensionKind, SystemResponse
from app.domain.failures import Code
from app.domain.fallback import Event as FsmEvent
from app.domain.fallback import State as FsmState
from app.domain.ids import RequestId, SessionId, SpanId, SuspensionId, ToolCallId, TraceId
from app.domain.journal.fork import Fork
from app.domain.lifecycle import State

INIT_ANCHOR = "init"
END_ANCHOR = "end"
"""Anchors of the first and the last events, which hang behind no step."""
FinishReason = Literal["stop", "tool", "length", "content_filter", "cancelled", "error"]


@dataclass(frozen=True)
class CorrelationContext:
    """The ids that link an event to its execution and span [boundary seed].

    `trace_id` is 32 hex digits, span ids 16. `caused_by` is the tool call or step that led here, `step_name` the step
    of a plan that it happens in.
    """

    request_id: RequestId
    session_id: SessionId | None
    trace_id: TraceId
    span_id: SpanId
    parent_span_id: SpanId | None
    caused_by: str | None = None
    step_name: str | None = None

    def child(self, span_id: SpanId, caused_by: str | None = None) -> "CorrelationContext":
        """That of a span of its own within this one."""
        return CorrelationContext(
            self.request_id, self.session_id, self.trace_id, span_id, self.span_id, caused_by, self.step_name
        )


@dataclass(frozen=True)
class LifecycleTransition:
    """The execution moved; the first has no `from_state`."""

    type: ClassVar[str] = "lifecycle.transition"
    from_state: State | None
    to_state: State
    attempt: int
    reason: str


@dataclass(frozen=True)
class FallbackTransition:
    """The fallback machine of one inference moved; `segment` is the attempt it speaks of, if there is one."""

    type: ClassVar[str] = "fallback.transition"
    from_state: FsmState
    to_state: FsmState
    fsm_event: FsmEvent
    provider: str | None
    model: str | None
    retry_count: int
    reason: str
    segment: str | None


@dataclass(frozen=True)
class StageEnd:
    """A stage of the pipeline ended."""

    type: ClassVar[str] = "stage.end"
    stage: str
    duration_ms: float
    outcome: str


@dataclass(frozen=True)
class InferenceStart:
    """One attempt on one provider begins; `replica` is absent where there are none."""

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


@dataclass(frozen=True)
class InferenceDelta:
    """A piece of an answer as it arrives; `offset` is the characters of its kind before it in the segment.

    With `value`, what a structured answer's value is so far, it is the characters that value was read from.
    """

    type: ClassVar[str] = "inference.delta"
    segment: str
    offset: int
    text: str | None = None
    reasoning: str | None = None
    value: Any = None


@dataclass(frozen=True)
class InferenceRetracted:
    """What was streamed in the segment is void; another attempt follows."""

    type: ClassVar[str] = "inference.retracted"
    segment: str


@dataclass(frozen=True)
class InferenceEnd:
    """The attempt ended."""

    type: ClassVar[str] = "inference.end"
    segment: str
    duration_ms: float
    tokens_in: int
    tokens_out: int
    finish_reason: FinishReason
    tool_call_count: int


@dataclass(frozen=True)
class ToolStart:
    """One attempt at one tool call begins."""

    type: ClassVar[str] = "tool.start"
    tool_name: str
    tool_call_id: ToolCallId
    args_hash: str


@dataclass(frozen=True)
class ToolEnd:
    """The attempt ended."""

    type: ClassVar[str] = "tool.end"
    tool_name: str
    tool_call_id: ToolCallId
    duration_ms: float
    success: bool
    error_code: Code | None


@dataclass(frozen=True)
class ConstraintRepaired:
    """An answer was repaired, or respelled, to keep its form; each repair has `action`, `path` and `times`.

    `replica` is absent where there are none.
    """

    type: ClassVar[str] = "constraint.repaired"
    attempt: int
    repairs: tuple[Any, ...]
    replica: int | None = None


@dataclass(frozen=True)
class ValidationEnd:
    """An answer was judged. Rules never quote what was said, a judge may. `replica` is absent where there are none."""

    type: ClassVar[str] = "validation.end"
    attempt: int
    valid: bool
    errors: tuple[Any, ...]
    warnings: tuple[Any, ...]
    replica: int | None = None


@dataclass(frozen=True)
class PlanCreated:
    """The plan that will run is there; each step has `name`, `type` and `depends_on`, the names of those before it."""

    type: ClassVar[str] = "plan.created"
    planner_id: str
    steps: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class VoteCast:
    """A replica voted, or failed and has no vote; what it voted for is not told."""

    type: ClassVar[str] = "vote.cast"
    replica: int
    status: Literal["voted", "failed"]
    error_code: Code | None


@dataclass(frozen=True)
class VoteDecided:
    """The vote ended, early when some of the `replicas` were called off: with the `votes` of the winner, or a failure.

    `replica` is the lowest that gave the winning answer whole. `confidence` is a share of 1.
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


@dataclass(frozen=True)
class StepStart:
    """An attempt at a step of a plan begins; attempts are counted from 1."""

    type: ClassVar[str] = "step.start"
    step_type: str
    attempt: int


@dataclass(frozen=True)
class StepEnd:
    """The attempt ended; when it failed, another may follow. It is told of one that the execution's end cut off too."""

    type: ClassVar[str] = "step.end"
    step_type: str
    attempt: int
    status: StepStatus
    duration_ms: float
    error_code: Code | None


@dataclass(frozen=True)
class ExecutionSuspended:
    """Nothing can run until the open questions are answered."""

    type: ClassVar[str] = "execution.suspended"
    suspensions: tuple[Suspension, ...]
    response: SystemResponse


@dataclass(frozen=True)
class ExecutionResumed:
    """Somebody answered an open question; the execution goes on when none is left."""

    type: ClassVar[str] = "execution.resumed"
    suspension_id: SuspensionId
    kind: SuspensionKind
    tool_id: str
    resumed_by: str


@dataclass(frozen=True)
class ExecutionCompleted:
    """Terminal: it ended with an answer."""

    type: ClassVar[str] = "execution.completed"
    response: SystemResponse


@dataclass(frozen=True)
class ExecutionFailed:
    """Terminal: it ended with a failure."""

    type: ClassVar[str] = "execution.failed"
    response: SystemResponse


@dataclass(frozen=True)
class ExecutionCancelled:
    """Terminal: a client, a signal or the deadline ended it."""

    type: ClassVar[str] = "execution.cancelled"
    response: SystemResponse


TerminalEvent: TypeAlias = ExecutionCompleted | ExecutionFailed | ExecutionCancelled
TERMINAL_EVENTS: frozenset[type[Any]] = frozenset({ExecutionCompleted, ExecutionFailed, ExecutionCancelled})
"""After one of these there is nothing more."""
RESTING_EVENTS = TERMINAL_EVENTS | {ExecutionSuspended}
"""After one of these nothing more happens by itself."""
Event: TypeAlias = (
    LifecycleTransition
    | FallbackTransition
    | StageEnd
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
    | ExecutionSuspended
    | ExecutionResumed
    | TerminalEvent
)
"""Everything that is numbered and kept. `InferenceDelta` is neither."""


class StoredEvent(NamedTuple):
    """An event in its execution's log: numbered from 1 without gaps. `at` is Unix seconds."""

    sequence_number: int
    at: float
    anchor: str
    correlation: CorrelationContext
    event: Event


class InheritedEvent(StoredEvent):
    """One that tells again what a fork keeps: its origin did it, so nothing of it is counted a second time."""

    __slots__ = ()


UnnumberedEvent: TypeAlias = tuple[str, CorrelationContext, Event]
"""The step that an event hangs behind, what is told with it, the event: what the execution hands to the journal."""


class LiveDelta(NamedTuple):
    """A delta on its way to whoever is watching; never kept."""

    at: float
    correlation: CorrelationContext
    event: InferenceDelta


def number_events(
    told: Sequence[UnnumberedEvent], first: int, at: float, fork: Fork | None = None
) -> list[StoredEvent]:
    """The events of one commit, numbered on from the first; those of what the `fork` keeps are `Kept`."""
    return [
        (StoredEvent if fork is None or not fork.inherits(anchor) else InheritedEvent)(
            number, at, anchor, correlation, event
        )
        for number, (anchor, correlation, event) in enumerate(told, first)
    ]


def format_timestamp(at: float) -> str:
    """Unix seconds as RFC 3339 UTC with microseconds."""
    seconds, microseconds = divmod(round(at * 1_000_000), 1_000_000)
    return f"{_second(seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


EVENT_TYPES: tuple[type[Any], ...] = (
    LifecycleTransition,
    FallbackTransition,
    StageEnd,
    InferenceStart,
    InferenceDelta,
    InferenceRetracted,
    InferenceEnd,
    ToolStart,
    ToolEnd,
    ConstraintRepaired,
    ValidationEnd,
    PlanCreated,
    VoteCast,
    VoteDecided,
    StepStart,
    StepEnd,
    ExecutionSuspended,
    ExecutionResumed,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionCancelled,
)
EVENT_FIELDS: Mapping[type[Any], tuple[str, ...]] = MappingProxyType(
    {kind: tuple(field.name for field in fields(kind)) for kind in EVENT_TYPES}
)
