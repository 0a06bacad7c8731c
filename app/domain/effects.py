"""The closed union of effects' outcomes, what a step is keyed by, and how a journal knows it again.

A step's key alternates ordinals (from 0) and branches: `2/1/0` is the first effect of branch 1 of the third step.
Inferences and tool calls are compositions: their attempts are `k/0`, `k/1`, …, and the wait after attempt i is
`k/i/0`. The plan stands under `plan`, the result of PREPARE under `prepare`,
the decision to stop under `stop`, the decision that some branches of a gather are enough, or that the time of a branch
has passed, under the key of what they belong to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, TypeAlias

from pydantic import JsonValue

from app.domain.boundary import Durability, ExecutionHints, PlanStep, SystemRequest, TokenUsage
from app.domain.failures import Code, Failure, failure
from app.domain.fields import Way
from app.domain.forks import Fork
from app.domain.frozen import dataclass
from app.domain.lifecycle import Mode
from app.domain.messages import Message, ModelMessage, ToolCall
from app.domain.tools import OfferedTool, ToolDefinition

PLAN = "plan"
PREPARE = "prepare"
STOP = "stop"
NO_USAGE = TokenUsage()


class Reason(StrEnum):
    """Why an attempt on a provider failed; every foreign error is translated into one of these."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    BROKEN = "broken"
    MALFORMED = "malformed"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    CREDENTIALS = "credentials"
    QUOTA = "quota"
    MODEL_MISSING = "model_missing"
    BREAKER_OPEN = "breaker_open"
    CONTEXT_EXCEEDED = "context_exceeded"
    REFUSED = "refused"
    CONTENT_FILTERED = "content_filtered"
    OVER_BUDGET = "over_budget"


@dataclass(frozen=True)
class StageTrace:
    """One stage of the pipeline as it ended."""

    stage: str
    duration_ms: float
    outcome: str = "ok"


@dataclass(frozen=True)
class Bounds:
    """The limits in force for one execution, the request's and the configured ones together.

    Seconds, counts, tokens, and cost in the configured currency.
    """

    timeout: float
    tool_rounds: int
    calls_per_reply: int
    max_retries: int
    attempts: int = 1
    replicas: int = 16
    plan_steps: int = 50
    tokens: int | None = None
    cost: float | None = None
    history_messages: int = 50
    history_tokens: int = 8_000


@dataclass(frozen=True)
class Prepared:
    """What PREPARE found: the conversation to begin with, and the tools that may be offered.

    `said_before` counts the messages of the session, whether they are part of it or not.
    """

    messages: tuple[ModelMessage | Message, ...]
    tools: tuple[str, ...]
    truncated_history: bool
    stages: tuple[StageTrace, ...]
    said_before: int = 0


@dataclass(frozen=True)
class Plannable:
    """Outcome: no plan is there yet, and these tools one may call; each has a name, a description and parameters.

    `told` is the conversation where it began before the request.
    """

    tools: tuple[Mapping[str, Any], ...]
    told: tuple[ModelMessage | Message, ...] = ()


@dataclass(frozen=True)
class Planned:
    """Outcome: the plan that will run, which planner made it and why."""

    steps: tuple[PlanStep, ...]
    planner_id: str
    rationale: str


@dataclass(frozen=True)
class Form:
    """The form that an answer must have: a JSON Schema 2020-12, a GBNF grammar, or both."""

    schema: Mapping[str, Any] | None = None
    grammar: str | None = None


NO_FORM = Form()


@dataclass(frozen=True)
class Candidate:
    """One provider an inference may try: the engine's configured name and the model it stands for.

    `price` is per million input and output tokens, where one is configured; `withheld` names what the request holds
    that this provider is not given. `way` is how it is kept to the answer's form, where there is one.
    """

    provider: str
    model: str
    price: tuple[float, float] | None = None
    withheld: tuple[str, ...] = ()
    way: Way | None = None

    @property
    def fingerprint(self) -> str:
        """What a journal knows an attempt on it again by."""
        return f"attempt:{self.provider}:{self.model}"


@dataclass(frozen=True)
class Offered:
    """What one inference begins with: tools available now, candidates in order, tool results cut to fit.

    `cut` are indexes into the conversation. `left_out` are candidates not to be tried, because their breaker is open;
    `closed_for` is how many seconds the first of them stays so.
    """

    tools: tuple[OfferedTool, ...]
    candidates: tuple[Candidate, ...]
    left_out: tuple[Candidate, ...] = ()
    closed_for: float = 0.0
    cut: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reply:
    """A whole answer of a model, in no provider's dialect.

    `finish_reason` is stop, tool or length; `raw_finish` is the provider's own word where it is none of these. `kept`
    is what only this provider can read and wants to be told again. `withheld` names, by dotted name, what the call held
    and the request did not, since the provider or its model would have refused it.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    raw_finish: str
    usage: TokenUsage
    model: str
    reasoning: str = ""
    kept: tuple[dict[str, Any], ...] = ()
    withheld: tuple[str, ...] = ()

    def message(self, provider: str) -> Message:
        """The answer of that provider as the next inference is told it."""
        said = {"role": "assistant", "content": self.text, "tool_calls": list(self.tool_calls) or None}
        return ModelMessage(**said, provider=provider, kept=list(self.kept)) if self.kept else Message(**said)


@dataclass(frozen=True)
class Replied:
    """Outcome: the provider answered."""

    reply: Reply
    duration_ms: float


@dataclass(frozen=True)
class AttemptFailed:
    """Outcome: the provider did not. `retry_after` is what it asked for, `wait` what was granted; both seconds.

    `wait` is None when this provider is to be left. `streamed` says whether a delta was published, `partial` holds
    the text of it. `details` are facts for programs.
    """

    reason: Reason
    message: str
    wait: float | None
    retry_after: float | None
    streamed: bool
    partial: str
    usage: TokenUsage
    duration_ms: float
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolEnded:
    """Outcome: one tool attempt ended.

    `retry` says whether a second attempt was granted, `ran` whether the tool was run at all or the call refused.
    """

    content: str
    is_error: bool
    code: Code | None
    duration_ms: float
    retry: bool = False
    ran: bool = True


@dataclass(frozen=True)
class ToolAsked:
    """Outcome: a tool attempt ended with a question to somebody outside, whose answer is the call's result."""

    value: JsonValue
    duration_ms: float


@dataclass(frozen=True)
class Slept:
    """Outcome: the wait is over."""


@dataclass(frozen=True)
class Answered:
    """Outcome: a person, or whoever was asked, answered."""

    payload: JsonValue


@dataclass(frozen=True)
class Refused:
    """Outcome: a check said no before anything was done. Replay never repeats a check."""

    code: Code
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    condition: str | None = None
    retry_after: float | None = None
    stages: tuple[StageTrace, ...] = ()

    @classmethod
    def by(cls, cause: Failure, stages: tuple[StageTrace, ...] = ()) -> "Refused":
        """The failure as an outcome; `stages` are those that ended before it, when it was PREPARE that refused."""
        return cls(cause.code, cause.message, cause.details, cause.condition, cause.retry_after, stages)

    def failure(self) -> Failure:
        """The outcome as the failure it was."""
        raised = failure(self.code, self.message, details=self.details, condition=self.condition)
        raised.retry_after = self.retry_after
        return raised


@dataclass(frozen=True)
class CutOff:
    """Outcome: cancelled while it ran; what it had used and streamed until then."""

    duration_ms: float
    usage: TokenUsage = NO_USAGE
    partial: str = ""


def usage_of(outcome: Replied | AttemptFailed | CutOff) -> TokenUsage:
    """The tokens of an attempt."""
    return outcome.reply.usage if isinstance(outcome, Replied) else outcome.usage


@dataclass(frozen=True)
class Decided:
    """The decision, recorded before any branch is called off, that these branches of a gather are enough."""

    counted: tuple[int, ...]


@dataclass(frozen=True)
class Stopped:
    """The decision, recorded before anything is cancelled, that the execution ends: by a signal or its deadline."""

    code: Code
    message: str


Outcome: TypeAlias = (
    Plannable
    | Planned
    | Prepared
    | Offered
    | Replied
    | AttemptFailed
    | ToolEnded
    | ToolAsked
    | Slept
    | Answered
    | Refused
    | CutOff
    | Decided
    | Stopped
)


@dataclass(frozen=True)
class Row:
    """A recorded step. `at` is Unix seconds."""

    key: str
    fingerprint: str
    outcome: Outcome
    at: float


@dataclass(frozen=True)
class Header:
    """What an execution is, written before its first step.

    `bounds` are the limits in force, `currency` is that of the prices, `args_key` keys the hashes of tool arguments.
    `durability` is what it begins with: one held in memory becomes journaled before its first unsafe call.
    """

    execution_id: str
    request_id: str
    tenant: str
    trace_id: str
    parent_span_id: str | None
    mode: Mode
    pattern_version: int
    request: SystemRequest
    bounds: Bounds
    currency: str
    args_key: str
    created_at: float
    durability: Durability = "memory"
    fork: Fork | None = None


@dataclass(frozen=True)
class EngineCall:
    """What an engine is asked: a whole conversation, the tools offered, the hints.

    At most one of `schema` (JSON Schema) and `grammar` (GBNF) is set, and only for an engine that keeps it by itself.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    hints: ExecutionHints
    schema: Mapping[str, Any] | None = None
    grammar: str | None = None
