"""What crosses the boundary: one `SystemRequest` in, one `SystemResponse` out.

The shapes are those of the HTTP contract, version 1, which follows the boundary seed. Everything is validated
strictly: unknown fields are refused by name, and nothing is coerced.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from app.domain.failures import Category, Code, Failure
from app.domain.fields import (
    MOST_MESSAGES,
    MOST_REPLICAS,
    MOST_STEPS,
    ConfidenceSource,
    Identifier,
    Intent,
    Name,
    Names,
    Share,
    StopText,
    ToolName,
    TraceId,
    Way,
)
from app.domain.lifecycle import Mode, State
from app.domain.messages import Message, conversation_faults
from app.domain.rules import MOST_RULES, Rule, RuleName

Durability = Literal["memory", "journaled"]
Json: TypeAlias = Any
"""A JSON value of ours, which was read strictly: to check it once more would take longer than that."""


class _Inbound(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NamedTool(_Inbound):
    """The one tool that the model must call."""

    name: ToolName = Field(description="A tool's name.")


class ExecutionHints(_Inbound):
    """Tuning of the inferences. An absent hint leaves the engine's own default; `temperature: 0` is greedy."""

    max_tokens: int | None = Field(None, ge=1, le=1_000_000, description="Most tokens of one answer.")
    timeout: float | None = Field(None, gt=0, description="Seconds of running time for the whole execution.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling.")
    stop: StopText | Annotated[list[StopText], Field(min_length=1, max_length=16)] | None = Field(
        None, description="Text, or texts, that end the answer."
    )
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Seed for engines that sample reproducibly.")
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = Field(
        None, description="Whether the model may, must not or must call tools."
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Engine options; only keys on the engine's allow-list pass."
    )

    @property
    def demands_call(self) -> bool:
        """Whether the model must call a tool."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedTool)


class OutputContract(_Inbound):
    """The form the answer must have."""

    schema_: dict[str, JsonValue] | None = Field(None, alias="schema", description="JSON Schema 2020-12.")
    grammar: str | None = Field(None, description="GBNF when it contains `::=`, else a registered name.")
    repair_allowed: bool = Field(True, description="Whether broken JSON may be repaired.")
    strict_validation: bool = Field(False, description="Whether warnings fail too.")
    rules: list[RuleName | Rule] = Field([], max_length=MOST_RULES, description="Rules by name, or inline.")
    semantic: bool | Intent = Field(False, description="Whether a judge reads the answer, or the intent it judges by.")


class ContextOptions(_Inbound):
    """What is brought into the context beside the messages."""

    retrieve: bool = Field(False, description="Whether memory is searched.")
    max_chunks: int | None = Field(None, ge=1, le=1000, description="Most chunks to retrieve.")
    min_score: Share | None = Field(None, description="Lowest score of a chunk.")
    skills: Names | Literal["auto"] = Field(default_factory=list, description="Skills by name, or `auto`.")


class PlanPolicy(_Inbound):
    """What a plan may look like."""

    max_steps: int | None = Field(None, ge=1, description="Most steps.")
    allowed_step_types: Names | None = Field(None, description="Step types that may occur.")
    require_linear: bool = Field(False, description="Whether branches are refused.")
    timeout_per_step: float | None = Field(None, gt=0, description="Seconds a step may take.")


class PlanStep(BaseModel):
    """One step of an authored plan; further keys belong to its type."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name = Field(description="The step's name, unique in its plan.")
    type: Name = Field(description="The step's type.")
    input: JsonValue = Field(None, description="The step's input; absent means the output before it.")
    depends_on: Names | None = Field(None, description="Steps that must have ended before.")


class PlanOptions(_Inbound):
    """How plan mode plans and runs."""

    steps: list[PlanStep] | None = Field(
        None, max_length=MOST_STEPS, description="An authored plan; skips the planner."
    )
    policy: PlanPolicy | None = Field(None, description="What the plan may look like.")
    passes: int = Field(1, ge=1, description="Most passes; 1 means no multi-pass reasoning.")


class RedundancyOptions(_Inbound):
    """How redundant mode votes."""

    n: int = Field(3, ge=1, description="Replicas.")
    voting: Literal["majority", "unanimity", "field_majority"] = Field("majority", description="How votes count.")
    quorum: int | None = Field(None, ge=1, description="Fewest votes for the winner.")
    min_confidence: Share | None = Field(None, description="Lowest confidence accepted.")
    models: Names | None = Field(None, max_length=MOST_REPLICAS, description="One model a replica.")
    early_stop: bool = Field(True, description="Whether replicas that cannot matter are cancelled.")


class FlowOptions(_Inbound):
    """Which flow runs on what."""

    name: Name = Field(description="A registered flow.")
    input: JsonValue = Field(description="Its entry value.")


class Limits(_Inbound):
    """Bounds of this execution; they may only narrow the configured ones."""

    tool_rounds: int | None = Field(None, ge=0, description="Most tool rounds.")
    calls_per_reply: int | None = Field(None, ge=1, description="Most tool calls of one reply that run.")
    attempts: int | None = Field(None, ge=1, description="Most attempts at a valid answer.")
    tokens: int | None = Field(None, ge=1, description="Most tokens, all inferences together.")
    cost: float | None = Field(None, gt=0, description="Most cost, in the configured currency.")


_NO_HINTS, _NO_CONTRACT, _NO_CONTEXT, _NO_LIMITS = ExecutionHints(), OutputContract(), ContextOptions(), Limits()
"""Frozen, so every request that leaves them out shares them."""


class SystemRequest(_Inbound):
    """One request to the system."""

    request_id: Identifier | None = Field(None, description="Unique per tenant; generated when absent.")
    session_id: Identifier | None = Field(None, description="Makes the conversation persistent.")
    trace_id: TraceId | None = Field(None, description="32 hex digits; else from `traceparent`, else generated.")
    messages: list[Message] = Field(min_length=1, max_length=MOST_MESSAGES, description="What was said, oldest first.")
    mode: Mode = Field(Mode.CHAT, description="Which pattern runs.")
    agent: Name | None = Field(None, description="A configured agent.")
    model: Name | None = Field(None, description="A route or engine name from GET /v1/engines, never a URL.")
    hints: ExecutionHints = Field(default_factory=lambda: _NO_HINTS, description="Tuning.")
    output: OutputContract = Field(default_factory=lambda: _NO_CONTRACT, description="The form of the answer.")
    tools: list[ToolName] | None = Field(
        None, max_length=128, description="Tools to offer; absent means all permitted, [] none."
    )
    context: ContextOptions = Field(default_factory=lambda: _NO_CONTEXT, description="Retrieval and skills.")
    plan: PlanOptions | None = Field(None, description="Plan mode.")
    redundancy: RedundancyOptions | None = Field(None, description="Redundant mode.")
    flow: FlowOptions | None = Field(None, description="Flow mode.")
    limits: Limits = Field(default_factory=lambda: _NO_LIMITS, description="Bounds of this execution.")
    background: bool = Field(False, description="Whether to answer 202 at once.")
    on_disconnect: Literal["cancel", "continue"] | None = Field(
        None, description="What closing the connection means; absent: `cancel` for a plain request."
    )
    if_session_busy: Literal["reject", "enqueue"] = Field("reject", description="What a busy session means.")
    on_limit: Literal["fail", "salvage"] = Field("fail", description="What a reached limit yields.")
    metadata: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="Returned under `metadata.client`."
    )

    @field_validator("trace_id")
    @classmethod
    def _trace_is_one(cls, trace_id: str | None) -> str | None:
        if trace_id is not None and not trace_id.strip("0"):
            raise ValueError("must not be all zeros")
        return trace_id

    @field_validator("messages")
    @classmethod
    def _conversation_is_whole(cls, messages: list[Message]) -> list[Message]:
        faults = conversation_faults(messages)
        if faults:
            raise ValueError("; ".join(f"{where} {what}" for where, what in faults[:8]))
        return messages


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

    suspension_id: str = Field(description="Names this suspension.")
    kind: SuspensionKind = Field(description="What is waited for.")
    tool_id: str = Field(description="What a resume names.")
    tool_call_id: str | None = Field(None, description="The call that waits.")
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
    kept_by: Way | None = Field(None, description="How the answer was kept to the form asked for.")
    durability: Durability = Field("memory", description="What survives the process.")
    client: dict[str, str] = Field(default_factory=dict, description="The request's own metadata.")


class SystemResponse(_Outbound):
    """One answer of the system, failures included."""

    request_id: str = Field(description="The request's id.")
    session_id: str | None = Field(None, description="The session's id.")
    trace_id: str = Field(description="The trace's id.")
    mode: Mode = Field(description="Which pattern ran.")
    state: State = Field(description="Where the execution stands.")
    content: str | None = Field(None, description="The answer's text; partial beside an error.")
    structured_output: Json = Field(None, description="The answer's value where a form was asked for.")
    tool_calls_made: list[ToolCallMade] = Field(default_factory=list, description="Every call, in order.")
    confidence: Share | None = Field(None, description="How sure the answer is.")
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
