"""Agents as tools: every configured agent by name, the tools that it reaches, and the tool that it is to others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from portico.domain.agents import ConfiguredAgent
from portico.domain.tools import AGENT_TOOL_PREFIX, Availability, SideEffects, ToolDefinition, ToolInfo
from portico.ports.tool import Tool, ToolContext, ToolError

_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What the agent is asked to do."}},
    "required": ["message"],
    "additionalProperties": False,
}
_SEVERITY: Sequence[SideEffects] = (SideEffects.NONE, SideEffects.READ, SideEffects.WRITE, SideEffects.EXTERNAL)


class AgentCatalogue:
    """Every configured agent by name."""

    def __init__(self, agents: Iterable[ConfiguredAgent] = ()) -> None:
        self._agents = {agent.name: agent for agent in sorted(agents, key=lambda agent: agent.name)}
        self._by_tool = {AGENT_TOOL_PREFIX + agent.name: agent for agent in self._agents.values()}

    def all(self) -> list[ConfiguredAgent]:
        """Return the agents in the order of their names."""
        return list(self._agents.values())

    def get(self, name: str) -> ConfiguredAgent | None:
        """Return the agent of that name; None if there is none."""
        return self._agents.get(name)

    def behind(self, tool: str) -> ConfiguredAgent | None:
        """Return the agent that the tool is; None for any other tool."""
        return self._by_tool.get(tool)

    def reachable(self, tools: Iterable[str]) -> frozenset[str]:
        """Return these tools and all that the agents among them reach, at any depth."""
        found: set[str] = set()
        unread = list(tools)
        while unread:
            tool = unread.pop()
            if tool not in found:
                found.add(tool)
                agent = self.behind(tool)
                unread += () if agent is None else agent.tools
        return frozenset(found)

    def behind_any(self, tools: Iterable[str]) -> list[ConfiguredAgent]:
        """Return the agents that these tools reach, at any depth."""
        return [agent for tool in sorted(self.reachable(tools)) if (agent := self.behind(tool)) is not None]

    def tools(self, others: Iterable[ToolInfo]) -> list[Tool]:
        """Return the agents as tools; `others` are the tools that they may call, as far as those are known yet."""
        infos = {info.name: info for info in others}
        return [AgentTool(agent, self._reached(agent, infos)) for agent in self._agents.values()]

    def _reached(self, agent: ConfiguredAgent, infos: Mapping[str, ToolInfo]) -> list[ToolInfo]:
        """Return the tools that an agent reaches; one that its server has yet to list counts as the worst."""
        names = [name for name in sorted(self.reachable(agent.tools)) if self.behind(name) is None]
        return [infos.get(name) or unlisted_tool(name) for name in names]


NO_AGENTS: Final = AgentCatalogue()


def unlisted_tool(name: str) -> ToolInfo:
    """Return a tool of an MCP server before its server has listed it: it is taken for one that acts on the world."""
    return ToolInfo(name, "mcp", "", SideEffects.EXTERNAL, idempotent=False)


class AgentTool:
    """An agent as a tool, with the worst safety of the tools that it reaches. Its calls are nested runs."""

    def __init__(self, agent: ConfiguredAgent, reached: Sequence[ToolInfo]) -> None:
        effects = max((each.side_effects for each in reached), key=_SEVERITY.index, default=SideEffects.NONE)
        acts = effects in {SideEffects.WRITE, SideEffects.EXTERNAL}
        is_idempotent = not any(each.unsafe for each in reached) if acts else all(each.idempotent for each in reached)
        name = AGENT_TOOL_PREFIX + agent.name
        self._info = ToolInfo(name, "agent", agent.description, effects, is_idempotent)
        self._definition = ToolDefinition(name, agent.description, _PARAMETERS)

    def info(self) -> ToolInfo:
        return self._info

    def definition(self) -> ToolDefinition:
        return self._definition

    def available(self) -> Availability:
        return Availability(available=True)

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Raise ToolError: an agent is run by the execution that calls it, not by the executor of tools."""
        raise ToolError("an agent runs only within an execution")
