"""Snapshot of a flow: everything that is needed to go on with it in another process."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from portico.domain.contract.messages import Message, ModelMessage, ToolCall
from portico.domain.contract.response import NO_USAGE, SuspensionKind, TokenUsage


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class FlowSuspension(_Stored):
    """An open question of a node: a person or a program outside answers it with a resume."""

    suspension_id: str = Field(description="Id of the suspension, unique in the flow.")
    kind: SuspensionKind = Field(description="Kind of the suspension.")
    node: str = Field(description="Key of the node that waits.")
    tool_id: str = Field(description="Name that a resume uses: the node, or node::tool.")
    value: JsonValue = Field(description="Question.")


class PendingCall(_Stored):
    """A tool call of an agent's last reply, with its result or the question it waits for."""

    call: ToolCall = Field(description="The call.")
    result: str | None = Field(None, description="Text that the model will see; null until the call has ended.")
    is_approved: bool = Field(False, description="True if a person has approved the call.")
    suspension: FlowSuspension | None = Field(None, description="Question that the call waits for.")


class AgentRecord(_Stored):
    """The conversation of an agent. Its model and its system prompt are those of its first inference."""

    model: str = Field(description="Route or engine.")
    preamble: str = Field(description="System prompt.")
    messages: tuple[ModelMessage | Message, ...] = Field((), description="The conversation.")
    is_working: bool = Field(False, description="True while the agent has a task.")
    rejections: int = Field(0, ge=0, description="Answers to this task that were rejected.")
    tool_rounds: int = Field(0, ge=0, description="Tool rounds of this task.")
    calls: tuple[PendingCall, ...] = Field((), description="Calls of the last reply, while some have no result.")

    @property
    def suspensions(self) -> list[FlowSuspension]:
        """The open questions of the calls."""
        return [each.suspension for each in self.calls if each.suspension is not None]


class FlowSnapshot(_Stored):
    """A flow between two steps. `state` holds keys and values in the order in which nodes fire."""

    format: Literal[1] = Field(1, description="Version of this format.")
    flow: str = Field(description="Name of the flow.")
    fingerprint: str = Field(description="Fingerprint of its graph.")
    state: tuple[tuple[str, JsonValue], ...] = Field(description="The state, from its head.")
    suspensions: tuple[FlowSuspension, ...] = Field((), description="Questions of nodes that are no agents.")
    agents: dict[str, AgentRecord] = Field({}, description="Agents that have worked, by node.")
    steps: int = Field(0, ge=0, description="Steps that were taken.")
    usage: TokenUsage = Field(NO_USAGE, description="Tokens of all agents.")
    is_announced: bool = Field(False, description="True once a step has reported the open suspensions.")
