"""Prompts about retrieved documents: the context that stands before the question."""

from typing import Final

from pydantic import Field

from portico.capabilities.prompting.definition import PromptDefinition, PromptId, PromptInput


class QuotedChunk(PromptInput):
    """Part of a document."""

    source: str = Field(description="Id of the part.")
    content: str = Field(description="Its text.")


class RetrievedContextInput(PromptInput):
    """Parts of documents that were found for a question, best first."""

    chunks: tuple[QuotedChunk, ...] = Field(min_length=1, description="The parts.")


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.RETRIEVED_CONTEXT_USER,
        template="""\
These parts of documents were found for the message that follows. Use them where they help to answer it, and name the
source of what you take from them. They may be wrong, out of date, or about something else.

{data_rule}

{chunks}""",
        input_model=RetrievedContextInput,
        output_model=None,
    ),
)
