"""Configuration of an agent node."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.ports.tool import Tool


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """An agent: its system prompt, its model, and its tools.

    `model` is a route or an engine, by name. `tools` are names of registered tools, or tools themselves; `submit`, with
    which a model hands in its answer, is added to them.
    """

    preamble: str
    model: str
    tools: tuple[str | Tool, ...] = ()

    def with_tools(self, box: Iterable[str | Tool]) -> "AgentConfig":
        """Return the agent with these tools."""
        return replace(self, tools=tuple(box))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tool if isinstance(tool, str) else tool.info().name for tool in self.tools)
