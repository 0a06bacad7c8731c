"""Flows of the configuration: the modules that register them, their checks, and the context of their functions."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from portico.bootstrap.modules import import_modules, invalid_module
from portico.capabilities.models.catalogue import DEFAULT_ROUTE, EngineCatalogue
from portico.capabilities.tools.agents import AgentCatalogue
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.value import replace, value
from portico.orchestration.flow.agent_config import AgentConfig
from portico.orchestration.flow.context import Context
from portico.orchestration.flow.errors import FlowError, Invalid
from portico.orchestration.flow.graph import FlowGraph
from portico.orchestration.flow.nodes import AgentNode, Node
from portico.orchestration.flow.registration import FlowDefinition
from portico.orchestration.flow.served_flow import ServedFlow
from portico.ports.tool import Tool
from portico.settings.tables.ingress import IngressSettings, unknown_flows
from portico.settings.tables.modules import FlowSettings


@value
class LoadedFlow:
    """A flow that a module registered: its graph, and the dependencies that it provides."""

    graph: FlowGraph[Any, Any]
    provide: tuple[object, ...]


def load_flows(settings: FlowSettings, directory: Path) -> dict[str, LoadedFlow]:
    """Import the modules and return the flows that they register; `directory` is importable from then on.

    Raises: ConfigurationFailure (CONFIG_INVALID) for a module that cannot be imported, (CONFIG_FLOW_INVALID) for a flow
    that cannot be built, and for two flows of one name.
    """
    if settings.working_dir is not None and not Path(settings.working_dir).is_dir():
        raise ConfigurationFailure(Code.CONFIG_INVALID, "flows.working_dir: must be a directory")
    flows: dict[str, LoadedFlow] = {}
    for module in import_modules(settings.modules, key="flows.modules", directory=directory):
        for definition in _definitions(module):
            if definition.name in flows:
                raise _invalid(definition.name, "another flow has this name")
            flows[definition.name] = LoadedFlow(_graph(definition), definition.provide)
    return flows


def with_agents(flows: Mapping[str, LoadedFlow], agents: AgentCatalogue) -> dict[str, LoadedFlow]:
    """Return the flows whose nodes have the agents that they name.

    Raises: ConfigurationFailure (CONFIG_FLOW_INVALID) for an agent that is not configured.
    """
    return {
        name: replace(
            flow, graph=replace(flow.graph, nodes=tuple(_with_agent(name, node, agents) for node in flow.graph.nodes))
        )
        for name, flow in flows.items()
    }


def _with_agent(flow: str, node: Node, agents: AgentCatalogue) -> Node:
    if not isinstance(node, AgentNode) or node.config.agent is None:
        return node
    agent = agents.get(node.config.agent)
    if agent is None:
        raise _invalid(flow, f"{node.key}: its agent {node.config.agent} is not configured")
    config = AgentConfig(
        agent.system_prompt or "", agent.model or DEFAULT_ROUTE, agent.tools, agent.name, agent.hints, agent.limits
    )
    return replace(node, config=config)


def tools_of_flows(flows: Mapping[str, LoadedFlow]) -> list[Tool]:
    """Return the tools that agents hold themselves, each once; those held by name are registered elsewhere."""
    held = [tool for flow in flows.values() for agent in _agents(flow) for tool in agent.config.tools]
    return list({id(tool): tool for tool in held if not isinstance(tool, str)}.values())


def check_flows(flows: Mapping[str, LoadedFlow], catalogue: EngineCatalogue, registry: ToolRegistry) -> None:
    """Raise ConfigurationFailure (CONFIG_FLOW_INVALID) for an agent whose model or tool is not configured."""
    for name, flow in flows.items():
        for agent in _agents(flow):
            if not catalogue.has(agent.config.model):
                raise _invalid(name, f"{agent.key}: its model {agent.config.model} is no route and no engine")
            for tool in agent.config.tool_names:
                if registry.get(tool) is None:
                    raise _invalid(name, f"{agent.key}: its tool {tool} is not registered")


def check_aliases(ingress: IngressSettings, flows: Collection[str]) -> None:
    """Raise ConfigurationFailure (CONFIG_INVALID) for an alias of a flow that does not exist."""
    errors = [f"{key}: {message}" for key, message in unknown_flows(ingress, flows)]
    if errors:
        raise ConfigurationFailure(Code.CONFIG_INVALID, "; ".join(errors))


def served_flows(
    flows: Mapping[str, LoadedFlow], settings: FlowSettings, *dependencies: object
) -> dict[str, ServedFlow]:
    """Return the flows with the context of their functions."""
    return {
        name: ServedFlow(
            flow.graph,
            Context(settings.working_dir, settings.commands, (*dependencies, *flow.provide), settings.http_timeout),
        )
        for name, flow in flows.items()
    }


@asynccontextmanager
async def open_flows(flows: Mapping[str, LoadedFlow], settings: FlowSettings) -> AsyncIterator[dict[str, ServedFlow]]:
    """Serve the flows, with one HTTP client for all of their nodes, until the context ends."""
    if not flows:
        yield {}
        return
    # Only flows need it, and its import takes a while.
    from httpx2 import AsyncClient  # noqa: PLC0415 - see above

    async with AsyncClient(timeout=settings.http_timeout) as http:
        yield served_flows(flows, settings, http)


def _definitions(module: ModuleType) -> list[FlowDefinition[Any, Any]]:
    """Return the flows of a module in their order. Raises: ConfigurationFailure (CONFIG_INVALID)."""
    found = [each for each in vars(module).values() if isinstance(each, FlowDefinition)]
    if not found:
        problem = "registers no flow; decorate a function with @flow(NAME)"
        raise invalid_module("flows.modules", module.__name__, problem)
    return found


def _graph(definition: FlowDefinition[Any, Any]) -> FlowGraph[Any, Any]:
    """Return the graph of a flow. Raises: ConfigurationFailure (CONFIG_FLOW_INVALID)."""
    try:
        graph = definition()
        _ = graph.fingerprint  # made now, so that a state without a schema stops the start
    except Invalid as invalid:
        raise _invalid(definition.name, "; ".join(invalid.problems)) from invalid
    except FlowError as error:
        raise _invalid(definition.name, str(error)) from error
    except Exception as error:  # other people's code may raise anything
        raise _invalid(definition.name, f"{type(error).__name__}: {error}") from error
    return graph


def _agents(flow: LoadedFlow) -> list[AgentNode]:
    return [node for node in flow.graph.nodes if isinstance(node, AgentNode)]


def _invalid(name: str, problem: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_FLOW_INVALID, f"the flow {name} cannot be used: {problem}")
