"""HistorySanitize: what of the conversation so far the model sees.

Only a session's history is ever cut, and only where a turn begins: before a user who speaks after somebody else did.
So no tool result is separated from its call. It is cut to what fits the context window beside the request, too, or a
session that is long for its model would be at its end. A system message held for its own turn: the prompt is what the
request brings, else what the session began with.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile

from app.domain.frozen import dataclass
from app.domain.messages import Message
from app.keeping import Past
from app.ports import TokenCounter


@dataclass(frozen=True, slots=True)
class SanitizedHistory:
    """The conversation an execution begins with; `truncated` says whether any of it was left out."""

    messages: tuple[Message, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a session's history there may be: messages, tokens, and tokens of the whole conversation."""

    messages: int
    tokens: int
    room: int


def history_sanitize(own: Sequence[Message], past: Past, share: Share, counter: TokenCounter) -> SanitizedHistory:
    """The request's `own` messages, whole, behind as many of the latest turns of the past as have room."""
    if past.count == 0:
        return SanitizedHistory(tuple(own), truncated=False)
    brought = tuple(takewhile(_is_system, own))
    prompt, asked = brought or tuple(past.prompt), own[len(brought) :]
    earlier = [message for message in past.last if not _is_system(message)]
    tokens = min(share.tokens, share.room - counter.messages([*prompt, *asked]))
    sizes = list(accumulate(counter.messages([message]) for message in reversed(earlier)))[::-1]
    fitting = (at for at in _turns(earlier) if len(earlier) - at <= share.messages and sizes[at] <= tokens)
    kept = earlier[next(fitting, len(earlier)) :]
    unseen = past.count - len(past.last) > len(past.prompt)
    return SanitizedHistory((*prompt, *kept, *asked), truncated=unseen or len(kept) < len(earlier))


def _is_system(message: Message) -> bool:
    return message.role == "system"


def _turns(messages: Sequence[Message]) -> Iterator[int]:
    """Where turns begin, the first of them first."""
    for index, message in enumerate(messages):
        if message.role == "user" and (index == 0 or messages[index - 1].role != "user"):
            yield index
