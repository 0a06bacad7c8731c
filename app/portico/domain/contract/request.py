"""Requests of the HTTP contract, version 1, which follows the boundary seed.

Validation is strict: unknown fields are rejected by name, and no value is converted.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from portico.domain.contract.constrained_types import (
    MAX_CLIENT_TOOLS,
    MAX_MESSAGES,
    MAX_REPLICAS,
    MAX_SKILLS,
    MAX_STEPS,
    MAX_WEBHOOKS,
    Intent,
    Name,
    NameList,
    RequestIdText,
    SessionIdText,
    StopText,
    TimeText,
    ToolName,
    ToolReference,
    TraceIdText,
    UnitInterval,
    WebhookName,
)
from portico.domain.contract.messages import Message, conversation_errors
from portico.domain.contract.rules import MAX_RULES, Rule, RuleName
from portico.domain.lifecycle import Mode
from portico.domain.memory import DEFAULT_CHUNKS, MAX_CHUNKS


class _Inbound(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NamedTool(_Inbound):
    """Tool that the model must call."""

    name: ToolReference = Field(description="Name of the tool.")


def _no_parameters() -> dict[str, JsonValue]:
    return {"type": "object"}


class ClientTool(_Inbound):
    """Tool that the client runs."""

    name: ToolName = Field(description="Name of the tool; none that the request may be offered by the service.")
    description: str = Field("", max_length=32_768, description="What the tool does, for the model.")
    parameters: dict[str, JsonValue] = Field(
        default_factory=_no_parameters,
        description="JSON Schema of the arguments, which are an object, within the limits of `output.schema`.",
    )


ReasoningLevel = Literal["none", "low", "medium", "high", "max"]


class ExecutionHints(_Inbound):
    """Tuning of inferences. A missing hint leaves the engine's default; `temperature: 0` is greedy."""

    max_tokens: int | None = Field(None, ge=1, le=1_000_000, description="Maximum number of tokens of one answer.")
    timeout: float | None = Field(
        None, gt=0, description="Time limit of the whole execution, in seconds of running time."
    )
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling.")
    stop: StopText | Annotated[list[StopText], Field(min_length=1, max_length=16)] | None = Field(
        None, description="Text or texts that end the answer."
    )
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Seed for engines with reproducible sampling.")
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = Field(
        None,
        description="`auto`: tools may be called; `none`: they must not; `required`: one must be; or a tool by name.",
    )
    reasoning: ReasoningLevel | None = Field(
        None,
        description="How much the model reasons. It is sent the nearest level that it has, never a higher one, except "
        "that `none` may become its lowest; `metadata.left_out` says if that is another level.",
    )
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Engine options; only keys on the engine's allow-list are passed on."
    )

    @property
    def demands_call(self) -> bool:
        """Return True if the model must call a tool."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedTool)


class OutputContract(_Inbound):
    """Required format of the answer, and rules it must satisfy."""

    schema_: dict[str, JsonValue] | None = Field(None, alias="schema", description="JSON Schema 2020-12.")
    grammar: str | None = Field(None, description="GBNF if it contains `::=`, otherwise a registered name.")
    repair_allowed: bool = Field(True, description="True if invalid JSON may be repaired.")
    strict_validation: bool = Field(
        True,
        description="True if an answer that breaks a rule or is rejected by the judge fails after the last attempt and "
        "is not shown; false if it completes with `valid: false` and confidence 0. A broken format always fails.",
    )
    rules: list[RuleName | Rule] = Field([], max_length=MAX_RULES, description="Rules, by name or inline.")
    semantic: bool | Intent = Field(
        False, description="True for validation by a judge model, or the intent to judge by."
    )
    reasoning: bool = Field(
        False, description="True to read what the model thought in `reasoning`, as far as its provider shows it."
    )


class InputContract(_Inbound):
    """Requirements of the input."""

    rules: list[RuleName | Rule] = Field(
        [],
        max_length=MAX_RULES,
        description="Rules for the text of the last user message, by name or inline, checked before anything is sent; "
        "a path reads the text as JSON.",
    )


class ContextOptions(_Inbound):
    """Additional context next to the messages."""

    retrieve: bool = Field(
        False,
        description="True to search the memory with the text of the last user message. What is found stands before "
        "that message, for this execution only.",
    )
    max_chunks: int | None = Field(
        None, ge=1, le=MAX_CHUNKS, description=f"Maximum number of chunks to retrieve; {DEFAULT_CHUNKS} if absent."
    )
    min_score: UnitInterval | None = Field(None, description="Minimum score of a chunk; 0 if absent.")
    skills: Annotated[NameList, Field(max_length=MAX_SKILLS)] | Literal["auto"] | None = Field(
        None,
        description="Skills by name, or `auto` for those that the last user message triggers; absent: those of the "
        "agent; []: none.",
    )


class PlanPolicy(_Inbound):
    """Restrictions on a plan."""

    max_steps: int | None = Field(None, ge=1, description="Maximum number of steps.")
    allowed_step_types: NameList | None = Field(None, description="Allowed step types.")
    require_linear: bool = Field(False, description="True to reject branches.")
    timeout_per_step: float | None = Field(None, gt=0, description="Time limit of one step, in seconds.")


class PlanStep(BaseModel):
    """One step of an authored plan; further keys belong to its type."""

    # A planning model reads this description and those of the fields.
    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name = Field(description="The step's name, unique in its plan.")
    type: Name = Field(description="Type of the step.")
    input: JsonValue = Field(None, description="The step's input; absent means the output before it.")
    depends_on: NameList | None = Field(None, description="Steps that must have ended before.")


class PlanOptions(_Inbound):
    """Options of plan mode."""

    steps: list[PlanStep] | None = Field(
        None, max_length=MAX_STEPS, description="Authored plan; the planner is skipped."
    )
    policy: PlanPolicy | None = Field(None, description="Restrictions on the plan.")
    passes: int = Field(1, ge=1, description="Maximum number of passes; 1 means no multi-pass reasoning.")


class RedundancyOptions(_Inbound):
    """Options of redundant mode."""

    n: int = Field(3, ge=1, description="Number of replicas.")
    voting: Literal["majority", "unanimity", "field_majority"] = Field("majority", description="Voting method.")
    quorum: int | None = Field(None, ge=1, description="Minimum number of votes for the winner.")
    min_confidence: UnitInterval | None = Field(None, description="Minimum confidence.")
    models: NameList | None = Field(None, max_length=MAX_REPLICAS, description="Models, one per replica.")
    early_stop: bool = Field(True, description="True to cancel replicas that cannot change the result.")


class FlowOptions(_Inbound):
    """Options of flow mode."""

    name: Name = Field(description="Registered name of the flow.")
    input: JsonValue = Field(description="Entry value of the flow.")


class Limits(_Inbound):
    """Limits of this execution; they can only narrow the configured ones."""

    tool_rounds: int | None = Field(None, ge=0, description="Maximum number of tool rounds.")
    calls_per_reply: int | None = Field(None, ge=1, description="Maximum number of tool calls that run per reply.")
    attempts: int | None = Field(None, ge=1, description="Maximum number of attempts at a valid answer.")
    tokens: int | None = Field(None, ge=1, description="Maximum number of tokens of all inferences together.")
    cost: float | None = Field(None, gt=0, description="Maximum cost, in the configured currency.")
    flow_steps: int | None = Field(None, ge=1, description="Maximum number of steps of a flow.")
    tool_calls: int | None = Field(
        None, ge=0, description="Maximum number of tool calls, with those of the agents that it calls."
    )


_NO_HINTS, _NO_CONTRACT, _NO_CONTEXT, _NO_LIMITS = ExecutionHints(), OutputContract(), ContextOptions(), Limits()
"""Shared by all requests that omit them; they are frozen."""


class SystemRequest(_Inbound):
    """Request to the system."""

    request_id: RequestIdText | None = Field(
        None, description="Id of the execution, unique per tenant; generated if absent."
    )
    session_id: SessionIdText | None = Field(
        None, description="Id of a session, which makes the conversation persistent."
    )
    trace_id: TraceIdText | None = Field(
        None, description="32 hex digits; if absent, taken from `traceparent` or generated."
    )
    after: RequestIdText | None = Field(
        None, description="Id of an execution that has ended; the conversation begins with its whole transcript."
    )
    messages: list[Message] = Field(
        default_factory=list,
        max_length=MAX_MESSAGES,
        description="Conversation, the oldest message first; optional in mode flow only. In a session and with `after` "
        "it may begin with the results of calls that the last turn left to the client.",
    )
    mode: Mode = Field(Mode.CHAT, description="Pattern to run.")
    agent: Name | None = Field(
        None,
        description="An agent from GET /v1/agents: prompt, model, mode, tools, limits, output and hints in one name. "
        "`model` and `mode` can only repeat its own, but an agent of mode chat may answer in the request's format; "
        "`tools` and limits can only narrow them.",
    )
    model: Name | None = Field(None, description="Route or engine name from GET /v1/engines, never a URL.")
    hints: ExecutionHints = Field(default_factory=lambda: _NO_HINTS, description="Tuning.")
    output: OutputContract = Field(default_factory=lambda: _NO_CONTRACT, description="Required format of the answer.")
    input: InputContract | None = Field(None, description="Requirements of the input.")
    tools: list[ToolReference] | None = Field(
        None,
        max_length=128,
        description="Tools to offer; absent: all that are permitted, or those of the agent; []: none. `agent:NAME` is "
        "an agent as a tool, offered only if it is named.",
    )
    client_tools: list[ClientTool] = Field(
        default_factory=list,
        max_length=MAX_CLIENT_TOOLS,
        description="Tools to offer that the client runs, in the modes chat and structured.",
    )
    on_client_call: Literal["suspend", "end"] = Field(
        "suspend",
        description="Effect of a call of a client tool, after the other calls of the reply: `suspend` until each is "
        "answered, or `end` the execution with `client_calls`.",
    )
    context: ContextOptions = Field(default_factory=lambda: _NO_CONTEXT, description="Retrieval and skills.")
    plan: PlanOptions | None = Field(None, description="Options of plan mode.")
    redundancy: RedundancyOptions | None = Field(None, description="Options of redundant mode.")
    flow: FlowOptions | None = Field(None, description="Options of flow mode.")
    limits: Limits = Field(default_factory=lambda: _NO_LIMITS, description="Limits of this execution.")
    webhooks: list[WebhookName] = Field(
        default_factory=list,
        max_length=MAX_WEBHOOKS,
        description="Endpoints of GET /v1/webhooks that hear of this execution, beside those that hear of all.",
    )
    store: bool = Field(
        True, description="False: nothing is stored beyond the end of the execution, which can then not be read again."
    )
    background: bool = Field(False, description="True to answer 202 at once and run in the background.")
    run_at: TimeText | None = Field(
        None,
        description="Time of RFC 3339 at which it starts, in the background, at most 366 days ahead; one in the past "
        "is now. It runs with the rights that its caller has then.",
    )
    on_disconnect: Literal["cancel", "continue"] | None = Field(
        None, description="Effect of a closed connection; absent: `cancel` for a plain request."
    )
    if_session_busy: Literal["reject", "enqueue"] = Field("reject", description="Effect of a busy session.")
    on_limit: Literal["fail", "salvage"] = Field("fail", description="Effect of a reached limit.")
    metadata: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="Client metadata, returned under `metadata.client`."
    )

    def has_client_tool(self, name: str) -> bool:
        """Return True if the client runs a tool of that name."""
        return any(tool.name == name for tool in self.client_tools)

    @field_validator("trace_id")
    @classmethod
    def _reject_zero_trace_id(cls, trace_id: str | None) -> str | None:
        if trace_id is not None and not trace_id.strip("0"):
            raise ValueError("must not be all zeros")
        return trace_id

    @field_validator("messages")
    @classmethod
    def _reject_conversation_errors(cls, messages: list[Message], info: ValidationInfo) -> list[Message]:
        continues = info.data.get("after") is not None or info.data.get("session_id") is not None
        errors = conversation_errors(messages, continues=continues)
        if errors:
            raise ValueError("; ".join(f"{where} {what}" for where, what in errors[:8]))
        return messages
