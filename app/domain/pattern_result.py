"""What a pattern produces: the answer's text, and what its mode adds to it."""

from dataclasses import dataclass

from pydantic import JsonValue

from app.domain.contract.constrained_types import ConfidenceSource
from app.domain.contract.response import PlanReport, ValidationResult, VoteReport


@dataclass(frozen=True, slots=True)
class PatternResult:
    """The part of a response that its pattern answers for. `confidence` is a share of 1."""

    content: str | None
    structured_output: JsonValue = None
    validation: ValidationResult | None = None
    confidence: float | None = None
    confidence_source: ConfidenceSource | None = None
    vote: VoteReport | None = None
    plan: PlanReport | None = None
