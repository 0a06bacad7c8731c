"""Agents of the configuration: their catalogue, and checks against the tools and output contracts that there are."""

from collections.abc import Collection, Mapping, Sequence

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.answer_contract import AnswerContract
from portico.capabilities.output.rules.rule_set import RuleRegistry
from portico.capabilities.tools.agents import AgentCatalogue, unlisted_tool
from portico.capabilities.tools.registry import ToolList
from portico.domain.agents import ConfiguredAgent
from portico.domain.contract.request import NamedTool
from portico.domain.failures import Code, ConfigurationFailure, Failure
from portico.domain.lifecycle import Mode
from portico.domain.tools import ToolInfo, reference_of
from portico.domain.value import replace
from portico.ports.tool import ToolSource
from portico.settings import Settings
from portico.settings.values import closest_name


def configured_agents(settings: Settings, grammars: Mapping[str, str]) -> AgentCatalogue:
    """Return the configured agents, with the texts of the grammars that they name."""
    return AgentCatalogue(_with_grammar(agent.agent(name), grammars) for name, agent in settings.agents.items())


def check_agents(
    agents: AgentCatalogue, sources: Sequence[ToolSource], rules: RuleRegistry, servers: Collection[str] = ()
) -> None:
    """Check that the agents can run with the built-in tools, those of the sources and of these MCP servers, and rules.

    Raises: ConfigurationFailure (CONFIG_INVALID) naming the key of an agent that cannot.
    """
    tools = [*_infos(sources), *_expected(agents, servers)]
    infos = [*tools, *(tool.info() for tool in agents.tools(tools))]
    known, unsafe = {info.name for info in infos}, {info.name for info in infos if info.unsafe}
    for agent in agents.all():
        _check(agent, known, unsafe, rules)


def agent_source(agents: AgentCatalogue, sources: Sequence[ToolSource]) -> ToolSource:
    """Return the source of the agents as tools, which call those of the other sources."""
    return ToolList("agents", agents.tools(_infos(sources)))


def _infos(sources: Sequence[ToolSource]) -> list[ToolInfo]:
    return [tool.info() for tool in (*BUILTIN_TOOLS, *(tool for source in sources for tool in source.tools))]


def _expected(agents: AgentCatalogue, servers: Collection[str]) -> list[ToolInfo]:
    """Return the tools of MCP servers that agents name; a server lists them only after the start."""
    names = {tool for agent in agents.all() for tool in agent.tools if tool.partition("__")[0] in servers}
    return [unlisted_tool(name) for name in sorted(names)]


def _with_grammar(agent: ConfiguredAgent, grammars: Mapping[str, str]) -> ConfiguredAgent:
    text = grammars.get(agent.output.grammar or "")
    if text is None:
        return agent
    return replace(agent, output=agent.output.model_copy(update={"grammar": text}))


def _check(agent: ConfiguredAgent, known: Collection[str], unsafe: Collection[str], rules: RuleRegistry) -> None:
    here = f"agents.{agent.name}"
    for index, tool in enumerate(agent.tools):
        if tool not in known:
            closest = reference_of(closest_name(tool, known))
            raise _invalid(f"{here}.tools.{index}", f"must name a registered tool; did you mean {closest}?")
        if agent.mode is Mode.REDUNDANT and tool in unsafe:
            raise _invalid(f"{here}.tools.{index}", "must be safe to call twice in mode redundant")
    choice = agent.hints.tool_choice
    if isinstance(choice, NamedTool) and choice.name not in agent.tools:
        raise _invalid(f"{here}.hints.tool_choice", "must name one of the agent's tools")
    try:
        AnswerContract(agent.output, rules).compile()
    except Failure as failure:
        raise _invalid(f"{here}.output", failure.message) from failure


def _invalid(key: str, message: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"{key}: {message}")
