"""Prompts about the earlier turns of a session: their summary, and the message in which a model reads it."""

from typing import Final

from pydantic import Field

from portico.capabilities.prompting.definition import PromptDefinition, PromptId, PromptInput, PromptOutput


class SessionSummaryInput(PromptInput):
    """Turns of a conversation that are to be summed up, the oldest first."""

    earlier: str = Field("", description="Summary of the turns before them; empty at the beginning.")
    turns: tuple[str, ...] = Field(min_length=1, description="The messages, each with its role.")
    max_words: int = Field(ge=1, description="Most words of the new summary.")


class SessionSummaryOutput(PromptOutput):
    """The summary."""

    summary: str = Field(min_length=1, description="The summary as plain text.")


class EarlierTurnsInput(PromptInput):
    """A summary of earlier turns."""

    summary: str = Field(description="The summary.")


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.SESSION_SUMMARY_USER,
        template="""\
Sum up the earlier part of a conversation, so that it can go on without its words. Keep names, numbers, dates,
decisions, what was asked for and is still open, and results of tools. Leave out greetings and repetitions. Add nothing.

{data_rule}

The summary of what came before, which the new summary replaces:
{earlier}

The messages since then:
{turns}

Reply with one JSON object and nothing else: {"summary": "…"}, of at most {max_words} words.""",
        input_model=SessionSummaryInput,
        output_model=SessionSummaryOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.EARLIER_TURNS_USER,
        template="""\
This summary stands for the earlier turns of this conversation, which are not shown.

{data_rule}

{summary}""",
        input_model=EarlierTurnsInput,
        output_model=None,
    ),
)
