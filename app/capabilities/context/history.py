"""History of a conversation as the first inference reads it: the latest turns that fit, repaired and redacted.

The history is cut only where a turn begins: at a user message that follows a message of another role. So a tool result
is never separated from its call. A system message applies to its own turn: the prompt is the one in the request, else
the one that the session began with.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType

from app.capabilities.context.assembly import ContextPieces, assemble
from app.capabilities.context.redaction import Redactor
from app.capabilities.context.repair import repaired
from app.domain.context.report import NOTHING_CUT, HistoryCut
from app.domain.contract.messages import Message, system_prompt
from app.ports.model import TokenCounter
from app.ports.storage import SessionHistory


@dataclass(frozen=True, slots=True)
class SanitizedHistory:
    """The conversation that an execution begins with, and what was left out of the session or redacted, by kind."""

    pieces: ContextPieces
    cut: HistoryCut = NOTHING_CUT
    redacted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages in order."""
        return assemble(self.pieces)


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Upper bounds for the part of a session that is used: messages, tokens, and tokens of the whole conversation.

    With `redacts` the history is redacted.
    """

    messages: int
    tokens: int
    conversation_tokens: int
    redacts: bool = False


def without_history(own: Sequence[Message]) -> SanitizedHistory:
    """Return the conversation of a request alone."""
    prompt = system_prompt(own)
    return SanitizedHistory(ContextPieces(system=prompt, request=tuple(own[len(prompt) :])))


def sanitize_history(
    own: Sequence[Message], session: SessionHistory, limits: HistoryLimits, counter: TokenCounter
) -> SanitizedHistory:
    """Return the request's `own` messages, whole, after as many of the session's latest turns as fit."""
    if session.message_count == 0:
        return without_history(own)
    counts: Counter[str] = Counter()
    own_prompt = system_prompt(own)
    prompt, rest = own_prompt or tuple(session.system_messages), own[len(own_prompt) :]
    if limits.redacts and not own_prompt:
        prompt = _redacted(prompt, counts)
    stored = [message for message in session.recent_messages if message.role != "system"]
    entries = repaired(stored)
    earlier = [entry.message for entry in entries]
    counts_of = [Counter[str]() for _ in earlier]
    if limits.redacts:
        earlier = [_redacted((message,), each)[0] for message, each in zip(earlier, counts_of, strict=True)]
    tokens = min(limits.tokens, limits.conversation_tokens - sum(map(counter.message, (*prompt, *rest))))
    sizes = list(accumulate(map(counter.message, reversed(earlier))))[::-1]
    fitting = (at for at in _turn_starts(earlier) if len(earlier) - at <= limits.messages and sizes[at] <= tokens)
    start = next(fitting, len(earlier))
    used = entries[start:]
    left_out = len(stored) if not used else used[0].place or 0
    added = sum(entry.place is None for entry in used)
    not_loaded = max(0, session.message_count - len(session.recent_messages) - len(session.system_messages))
    cut = HistoryCut(not_loaded + left_out, repaired=len(stored) - left_out - len(used) + 2 * added)
    pieces = ContextPieces(prompt, history=tuple(earlier[start:]), request=tuple(rest))
    return SanitizedHistory(pieces, cut, dict(sum(counts_of[start:], counts)))


def inherited_history(messages: Sequence[Message]) -> SessionHistory:
    """Return the inherited messages as the history that the conversation begins with."""
    return SessionHistory(len(messages), messages, system_prompt(messages))


def _redacted(messages: Sequence[Message], counts: Counter[str]) -> tuple[Message, ...]:
    """Return the messages redacted, and add to the counts what was replaced."""
    redactor = Redactor()
    found = redactor.messages(messages)
    counts.update(redactor.counts)
    return found


def _turn_starts(messages: Sequence[Message]) -> Iterator[int]:
    """Yield the indexes at which a turn begins, oldest first."""
    for index, message in enumerate(messages):
        if message.role == "user" and (index == 0 or messages[index - 1].role != "user"):
            yield index
