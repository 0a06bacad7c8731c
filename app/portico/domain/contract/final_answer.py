"""Final answers of multi-pass reasoning and of salvage, and the state that they are written from [003]."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from portico.domain.contract.constrained_types import UnitInterval

ConvergenceStatus: TypeAlias = Literal["converged", "not_converged", "ttl_expired"]


class FinalAnswer(BaseModel):
    """Answer of an execution, with how far the execution got.

    `metadata.degraded` is always present. If it is true, `metadata.reason` says why.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    answer_text: str = Field(min_length=1, description="Text of the answer; if it is degraded, it says why.")
    confidence: UnitInterval | None = Field(None, description="Confidence in the answer.")
    used_step_ids: list[str] | None = Field(None, description="Names of the steps whose results the answer uses.")
    notes: str | None = Field(None, description="Remarks on the answer.")
    ttl_exhausted: bool | None = Field(None, description="True if no pass was left; absent otherwise.")
    metadata: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="`degraded`; if true, `reason` (`incomplete_state`, `ttl_expiration`, `zero_passes`, "
        "`non_convergent`, `synthesis_failed`, `limit_reached`), `missing_fields`, `limit` (the code of a limit "
        "that was reached), and what the execution found, by name.",
    )

    @property
    def is_degraded(self) -> bool:
        """True if the execution did not get as far as it should have."""
        return self.metadata.get("degraded") is True


class PhaseEInput(BaseModel):
    """State of a multi-pass execution at its end. The parts that it did not reach are None."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request: str = Field(description="The request.")
    correlation_id: str = Field(description="Id of the execution's trace.")
    execution_start_timestamp: datetime = Field(description="Time at which the execution started.")
    convergence_status: ConvergenceStatus = Field(description="Result of the last evaluation.")
    total_passes: int = Field(ge=0, description="Number of passes that ran.")
    total_refinements: int = Field(ge=0, description="Number of refinements of the plan.")
    ttl_remaining: int = Field(ge=0, description="Number of passes that were left.")
    plan_state: dict[str, Any] | None = Field(None, description="The plan, with the status of its steps.")
    execution_results: dict[str, Any] | None = Field(None, description="The results of the steps, by name.")
    convergence_assessment: dict[str, Any] | None = Field(None, description="The last assessment of convergence.")
    execution_passes: list[dict[str, Any]] | None = Field(None, description="The passes, the first one first.")
    semantic_validation: dict[str, Any] | None = Field(None, description="The semantic validation of the plan.")
    task_profile: dict[str, Any] | None = Field(None, description="The profile of the task.")
