"""Result of a pattern."""

from typing import Final

from pydantic import JsonValue

from portico.domain.contract.constrained_types import ConfidenceSource
from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.response import AnswerPart, PlanReport, ValidationResult, VoteReport
from portico.domain.value import replace, value

CLIENT_CALLS: Final = "client_calls"
"""Reason of the transitions of an execution that ends with calls for its client."""


@value
class PatternResult:
    """Part of a response that the pattern provides. `confidence` is between 0 and 1.

    `repeated` are the parts of the answer that no model wrote as the answer to the request. With `client_calls` the
    model has not answered yet: the client is left with these calls.
    """

    content: str | None
    structured_output: JsonValue = None
    validation: ValidationResult | None = None
    confidence: float | None = None
    confidence_source: ConfidenceSource | None = None
    vote: VoteReport | None = None
    plan: PlanReport | None = None
    final_answer: FinalAnswer | None = None
    repeated: tuple[AnswerPart, ...] = ()
    client_calls: tuple[ToolCall, ...] = ()

    def without_value(self) -> "PatternResult":
        """Return the result without the answer."""
        return replace(self, content=None, structured_output=None)
