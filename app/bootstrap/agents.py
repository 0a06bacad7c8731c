"""Agents of the configuration: their catalogue, and checks against the tools and output contracts that there are."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from app.capabilities.answer_contract import AnswerContract
from app.capabilities.tools.agents import AgentCatalogue
from app.domain.agents import ConfiguredAgent
from app.domain.contract.request import NamedTool
from app.domain.failures import Code, ConfigurationFailure, Failure
from app.domain.lifecycle import Mode
from app.domain.tools import reference_of
from app.ports.tool import Tool
from app.settings import Settings
from app.settings.schema import closest_name


def load_agents(settings: Settings, grammars: Mapping[str, str], tools: Collection[Tool]) -> AgentCatalogue:
    """Return the configured agents, which may call these tools.

    Raises: ConfigurationFailure (CONFIG_INVALID) naming the key of an agent that cannot run.
    """
    found = [_with_grammar(agent.agent(name), grammars) for name, agent in settings.agents.items()]
    catalogue = AgentCatalogue(found)
    names = {tool.info().name for tool in tools}
    known = {*names, *(tool.info().name for tool in catalogue.tools(tools))}
    unsafe = {tool.info().name for tool in (*tools, *catalogue.tools(tools)) if tool.info().unsafe}
    for agent in found:
        _check(agent, known, unsafe)
    return catalogue


def _with_grammar(agent: ConfiguredAgent, grammars: Mapping[str, str]) -> ConfiguredAgent:
    text = grammars.get(agent.output.grammar or "")
    if text is None:
        return agent
    return replace(agent, output=agent.output.model_copy(update={"grammar": text}))


def _check(agent: ConfiguredAgent, known: Collection[str], unsafe: Collection[str]) -> None:
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
        AnswerContract(agent.output).compile()
    except Failure as failure:
        raise _invalid(f"{here}.output", failure.message) from failure


def _invalid(key: str, message: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_INVALID, f"{key}: {message}")
