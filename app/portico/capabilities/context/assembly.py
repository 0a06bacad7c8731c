"""Assembly: the messages of the first inference in the order of the prompt, from the pieces that stages chose.

    system prompt, skills, summary, history, request up to its last user message, retrieved context, that message

Messages that follow the last user message in the request, such as results of calls, stay behind it. The budget
equation is reckoned from the assembled messages by `context_window.measure`, so that no piece can be left out of it.
"""

from portico.domain.contract.messages import Message
from portico.domain.value import value


@value
class ContextPieces:
    """The pieces of a context apart from tools. `request` has no system messages at its beginning."""

    system: tuple[Message, ...] = ()
    skills: tuple[Message, ...] = ()
    summary: Message | None = None
    history: tuple[Message, ...] = ()
    request: tuple[Message, ...] = ()
    retrieved: Message | None = None


def assemble(pieces: ContextPieces) -> tuple[Message, ...]:
    """Return the messages in the order of the prompt."""
    summary = () if pieces.summary is None else (pieces.summary,)
    before = (*pieces.system, *pieces.skills, *summary, *pieces.history)
    if pieces.retrieved is None:
        return (*before, *pieces.request)
    at = _last_question(pieces.request)
    return (*before, *pieces.request[:at], pieces.retrieved, *pieces.request[at:])


def _last_question(messages: tuple[Message, ...]) -> int:
    """Return the index of the last user message; the end without one."""
    indexes = [index for index, message in enumerate(messages) if message.role == "user"]
    return indexes[-1] if indexes else len(messages)
