"""Prompts that have the final answer written from what an execution has found [003]."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, Field, JsonValue, field_validator

from portico.capabilities.prompting.definition import PromptDefinition, PromptId, PromptInput, PromptOutput
from portico.domain.contract.constrained_types import UnitInterval
from portico.domain.contract.final_answer import ConvergenceStatus, FinalAnswer, PhaseEInput

__all__ = ["PROMPTS", "AnswerSynthesisInput", "FinalAnswer", "FinalAnswerOutput"]

_OWN_FIELDS: Final = ("ttl_exhausted", "metadata")
"""Fields of the output that the service sets itself, so no model is asked for them."""
_ENDINGS: Final[Mapping[ConvergenceStatus, str]] = MappingProxyType(
    {
        "converged": "The result was found complete and consistent.",
        "not_converged": "The work ended before the result was found complete and consistent.",
        "ttl_expired": "The passes ran out before the result was found complete and consistent.",
    }
)


class AnswerSynthesisInput(PhaseEInput, PromptInput):
    """The state of an execution at its end, as the final answer is written from it."""

    has_reached_limit: bool = Field(False, description="True if a limit ended the work.")

    def output_schema(self, output: type[BaseModel]) -> dict[str, Any]:
        """Return the schema of the answer without the fields that the service sets itself."""
        form = super().output_schema(output)
        form["properties"] = {name: field for name, field in form["properties"].items() if name not in _OWN_FIELDS}
        return form

    @property
    def ending(self) -> str:
        """Return the sentence about how the work ended."""
        if self.has_reached_limit:
            return "A limit of the request ended the work before it was complete."
        return _ENDINGS[self.convergence_status]


class FinalAnswerOutput(PromptOutput):
    """The final answer as a model wrote it."""

    answer_text: str = Field(min_length=1, description="The answer.")
    confidence: UnitInterval | None = Field(None, description="Confidence that it is right and complete, 0 to 1.")
    used_step_ids: list[str] | None = Field(None, description="Names of the steps whose results it uses.")
    notes: str | None = Field(None, description="What its reader should know about it.")
    ttl_exhausted: bool | None = Field(None, description="True if no pass was left.")
    metadata: dict[str, JsonValue] = Field(default_factory=dict, description="Further facts.")

    @field_validator("answer_text")
    @classmethod
    def _reject_blank_text(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("must not be blank")
        return text


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.ANSWER_SYNTHESIS_SYSTEM,
        template="""\
You write the final answer to a request from what has been found. The work is over: you can neither look anything up
nor call a tool.

Reply with one JSON object and nothing else:
{"answer_text": the answer, in the language of the request, "confidence": a number from 0, certainly wrong, to 1,
certainly right and complete, "used_step_ids": [the names of the steps whose results it uses], "notes": what its reader
should know about it, or nothing}

- Answer the request itself. Do not describe the work.
- State nothing that the results do not support. If they leave a part of the request open, say in the answer which one.
- If results contradict each other, say so instead of choosing one in silence.""",
        input_model=AnswerSynthesisInput,
        output_model=FinalAnswerOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.ANSWER_SYNTHESIS_USER,
        template="""\
{data_rule} Where there is nothing, it is null.

The request to be answered:
{request}

{ending} Passes that ran: {total_passes}. Changes of the plan: {total_refinements}. Passes left: {ttl_remaining}.

The plan:
{plan_state}

The results:
{execution_results}

The last assessment of the results:
{convergence_assessment}

The passes:
{execution_passes}

The validation of the plan:
{semantic_validation}

The profile of the task:
{task_profile}""",
        input_model=AnswerSynthesisInput,
        output_model=FinalAnswerOutput,
    ),
)
