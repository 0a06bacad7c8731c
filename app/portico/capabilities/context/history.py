"""History of a conversation as the first inference reads it: the latest turns that fit, repaired and redacted.

The history is cut only where a turn begins: at a user message that follows a message of another role. So a tool result
is never separated from its call. A system message applies to its own turn: the prompt is the one in the request, else
the one that the session began with.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate
from types import MappingProxyType

from portico.capabilities.context.assembly import ContextPieces, assemble
from portico.capabilities.context.redaction import Redactor, sensitive_messages
from portico.capabilities.context.repair import Entry, is_whole, repaired, unanswered
from portico.domain.context.report import NOTHING_CUT, HistoryCut
from portico.domain.contract.messages import Message, leading_results, system_prompt
from portico.domain.value import value
from portico.ports.model import TokenCounter
from portico.ports.storage import SessionHistory


@value
class SanitizedHistory:
    """The conversation that an execution begins with, and what was left out of the session or redacted, by kind."""

    pieces: ContextPieces
    cut: HistoryCut = NOTHING_CUT
    redacted: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages in order."""
        return assemble(self.pieces)


@value
class HistoryLimits:
    """Upper bounds for the part of a session that is used: messages, tokens, and tokens of the whole conversation.

    With `redacts` the history is redacted. If it `leaves_room`, a quarter of what the request leaves stays free for the
    calls and results that tool rounds add, since an execution that overflows later would fail.
    """

    messages: int
    tokens: int
    conversation_tokens: int
    redacts: bool = False
    leaves_room: bool = False

    def history_tokens(self, own: int) -> int:
        """Return the tokens that a history may have beside so many of the request."""
        room = self.conversation_tokens - own
        return min(self.tokens, room * 3 // 4 if self.leaves_room else room)


def without_history(own: Sequence[Message]) -> SanitizedHistory:
    """Return the conversation of a request alone. Raises: as `unanswered`, since no calls are open."""
    prompt = system_prompt(own)
    if len(own) > len(prompt) and own[len(prompt)].role == "tool":
        unanswered((), own)
    return SanitizedHistory(ContextPieces(system=prompt, request=tuple(own[len(prompt) :])))


def sanitize_history(
    own: Sequence[Message], session: SessionHistory, limits: HistoryLimits, counter: TokenCounter
) -> SanitizedHistory:
    """Return the request's `own` messages, whole, after as many of the session's latest turns as fit.

    If they begin with results of the last turn's calls, that turn is there in any case, so that the calls are.

    Raises: as `unanswered`.
    """
    if session.message_count == 0:
        return without_history(own)
    own_prompt = system_prompt(own)
    prompt, rest = own_prompt or tuple(session.system_messages), own[len(own_prompt) :]
    stored = [message for message in session.recent_messages if message.role != "system"]
    results: Sequence[Message] = ()
    if (rest and rest[0].role == "tool") or (stored and (stored[-1].role == "tool" or stored[-1].tool_calls)):
        results = leading_results(own)
        stored += unanswered(stored, own)
    entries = None if is_whole([*stored, *results]) else repaired([*stored, *results])
    entries = entries[: len(entries) - len(results)] if entries and results else entries
    earlier = stored if entries is None else [entry.message for entry in entries]
    redacted = _Redacted(earlier) if limits.redacts else None
    if redacted is not None:
        earlier = redacted.messages
        prompt = prompt if own_prompt else redacted.prompt(prompt)
    tokens = limits.history_tokens(sum(map(counter.message, (*prompt, *rest))))
    sizes = list(accumulate(map(counter.message, reversed(earlier))))[::-1]
    fitting = (at for at in _turn_starts(earlier) if len(earlier) - at <= limits.messages and sizes[at] <= tokens)
    start = next(fitting, max(_turn_starts(earlier), default=0) if results else len(earlier))
    not_loaded = max(0, session.message_count - len(session.recent_messages) - len(session.system_messages))
    left_out, repairs = _left_out(entries, start, len(stored))
    cut = HistoryCut(not_loaded + left_out, repaired=repairs)
    pieces = ContextPieces(prompt, history=tuple(earlier[start:]), request=tuple(rest))
    return SanitizedHistory(pieces, cut, {} if redacted is None else redacted.counts_from(start))


def _left_out(entries: Sequence[Entry] | None, start: int, stored: int) -> tuple[int, int]:
    """Return how many of the stored messages are before the first used one, and how many repairs are behind it."""
    if entries is None:
        return start, 0
    used = entries[start:]
    left_out = stored if not used else used[0].place or 0
    added = sum(entry.place is None for entry in used)
    return left_out, stored - left_out - len(used) + 2 * added


class _Redacted:
    """Messages redacted, with what was replaced in each of them."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)
        self._counts: dict[int, Counter[str]] = {}
        self._prompt = Redactor()
        for index, findings in sensitive_messages(messages).items():
            redactor = Redactor()
            self.messages[index] = redactor.message(messages[index], findings)
            self._counts[index] = redactor.counts

    def prompt(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the system prompt redacted; what is replaced counts."""
        return self._prompt.messages(messages)

    def counts_from(self, start: int) -> dict[str, int]:
        """Return how many values were replaced in the prompt and in the messages from that index on, by kind."""
        found = Counter(self._prompt.counts)
        for index, counts in self._counts.items():
            if index >= start:
                found.update(counts)
        return dict(found)


def inherited_history(messages: Sequence[Message]) -> SessionHistory:
    """Return the inherited messages as the history that the conversation begins with."""
    return SessionHistory(len(messages), messages, system_prompt(messages))


def _turn_starts(messages: Sequence[Message]) -> Iterator[int]:
    """Yield the indexes at which a turn begins, oldest first."""
    for index, message in enumerate(messages):
        if message.role == "user" and (index == 0 or messages[index - 1].role != "user"):
            yield index
