"""Response contract: `SystemResponse` and its parts."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.contract.constrained_types import ConfidenceSource, FormatEnforcement, UnitInterval
from app.domain.failures import Category, Code, Failure
from app.domain.ids import RequestId, SessionId, SuspensionId, ToolCallId, TraceId
from app.domain.lifecycle import Mode, State

Durability = Literal["memory", "journaled"]


Json: TypeAlias = Any
"""A JSON value of ours, which was read strictly: to check it once more would take longer than that."""


class _Outbound(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TokenUsage(_Outbound):
    """Tokens over all attempts: output includes reasoning, input includes cached."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_tokens: int = Field(0, ge=0, description="Tokens read.")
    output_tokens: int = Field(0, ge=0, description="Tokens written.")
    reasoning_tokens: int = Field(0, ge=0, description="Tokens of output spent on reasoning.")
    cached_tokens: int = Field(0, ge=0, description="Tokens of input read from a cache.")
    total_tokens: int = Field(0, ge=0, description="Input and output together.")
    estimated: bool = Field(False, description="Whether any part is an estimate of ours.")

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            estimated=self.estimated or other.estimated,
        )


class Cost(_Outbound):
    """What the tokens cost by the configured prices."""

    amount: float = Field(ge=0, description="The amount.")
    currency: str = Field(description="ISO 4217.")


class SystemError(_Outbound):
    """A failure as clients see it; `code` is for programs, `message` for people."""

    code: Code = Field(description="Stable error code.")
    category: Category = Field(description="Category of the failure taxonomy.")
    retryable: bool = Field(description="Whether sending it again may help.")
    message: str = Field(description="What happened, for people; never echoes input.")
    details: dict[str, Any] = Field(default_factory=dict, description="Facts for programs.")
    caused_by: str | None = Field(None, description="The code or kind of what caused it.")

    @classmethod
    def of(cls, failure: Failure) -> "SystemError":
        """The failure as clients see it; how long to wait, in seconds, stands in `details.retry_after`."""
        cause = failure.__cause__
        wait = {} if failure.retry_after is None else {"retry_after": failure.retry_after}
        return cls(
            code=failure.code,
            category=failure.category,
            retryable=failure.retryable,
            message=failure.message,
            details={**failure.details, **wait},
            caused_by=None if cause is None else cause.code if isinstance(cause, Failure) else type(cause).__name__,
        )


class ToolCallMade(_Outbound):
    """One tool call the model asked for, refused ones included."""

    id: str = Field(description="The provider's id of the call, ours where it gave none.")
    name: str = Field(description="The tool's name as the model wrote it.")
    arguments: dict[str, Any] = Field(description="The arguments by name.")
    result: str = Field(description="The text the model saw.")
    is_error: bool = Field(description="Whether the result is an error text.")
    attempts: int = Field(ge=0, description="How often the tool ran.")
    duration_ms: float = Field(ge=0, description="Milliseconds over all attempts.")
    step_name: str | None = Field(None, description="The plan step it belongs to.")


class ValidationResult(_Outbound):
    """What validation found."""

    valid: bool = Field(description="The verdict.")
    errors: list[JsonValue] = Field(default_factory=list, description="What failed.")
    warnings: list[JsonValue] = Field(default_factory=list, description="What is doubtful.")
    repairs: list[JsonValue] = Field(default_factory=list, description="What was repaired.")
    attempts: int = Field(1, ge=1, description="Attempts made.")


class StepStatus(StrEnum):
    """How a step of a plan stands.

    It is skipped where a step that it depends on did not complete, cancelled where it was cut off or the execution
    ended before it, and pending only while the execution is suspended.
    """

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class StepReport(_Outbound):
    """One plan step as it ended."""

    name: str = Field(description="The step's name.")
    type: str = Field(description="The step's type.")
    status: StepStatus = Field(description="How it ended.")
    output: Json = Field(None, description="Its output.")
    error: SystemError | None = Field(None, description="Its failure.")


class PlanTrace(_Outbound):
    """Where a plan came from."""

    planner_id: str = Field(description="The planner.")
    rationale: str = Field(description="Why these steps.")
    created_at: datetime = Field(description="When.")
    step_count: int = Field(ge=0, description="How many steps.")


class PlanReport(_Outbound):
    """The plan that ran."""

    steps: list[StepReport] = Field(description="The steps in plan order.")
    trace: PlanTrace = Field(description="Where the plan came from.")


class VoteReport(_Outbound):
    """The vote that was held."""

    candidates: list[Json] = Field(description="The replicas' values.")
    tally: list[Json] = Field(description="Votes by value.")
    fields: dict[str, Json] | None = Field(None, description="Votes by JSON path.")
    stopped_early: bool = Field(description="Whether replicas were cancelled.")


class SuspensionKind(StrEnum):
    """What a suspended execution waits for."""

    QUESTION = "question"
    FLOW = "flow"
    APPROVAL = "approval"
    UNKNOWN_OUTCOME = "unknown_outcome"


class Suspension(_Outbound):
    """One open question of a suspended execution."""

    suspension_id: SuspensionId = Field(description="Names this suspension.")
    kind: SuspensionKind = Field(description="What is waited for.")
    tool_id: str = Field(description="What a resume names.")
    tool_call_id: ToolCallId | None = Field(None, description="The call that waits.")
    value: JsonValue = Field(description="The question.")
    arguments_digest: str | None = Field(None, description="Digest of the arguments an approval is bound to.")
    expires_at: datetime = Field(description="When it expires.")


class ResponseMetadata(_Outbound):
    """How the answer came about."""

    provider: str | None = Field(None, description="The configured engine that answered last.")
    model: str | None = Field(None, description="The model as that provider names it.")
    finish_reason: str | None = Field(None, description="Why the last answer ended.")
    tool_rounds: int = Field(0, ge=0, description="Tool rounds run.")
    fallback_attempts: int = Field(0, ge=0, description="Attempts beyond the first of each inference.")
    truncated_history: bool = Field(False, description="Whether history was cut.")
    left_out: list[str] = Field(default_factory=list, description="What a provider could not be given.")
    kept_by: FormatEnforcement | None = Field(None, description="How the answer was kept to the form asked for.")
    durability: Durability = Field("memory", description="What survives the process.")
    client: dict[str, str] = Field(default_factory=dict, description="The request's own metadata.")


class SystemResponse(_Outbound):
    """One answer of the system, failures included."""

    request_id: RequestId = Field(description="The request's id.")
    session_id: SessionId | None = Field(None, description="The session's id.")
    trace_id: TraceId = Field(description="The trace's id.")
    mode: Mode = Field(description="Which pattern ran.")
    state: State = Field(description="Where the execution stands.")
    content: str | None = Field(None, description="The answer's text; partial beside an error.")
    structured_output: Json = Field(None, description="The answer's value where a form was asked for.")
    tool_calls_made: list[ToolCallMade] = Field(default_factory=list, description="Every call, in order.")
    confidence: UnitInterval | None = Field(None, description="How sure the answer is.")
    confidence_source: ConfidenceSource | None = Field(None, description="Where the confidence comes from.")
    validation_result: ValidationResult | None = Field(None, description="What validation found.")
    token_usage: TokenUsage = Field(default_factory=TokenUsage, description="Tokens over all attempts.")
    cost: Cost | None = Field(None, description="Cost, where prices are configured.")
    plan: PlanReport | None = Field(None, description="Plan mode.")
    vote: VoteReport | None = Field(None, description="Redundant mode.")
    final_answer: dict[str, JsonValue] | None = Field(None, description="Multi-pass reasoning and salvage.")
    suspensions: list[Suspension] = Field(default_factory=list, description="Open questions.")
    metadata: ResponseMetadata = Field(default_factory=ResponseMetadata, description="How it came about.")
    error: SystemError | None = Field(None, description="The failure that ended it.")


NO_USAGE = TokenUsage()
