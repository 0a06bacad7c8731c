"""Configuration of an agent node."""

from collections.abc import Iterable
from dataclasses import dataclass

from portico.domain.contract.request import ExecutionHints, Limits
from portico.domain.tools import tool_of
from portico.domain.value import replace
from portico.ports.tool import Tool


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """An agent: its system prompt, its model, and its tools.

    `model` is a route or an engine, by name. `tools` are names of registered tools, or tools themselves; `submit`, with
    which a model hands in its answer, is added to them. `agent:NAME` is an agent of the configuration as a tool.

    With `agent`, the service takes all of it from the agent of that name in its configuration, with `hints` and
    `limits`.
    """

    preamble: str
    model: str
    tools: tuple[str | Tool, ...] = ()
    agent: str | None = None
    hints: ExecutionHints | None = None
    limits: Limits | None = None

    @classmethod
    def named(cls, agent: str) -> "AgentConfig":
        """Return the agent of that name in the configuration of the service."""
        return cls("", "", agent=agent)

    def with_tools(self, box: Iterable[str | Tool]) -> "AgentConfig":
        """Return the agent with these tools."""
        return replace(self, tools=tuple(box))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tool_of(tool) if isinstance(tool, str) else tool.info().name for tool in self.tools)
