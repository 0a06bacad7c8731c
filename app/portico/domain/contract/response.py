"""Responses of the HTTP contract, version 1, which follows the boundary seed."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from operator import is_, not_
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    PlainSerializer,
    SerializationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from portico.domain.access.tool_policy import ApprovalReason
from portico.domain.contract.constrained_types import ConfidenceSource, FormatEnforcement, UnitInterval
from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.contract.messages import Message, ModelMessage, ToolCall, TracedMessage
from portico.domain.failures import Category, Code, Failure
from portico.domain.ids import API, ChannelName, RequestId, SessionId, SuspensionId, ToolCallId, TraceId, UserId
from portico.domain.lifecycle import Mode, State

Durability = Literal["memory", "journaled"]
AnswerPart = Literal["text", "value"]
"""Part of an answer: the text is `content` and `final_answer.answer_text`, the value is `structured_output`."""
WHOLE_ANSWER: Final[tuple[AnswerPart, ...]] = ("text", "value")
USAGE_IMPLAUSIBLE: Final = "usage_implausible"
"""The flag of an answer whose provider reported token counts that cannot be true."""
REDACTED: Final = "redacted"
"""The flag of an answer whose value is shown redacted, so that it may no longer fit its schema."""

Json: TypeAlias = Any
"""JSON value that was read strictly before; it is not validated again, since that would take longer than reading it."""


_IS_NONE: Final = partial(is_, None)


class _Outbound(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TokenUsage(_Outbound):
    """Tokens of all attempts. Output includes reasoning, input includes tokens read from and written to a cache."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_tokens: int = Field(0, ge=0, description="Input tokens.")
    output_tokens: int = Field(0, ge=0, description="Output tokens.")
    reasoning_tokens: int = Field(0, ge=0, description="Output tokens used for reasoning.")
    cached_tokens: int = Field(0, ge=0, description="Input tokens read from a cache.")
    cache_write_tokens: int = Field(0, ge=0, description="Input tokens written to a cache.")
    total_tokens: int = Field(0, ge=0, description="Input and output tokens together.")
    estimated: bool = Field(False, description="True if any part is an estimate.")

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            estimated=self.estimated or other.estimated,
        )


class Cost(_Outbound):
    """Cost of the tokens by the configured prices."""

    amount: float = Field(ge=0, description="Amount.")
    currency: str = Field(description="ISO 4217.")
    cache_saved: float | None = Field(
        None,
        exclude_if=_IS_NONE,
        description="What tokens read from and written to a cache of the provider had cost without it, less what they "
        "cost: negative if it did not pay, absent without such tokens.",
    )


class SystemError(_Outbound):
    """Failure as clients see it; `code` is for programs, `message` for people."""

    code: Code = Field(description="Stable error code.")
    category: Category = Field(description="Category of the failure taxonomy.")
    retryable: bool = Field(description="True if sending the request again may help.")
    message: str = Field(description="Description for people; never echoes input.")
    details: dict[str, Any] = Field(default_factory=dict, description="Facts for programs.")
    caused_by: str | None = Field(None, description="Code or type of the cause.")

    @classmethod
    def of(cls, failure: Failure) -> "SystemError":
        """Return the failure as clients see it; `details.retry_after` is the wait in seconds."""
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


class ToolCallStatus(StrEnum):
    """Status of a tool call.

    A call waits while the execution is suspended at it, or before it, or once it was left to the client. A call failed
    if it began and has an error, also if it is not known what it has done. It did not run if it was denied or refused,
    was beyond a limit, or if the execution ended before it.
    """

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    NOT_RUN = "not_run"


class DecidedBy(_Outbound):
    """User who decided about a call."""

    user: UserId = Field(description="The user.")
    at: datetime = Field(description="Time of the answer, or of the grant.")
    reason: str | None = Field(None, description="The user's comment.")


class DecisionVerdict(StrEnum):
    """Verdicts of persons about a call."""

    APPROVED = "approved"
    DENIED = "denied"
    GRANTED = "granted"
    EXPIRED = "expired"


class DecisionMade(_Outbound):
    """Decision about a call that a person was asked for."""

    verdict: DecisionVerdict = Field(
        description="`approved`, `denied`, `granted` (by a grant for later calls), or `expired` (without an answer)."
    )
    edited: bool = Field(False, exclude_if=not_, description="True if the arguments were changed; absent otherwise.")
    by: list[DecidedBy] = Field(description="Who decided; empty if the time for it expired.")
    grant_id: str | None = Field(None, description="The grant that stood in for an answer; null without one.")


class ToolCallMade(_Outbound):
    """Tool call that the model asked for, refused ones included."""

    id: str = Field(description="Id of the call, generated if the provider gave none.")
    name: str = Field(description="Name of the tool as the model wrote it.")
    arguments: dict[str, Any] = Field(description="Arguments by name, as the tool got them.")
    asked_arguments: dict[str, Any] | None = Field(
        None,
        exclude_if=_IS_NONE,
        description="The arguments that the model asked for, if a person changed them; absent otherwise.",
    )
    status: ToolCallStatus = Field(description="What has become of the call.")
    result: str | None = Field(description="Text the model saw; null while the call waits.")
    is_error: bool = Field(description="True if the result is an error text.")
    attempts: int = Field(ge=0, description="Number of times the tool ran.")
    duration_ms: float = Field(ge=0, description="Duration of all attempts in milliseconds.")
    step_name: str | None = Field(None, description="Plan step the call belongs to.")
    agent: str | None = Field(None, description="Configured agent that made the call; null without one.")
    client: bool = Field(False, exclude_if=not_, description="True if the client runs the tool; absent otherwise.")
    edited: bool = Field(
        False, exclude_if=not_, description="True if the result is an edit of a fork; absent otherwise."
    )
    decision: DecisionMade | None = Field(
        None, exclude_if=_IS_NONE, description="What persons decided about the call; absent if no person was asked."
    )


class ValidationResult(_Outbound):
    """Errors, warnings and repairs of the answer."""

    valid: bool = Field(description="True if the answer is valid.")
    errors: list[JsonValue] = Field(default_factory=list, description="Errors.")
    warnings: list[JsonValue] = Field(default_factory=list, description="Warnings.")
    repairs: list[JsonValue] = Field(default_factory=list, description="Repairs.")
    attempts: int = Field(1, ge=1, description="Number of attempts.")


class StepStatus(StrEnum):
    """Status of a plan step.

    A step is skipped if a step that it depends on did not complete, cancelled if it was cut off or the execution ended
    before it, and pending only while the execution is suspended.
    """

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class StepReport(_Outbound):
    """Plan step with its result."""

    name: str = Field(description="Name of the step.")
    type: str = Field(description="Type of the step.")
    status: StepStatus = Field(description="Status of the step.")
    output: Json = Field(None, description="Output of the step.")
    error: SystemError | None = Field(None, description="Failure of the step.")


class PlanTrace(_Outbound):
    """Origin of a plan."""

    planner_id: str = Field(description="Id of the planner.")
    rationale: str = Field(description="Reason for these steps.")
    created_at: datetime = Field(description="Time of creation.")
    step_count: int = Field(ge=0, description="Number of steps.")


class PlanReport(_Outbound):
    """Plan that ran."""

    steps: list[StepReport] = Field(description="Steps in plan order.")
    trace: PlanTrace = Field(description="Origin of the plan.")


class VoteReport(_Outbound):
    """Vote that was held."""

    candidates: list[Json] = Field(description="The replicas' values.")
    tally: list[Json] = Field(description="Votes by value.")
    fields: dict[str, Json] | None = Field(None, description="Votes by JSON path.")
    stopped_early: bool = Field(description="True if replicas were cancelled early.")


class SuspensionKind(StrEnum):
    """Kind of a suspension."""

    QUESTION = "question"
    FLOW = "flow"
    APPROVAL = "approval"
    UNKNOWN_OUTCOME = "unknown_outcome"
    CLIENT_TOOL = "client_tool"
    AUTHORIZATION = "authorization"


class GivenApprovals(_Outbound):
    """Approvals of a call that more than one user must approve."""

    needed: int = Field(ge=2, description="Number of users who must approve.")
    given: list[DecidedBy] = Field(description="Who has approved so far.")
    arguments: dict[str, Any] | None = Field(
        None,
        exclude_if=_IS_NONE,
        description="The arguments that were approved so far, if they are not those of the model; absent otherwise.",
    )


class Suspension(_Outbound):
    """Open suspension of an execution."""

    suspension_id: SuspensionId = Field(description="Id of the suspension.")
    kind: SuspensionKind = Field(description="Kind of the suspension.")
    tool_id: str = Field(description="Name that a resume uses.")
    tool_call_id: ToolCallId | None = Field(None, description="Tool call that is suspended.")
    value: JsonValue = Field(description="Question.")
    asked_because: ApprovalReason | None = Field(
        None,
        description="Why an approval is asked for, the first that holds: `rule` (of `policy.approve`), `repeated` (an "
        "unsafe call again), `untrusted_text` (a rule of `policy.pre_authorise` would else cover it), `tool` (declared "
        "to act outside). Null of other kinds.",
    )
    arguments_digest: str | None = Field(None, description="Digest of the arguments that an approval applies to.")
    step_name: str | None = Field(None, description="Plan step or node of a flow that is suspended.")
    agent: str | None = Field(None, description="Configured agent that acts there; null without one.")
    asked_at: datetime | None = Field(None, description="Time of the suspension.")
    expires_at: datetime = Field(description="Time of expiry.")
    on_expiry: Literal["deny"] | None = Field(
        None,
        exclude_if=_IS_NONE,
        description="`deny` if the call is not approved then, and the execution goes on; absent if it is cancelled.",
    )
    approvals: GivenApprovals | None = Field(
        None, exclude_if=_IS_NONE, description="Approvals so far, of a call that needs more than one; absent otherwise."
    )


class Source(_Outbound):
    """Part of a document that the answer was given to read."""

    source: str = Field(description="Id of the part: `DOCUMENT_ID#NUMBER`, as the model saw it.")
    document_id: str = Field(description="Id of the document.")
    score: UnitInterval = Field(description="How well it fits the query.")


class Reasoning(_Outbound):
    """Reasoning before an answer of a model, as its provider shows it."""

    text: str = Field(description="Text, or a summary of it.")
    provider: str = Field(description="Configured engine that answered.")
    step_name: str | None = Field(None, description="Plan step or node of a flow that asked.")


class ResponseMetadata(_Outbound):
    """Details of how the answer was produced."""

    provider: str | None = Field(None, description="Configured engine that answered last.")
    deployment: str | None = Field(
        None, exclude_if=_IS_NONE, description="Deployment of the engine that answered; absent for one without any."
    )
    model: str | None = Field(None, description="Model as the provider names it.")
    finish_reason: str | None = Field(None, description="Reason why the last answer ended.")
    tool_rounds: int = Field(0, ge=0, description="Number of tool rounds.")
    fallback_attempts: int = Field(0, ge=0, description="Number of attempts after the first of each inference.")
    truncated_history: bool = Field(False, description="True if the history was truncated.")
    left_out: list[str] = Field(
        default_factory=list, description="Parts of the request that a provider could not be given."
    )
    kept_by: FormatEnforcement | None = Field(None, description="Enforcement of the required format.")
    durability: Durability = Field("memory", description="Durability of the execution.")
    flags: list[str] = Field(
        default_factory=list,
        description="Warnings: `usage_implausible` if a provider reported token counts that cannot be true, which an"
        " estimate replaced; the names of guards that tripped and only flag, `input_rules` for warnings of the rules of"
        " the request; `guardrail_failed` if a judge of the input gave no judgement; `redacted` if `structured_output`"
        " is shown redacted and may no longer fit its schema.",
    )
    sources: list[Source] = Field(
        default_factory=list,
        exclude_if=not_,
        description="Parts of documents that were retrieved and read, best first; absent if there are none.",
    )
    channel: ChannelName = Field(API, description="Channel by which the request came.")
    client: dict[str, str] = Field(default_factory=dict, description="Metadata of the request.")


STORED: Final[Mapping[str, bool]] = MappingProxyType({"stored": True})
"""Serialization context of a response that is stored: its messages keep what only their provider can read."""


def public_message(message: Message) -> dict[str, Any]:
    """Return a message as clients see it: without absent fields and without what only its provider can read."""
    dumped: dict[str, Any] = message.__pydantic_serializer__.to_python(
        message, mode="json", exclude_none=True, exclude={"provider", "account", "kept", "origin"}
    )
    return dumped


def _read_message(stored: object) -> object:
    """Return a stored message of a model as what it is; `Message` alone would refuse its further fields."""
    if not isinstance(stored, dict):
        return stored
    if "provider" in stored:
        return ModelMessage.model_validate(stored)
    return TracedMessage.model_validate(stored) if "origin" in stored else stored


def _serialize_messages(messages: Sequence[Message], info: SerializationInfo) -> list[dict[str, Any]]:
    if info.context is STORED:
        return [each.model_dump(mode="json") for each in messages]
    return [public_message(each) for each in messages]


class _ShownAsMessages:
    """JSON schema of messages as clients see them."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(core_schema.list_schema(Message.__pydantic_core_schema__))


class SystemResponse(_Outbound):
    """Response of the system, failures included."""

    request_id: RequestId = Field(description="Id of the request.")
    session_id: SessionId | None = Field(None, description="Id of the session.")
    trace_id: TraceId = Field(description="Id of the trace.")
    mode: Mode = Field(description="Pattern that ran.")
    state: State = Field(description="State of the execution.")
    content: str | None = Field(None, description="Text of the answer; partial if there is an error.")
    structured_output: Json = Field(None, description="Value of the answer if a format was required.")
    tool_calls_made: list[ToolCallMade] = Field(default_factory=list, description="All tool calls, in order.")
    client_calls: list[ToolCall] = Field(
        default_factory=list,
        exclude_if=not_,
        description="Calls that the client is left with, in order; absent if there are none.",
    )
    confidence: UnitInterval | None = Field(None, description="Confidence in the answer.")
    confidence_source: ConfidenceSource | None = Field(None, description="Source of the confidence.")
    validation_result: ValidationResult | None = Field(None, description="Result of the validation.")
    reasoning: list[Reasoning] | None = Field(
        None,
        exclude_if=_IS_NONE,
        description="What models thought before their answers, in order, cut to 1 MiB; with `output.reasoning` only.",
    )
    token_usage: TokenUsage = Field(default_factory=TokenUsage, description="Tokens of all attempts.")
    cost: Cost | None = Field(None, description="Cost, if prices are configured.")
    plan: PlanReport | None = Field(None, description="Plan, in plan mode.")
    vote: VoteReport | None = Field(None, description="Vote, in redundant mode.")
    final_answer: FinalAnswer | None = Field(None, description="Final answer of multi-pass reasoning or salvage.")
    messages: Annotated[
        list[Annotated[Message, BeforeValidator(_read_message)]],
        PlainSerializer(_serialize_messages),
        _ShownAsMessages(),
    ] = Field(
        default_factory=list,
        description="Messages that this turn adds to a conversation: the model's turns with their calls, tool results.",
    )
    suspensions: list[Suspension] = Field(default_factory=list, description="Open suspensions.")
    metadata: ResponseMetadata = Field(default_factory=ResponseMetadata, description="Details of the answer.")
    error: SystemError | None = Field(None, description="Failure that ended the execution.")
    repeated: tuple[AnswerPart, ...] = Field(
        (),
        exclude=True,
        description="Parts of the answer that no model wrote as the answer to this request: they repeat the output of a"
        " tool, a step or a node, or what was found. Stored, and never shown.",
    )


NO_USAGE = TokenUsage()
