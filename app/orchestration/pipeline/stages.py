"""AuthResolve: who asks, and whether they may. Runs before INIT, so a refusal leaves no execution behind."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile

from app.capabilities.models.context_window import capacity, context_exceeded, measure
from app.capabilities.tools.registry import ToolRegistry
from app.domain.access import Principal
from app.domain.contract.messages import Message
from app.domain.failures import AccessFailure, Code
from app.domain.frozen import dataclass
from app.domain.tools import ToolDefinition
from app.ports.model import Engine, TokenCounter
from app.ports.storage import SessionHistory


def auth_resolve(principal: Principal) -> Principal:
    """The principal the execution runs for. Raises: AccessFailure (ACCESS_DENIED)."""
    if not principal.can_send_messages:
        raise AccessFailure(Code.ACCESS_DENIED, "the caller may not send messages", {"permission": "can_send_messages"})
    return principal


@dataclass(frozen=True, slots=True)
class SanitizedHistory:
    """The conversation an execution begins with; `truncated` says whether any of it was left out."""

    messages: tuple[Message, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How much of a session's history there may be: messages, tokens, and tokens of the whole conversation."""

    messages: int
    tokens: int
    room: int


def history_sanitize(
    own: Sequence[Message], past: SessionHistory, share: HistoryLimits, counter: TokenCounter
) -> SanitizedHistory:
    """The request's `own` messages, whole, behind as many of the latest turns of the past as have room."""
    if past.message_count == 0:
        return SanitizedHistory(tuple(own), truncated=False)
    brought = tuple(takewhile(_is_system, own))
    prompt, asked = brought or tuple(past.system_messages), own[len(brought) :]
    earlier = [message for message in past.recent_messages if not _is_system(message)]
    tokens = min(share.tokens, share.room - counter.messages([*prompt, *asked]))
    sizes = list(accumulate(counter.messages([message]) for message in reversed(earlier)))[::-1]
    fitting = (at for at in _turns(earlier) if len(earlier) - at <= share.messages and sizes[at] <= tokens)
    kept = earlier[next(fitting, len(earlier)) :]
    unseen = past.message_count - len(past.recent_messages) > len(past.system_messages)
    return SanitizedHistory((*prompt, *kept, *asked), truncated=unseen or len(kept) < len(earlier))


def _is_system(message: Message) -> bool:
    return message.role == "system"


def _turns(messages: Sequence[Message]) -> Iterator[int]:
    """Where turns begin, the first of them first."""
    for index, message in enumerate(messages):
        if message.role == "user" and (index == 0 or messages[index - 1].role != "user"):
            yield index


def context_guard(
    history: SanitizedHistory, tools: Sequence[ToolDefinition], engines: Sequence[Engine], counter: TokenCounter
) -> None:
    """Checks the budget equation. Raises: InferenceFailure (INFERENCE_CONTEXT_EXCEEDED) with both sides of it."""
    limit = max(capacity(engine) for engine in engines)
    parts = measure(history.messages, counter.tools(tools), counter)
    if parts.used > limit:
        raise context_exceeded(parts, limit)


def tool_split(requested: Sequence[str] | None, registry: ToolRegistry) -> tuple[str, ...]:
    """Registered ∩ requested; absent means all registered."""
    if requested is None:
        return tuple(registry.names())
    wanted = frozenset(requested)
    return tuple(name for name in registry.names() if name in wanted)
