"""Limits of the configuration: one row each, with its default, its bounds and the fields of a request that it caps.

The settings, the caps of requests and the effective limits of executions are made from these rows. To add a limit, add
a row. If an execution keeps to it, `EffectiveLimits` has a field of the same name; if a request may lower it, so has
`Limits`.
"""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from portico.domain.contract.constrained_types import MAX_MESSAGES, MAX_PASSES, MAX_REPLICAS, MAX_STEPS
from portico.domain.contract.request import SystemRequest
from portico.domain.value import value

_KIB, _MIB = 1024, 1024 * 1024


@value
class Cap:
    """Field of a request, as a dotted path, that must not be above a limit."""

    field: str

    @property
    def part(self) -> str:
        """Return the part of the request that has the field: the object, or the field itself if it is in none."""
        return self.field.rpartition(".")[0] or self.field

    def requested(self, request: SystemRequest) -> float | None:
        """Return the number in the field, of a list its length; None if the request does not give it."""
        found: Any = request
        for name in self.field.split("."):
            found = getattr(found, name, None)
        return len(found) if isinstance(found, list) else found


class ConfiguredLimits(BaseModel):
    """Limits of the configuration. A request may lower some of them and raise none."""

    model_config = ConfigDict(frozen=True)

    body_bytes: int = Field(4 * _MIB, ge=1, description="Size of a request body")
    json_depth: int = Field(64, ge=1, le=256, description="Nesting of a request body")
    messages: Annotated[int, Cap("messages")] = Field(1000, ge=1, le=MAX_MESSAGES, description="Messages of a request")
    tools: Annotated[int, Cap("tools"), Cap("client_tools")] = Field(
        128, ge=1, le=128, description="Tools offered to a model"
    )
    concurrent_inferences: int = Field(
        32, ge=1, description="Inferences of one execution that run at the same time; the others wait for their turn"
    )
    tool_rounds: Annotated[int, Cap("limits.tool_rounds")] = Field(20, ge=0, description="Rounds of tool calls")
    calls_per_reply: Annotated[int, Cap("limits.calls_per_reply")] = Field(
        32, ge=1, description="Tool calls of one reply"
    )
    tool_calls: Annotated[int, Cap("limits.tool_calls")] = Field(
        200, ge=0, description="Tool calls of an execution, with those of the agents that it calls"
    )
    tool_result_bytes: int = Field(256 * _KIB, ge=1, description="Size of a tool result")
    upstream_bytes: int = Field(32 * _MIB, ge=1, description="Size of a provider reply")
    upstream_line_bytes: int = Field(4 * _MIB, ge=1, description="Size of one line of a provider stream")
    attempts: Annotated[int, Cap("limits.attempts")] = Field(3, ge=1, le=100, description="Attempts at a valid answer")
    replicas: int = Field(16, ge=1, le=MAX_REPLICAS, description="Replicas in mode redundant")
    plan_steps: Annotated[int, Cap("plan.steps"), Cap("plan.policy.max_steps")] = Field(
        50, ge=1, le=MAX_STEPS, description="Steps of a plan"
    )
    passes: Annotated[int, Cap("plan.passes")] = Field(20, ge=1, le=MAX_PASSES, description="Passes of a plan")
    flow_steps: Annotated[int, Cap("limits.flow_steps")] = Field(500, ge=1, le=100_000, description="Steps of a flow")
    history_messages: int = Field(50, ge=0, le=1000, description="Messages of a session that the model sees")
    history_tokens: int = Field(8_000, ge=0, description="Tokens of a session that the model sees")
    timeout: Annotated[float, Cap("hints.timeout"), Cap("plan.policy.timeout_per_step")] = Field(
        600, gt=0, description="Running time of an execution"
    )
    suspension_seconds: float = Field(7 * 24 * 3600, gt=0, description="Time after which a suspension expires")
    memory_bytes: int = Field(1024 * _MIB, ge=1, description="Size of all documents of a tenant")
    schedules: int = Field(100, ge=0, description="Schedules of a tenant")


_PARTS: Final = ("messages", "tools", "client_tools", "hints", "limits", "plan", "plan.policy")
"""Parts of a request, in the order in which a refusal lists their fields; those of one part have the order of rows."""
CAPS: Final = tuple(
    sorted(
        (
            (cap.field.partition(".")[0], name, cap)
            for name, limit in ConfiguredLimits.model_fields.items()
            for cap in limit.metadata
            if isinstance(cap, Cap)
        ),
        key=lambda row: _PARTS.index(row[2].part),
    )
)
"""Every cap, with the field of a request in which it is and the name of the limit, in the order of a refusal."""
