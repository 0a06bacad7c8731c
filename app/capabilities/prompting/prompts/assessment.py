"""Prompts by which a model judges what a model said."""

from typing import Final

from pydantic import Field, JsonValue

from app.capabilities.prompting.definition import PromptDefinition, PromptId, PromptInput, PromptOutput
from app.domain.contract.constrained_types import UnitInterval


class SemanticValidationInput(PromptInput):
    """An answer, and what it is judged by."""

    request: str = Field(description="What was asked, in the words of who asked it.")
    intent: str = Field(
        "Answer the request, all of it, correctly, and without making anything up.",
        min_length=1,
        description="What the answer is for.",
    )
    answer: JsonValue = Field(description="The answer: a text or a JSON value.")


class SemanticValidationOutput(PromptOutput):
    """A judgement."""

    valid: bool = Field(description="Whether the answer serves the intent.")
    score: UnitInterval = Field(description="How well, from 0 (not at all) to 1 (fully).")
    issues: tuple[str, ...] = Field((), description="Each fault in a short sentence; none when there is no fault.")


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.VALIDATION_SEMANTIC_SYSTEM,
        template="""\
You judge whether an answer to a request serves its intent. You do not answer the request.

It does not when it misses what the intent demands, contradicts the request or itself, states as a fact what it cannot
know, or makes no sense.

Reply with one JSON object and nothing else:
{"valid": true or false, "score": a number from 0, serves it not at all, to 1, serves it fully, "issues": [each fault
in a short sentence, or nothing]}""",
        input_model=SemanticValidationInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.VALIDATION_SEMANTIC_USER,
        template="""\
{data_rule}

The request:
{request}

The intent:
{intent}

The answer to be judged:
{answer}""",
        input_model=SemanticValidationInput,
        output_model=SemanticValidationOutput,
    ),
)
