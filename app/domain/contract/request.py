"""What crosses the boundary: one `SystemRequest` in, one `SystemResponse` out.

The shapes are those of the HTTP contract, version 1, which follows the boundary seed. Everything is validated
strictly: unknown fields are refused by name, and nothing is coerced.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from app.domain.contract.constrained_types import (
    MAX_MESSAGES,
    MAX_REPLICAS,
    MAX_STEPS,
    Intent,
    Name,
    NameList,
    RequestIdText,
    SessionIdText,
    StopText,
    ToolName,
    TraceIdText,
    UnitInterval,
)
from app.domain.contract.messages import Message, conversation_errors
from app.domain.contract.rules import MAX_RULES, Rule, RuleName
from app.domain.lifecycle import Mode


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
    rules: list[RuleName | Rule] = Field([], max_length=MAX_RULES, description="Rules by name, or inline.")
    semantic: bool | Intent = Field(False, description="Whether a judge reads the answer, or the intent it judges by.")


class ContextOptions(_Inbound):
    """What is brought into the context beside the messages."""

    retrieve: bool = Field(False, description="Whether memory is searched.")
    max_chunks: int | None = Field(None, ge=1, le=1000, description="Most chunks to retrieve.")
    min_score: UnitInterval | None = Field(None, description="Lowest score of a chunk.")
    skills: NameList | Literal["auto"] = Field(default_factory=list, description="Skills by name, or `auto`.")


class PlanPolicy(_Inbound):
    """What a plan may look like."""

    max_steps: int | None = Field(None, ge=1, description="Most steps.")
    allowed_step_types: NameList | None = Field(None, description="Step types that may occur.")
    require_linear: bool = Field(False, description="Whether branches are refused.")
    timeout_per_step: float | None = Field(None, gt=0, description="Seconds a step may take.")


class PlanStep(BaseModel):
    """One step of an authored plan; further keys belong to its type."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name = Field(description="The step's name, unique in its plan.")
    type: Name = Field(description="The step's type.")
    input: JsonValue = Field(None, description="The step's input; absent means the output before it.")
    depends_on: NameList | None = Field(None, description="Steps that must have ended before.")


class PlanOptions(_Inbound):
    """How plan mode plans and runs."""

    steps: list[PlanStep] | None = Field(None, max_length=MAX_STEPS, description="An authored plan; skips the planner.")
    policy: PlanPolicy | None = Field(None, description="What the plan may look like.")
    passes: int = Field(1, ge=1, description="Most passes; 1 means no multi-pass reasoning.")


class RedundancyOptions(_Inbound):
    """How redundant mode votes."""

    n: int = Field(3, ge=1, description="Replicas.")
    voting: Literal["majority", "unanimity", "field_majority"] = Field("majority", description="How votes count.")
    quorum: int | None = Field(None, ge=1, description="Fewest votes for the winner.")
    min_confidence: UnitInterval | None = Field(None, description="Lowest confidence accepted.")
    models: NameList | None = Field(None, max_length=MAX_REPLICAS, description="One model a replica.")
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

    request_id: RequestIdText | None = Field(None, description="Unique per tenant; generated when absent.")
    session_id: SessionIdText | None = Field(None, description="Makes the conversation persistent.")
    trace_id: TraceIdText | None = Field(None, description="32 hex digits; else from `traceparent`, else generated.")
    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES, description="What was said, oldest first.")
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
        faults = conversation_errors(messages)
        if faults:
            raise ValueError("; ".join(f"{where} {what}" for where, what in faults[:8]))
        return messages
