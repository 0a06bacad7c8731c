"""ToolSplit: which tools the execution may offer. What is available now is asked again before every inference."""

from collections.abc import Sequence

from app.capabilities.tools.registry import ToolRegistry


def tool_split(requested: Sequence[str] | None, registry: ToolRegistry) -> tuple[str, ...]:
    """Registered ∩ requested; absent means all registered."""
    if requested is None:
        return tuple(registry.names())
    wanted = frozenset(requested)
    return tuple(name for name in registry.names() if name in wanted)
