"""Title of an execution: the beginning of what its user said last."""

from typing import Final

from portico.capabilities.guards.sensitive_text import find_sensitive, without
from portico.domain.journal.header import ExecutionHeader

MAX_TITLE: Final = 80
"""Maximum length in characters."""
_SEARCHED: Final = 65_536
"""Characters of the message that are redacted: more than the longest sensitive part that one pattern finds."""


def title_of(header: ExecutionHeader) -> str | None:
    """Return the first 80 characters of the last user message, without text None.

    White space is collapsed first, since two words may become one card number by it, and what is sensitive is redacted
    before the text is cut, since no pattern finds a half of it.
    """
    forks = () if header.fork is None else header.fork.chain
    messages = [*header.request.messages, *[message for fork in forks for message in fork.messages]]
    said = next(filter(lambda message: message.role == "user", reversed(messages)), None)
    text = "" if said is None else " ".join(said.text.lstrip()[:_SEARCHED].split())
    found = find_sensitive(text) if text else []
    return (without(text, found).text if found else text)[:MAX_TITLE] or None
