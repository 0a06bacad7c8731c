"""ContextGuard: whether the request fits the context window of any engine it may use."""

from collections.abc import Sequence

from app.capabilities.context import exceeded, measure, room
from app.domain.tools import ToolDefinition
from app.orchestration.pipeline.history_sanitize import SanitizedHistory
from app.ports import Engine, TokenCounter


def context_guard(
    history: SanitizedHistory, tools: Sequence[ToolDefinition], engines: Sequence[Engine], counter: TokenCounter
) -> None:
    """Checks the budget equation. Raises: InferenceFailure (INFERENCE_CONTEXT_EXCEEDED) with both sides of it."""
    limit = max(room(engine) for engine in engines)
    parts = measure(history.messages, counter.tools(tools), counter)
    if parts.used > limit:
        raise exceeded(parts, limit)
