"""Selections of PREPARE for the context beside the conversation: skills and retrieved chunks."""

from typing import Final

from portico.domain.context.report import ContextChunk, ExcludedSkill, UsedSkill
from portico.domain.contract.messages import Message
from portico.domain.value import value


@value
class SelectedSkills:
    """The skills that were chosen, with one message for each in the same order, and the candidates that were not.

    Messages have the role system and the origin `skill`. `tools` are those that the chosen skills require; None if
    none of them requires any, so that the tools are not narrowed.
    """

    skills: tuple[UsedSkill, ...] = ()
    messages: tuple[Message, ...] = ()
    excluded: tuple[ExcludedSkill, ...] = ()
    tools: tuple[str, ...] | None = None


@value
class RetrievedContext:
    """The message with the chunks that are used, of role user and origin `retrieved`, and all chunks that were found.

    Without a message nothing was retrieved or nothing fits.
    """

    message: Message | None = None
    chunks: tuple[ContextChunk, ...] = ()


NO_SKILLS: Final = SelectedSkills()
NOTHING_RETRIEVED: Final = RetrievedContext()
