"""HistorySanitize: what of the conversation so far the model sees."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.messages import Message


@dataclass(frozen=True, slots=True)
class SanitizedHistory:
    """The conversation an execution begins with; `truncated` says whether any of it was left out."""

    messages: tuple[Message, ...]
    truncated: bool


def history_sanitize(messages: Sequence[Message]) -> SanitizedHistory:
    """The request's own messages, whole: only a session's history is ever cut."""
    return SanitizedHistory(tuple(messages), truncated=False)
