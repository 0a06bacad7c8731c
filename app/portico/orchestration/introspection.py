"""Introspection: the configured engines and tools as clients see them, and a check that engines can be reached."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, Field, JsonValue

from portico.capabilities.models.catalogue import DEFAULT_ROUTE
from portico.capabilities.models.deployments import DeploymentState
from portico.capabilities.models.health import BreakerState, CircuitBreaker, DeploymentHealth
from portico.capabilities.models.recent_attempts import MINUTE_S, MINUTES, RecentAttempts, percentile
from portico.capabilities.prompting.definition import PromptDefinition, PromptId
from portico.capabilities.prompting.prompts.planning import STEP_TYPE_DESCRIPTIONS
from portico.capabilities.prompting.registry import SYSTEM_PROMPTS, default_registry
from portico.capabilities.tools.agents import unlisted_tool
from portico.capabilities.tools.policy import ToolPolicy
from portico.capabilities.tools.registry import BUILT_IN, MODULES
from portico.capabilities.tools.step_function import StepFunction
from portico.domain.access.principal import Permission, Permissions
from portico.domain.agents import ConfiguredAgent
from portico.domain.contract.request import OutputContract
from portico.domain.failures import Code
from portico.domain.ids import ReplicaId
from portico.domain.lifecycle import Mode
from portico.domain.model_call import CAUSES
from portico.domain.plan.steps import STEP_SPECS, StepOptions
from portico.domain.tools import (
    AGENT_TOOL_PREFIX,
    PERSON,
    Availability,
    ServerFault,
    SideEffects,
    ToolServerStatus,
    reference_of,
)
from portico.domain.value import value
from portico.orchestration.engine_views import (
    AttemptBucket,
    DeploymentView,
    EngineHealth,
    EnginePing,
    EnginePrice,
    EngineView,
)
from portico.orchestration.execution.environment import Environment
from portico.orchestration.flow.graph import FlowGraph
from portico.orchestration.flow.nodes import AgentNode
from portico.orchestration.flow.served_flow import ServedFlow
from portico.orchestration.rights import require
from portico.ports.model import EngineError


@value
class ServedAgent:
    """An agent as the model of a request: its mode, its own model, its output contract, and the tools it reaches."""

    mode: Mode
    model: str | None
    output: OutputContract
    tools: frozenset[str]


@value
class ServedModels:
    """The things that a request may be for: agents, routes and engines, and flows, by name.

    `options` are the keys of `hints.options` that an engine behind a route or an engine's name passes on. The
    `person_tools` wait for the answer of a person.
    """

    agents: Mapping[str, ServedAgent]
    options: Mapping[str, frozenset[str]]
    flows: frozenset[str]
    person_tools: frozenset[str]
    default_route: str = DEFAULT_ROUTE


class ToolView(BaseModel):
    """A registered tool as GET /v1/tools shows it."""

    name: str = Field(description="The tool's name.")
    type: str = Field(description="The kind of tool.")
    source: str = Field(description="The source: `built-in`, `sandbox`, `modules`, `flows`, `cli`, `http` or `mcp`.")
    description: str = Field(description="The description that the model reads.")
    parameters: dict[str, JsonValue] = Field(description="JSON Schema of its arguments.")
    side_effects: SideEffects = Field(description="The effect of a call on the outside world.")
    idempotent: bool = Field(description="True if a second call has no further effect.")
    at_most_once: bool = Field(
        description="True if a call acts and is not idempotent: it never runs twice unless a person says so."
    )
    approval: bool = Field(description="True if a call may wait for a person.")
    retried: bool = Field(description="True if a call that failed is tried once more.")
    requires: list[str] = Field(description="Requirements of its environment; `person` waits for an answer.")
    containment: str = Field(description="How a call is contained; empty for a tool that runs in the service itself.")
    isolation: str = Field(
        description="The level of isolation in force: `bubblewrap`, `landlock`, `limits`, or `interpreter` for code"
        " that calls tools; empty without a program."
    )
    network: str = Field(
        description="The hosts that its program reaches: `none`, or `open` for all that the service reaches; empty"
        " without a program."
    )
    original_name: str = Field(description="The name at its MCP server; empty for a tool of another source.")
    available: bool = Field(description="True if the tool can run now.")
    reason: str = Field(description="The reason if it cannot.")


class StepTypeView(BaseModel):
    """A step type of plans as GET /v1/step-types shows it."""

    name: str = Field(description="The type's name; `type` of a step.")
    source: str = Field(description="The source: `built-in` or `modules`.")
    description: str = Field(description="The description that a planner reads.")
    input_schema: dict[str, JsonValue] = Field(description="JSON Schema of a step's `input`.")
    options_schema: dict[str, JsonValue] = Field(description="JSON Schema of the object of its further members.")
    output_schema: dict[str, JsonValue] | None = Field(
        description="JSON Schema of its output; null for built-in types."
    )
    side_effects: SideEffects | None = Field(
        description="The effect of a step on the outside world; null for built-in types, which act through tools."
    )
    idempotent: bool | None = Field(description="True if a second run has no further effect; null for built-in types.")
    at_most_once: bool = Field(description="True if a step never runs twice unless a person says so.")
    approval: bool = Field(description="True if a step of itself may wait for a person.")
    available: bool = Field(description="True if a step of the type can run now.")
    reason: str = Field(description="The reason if it cannot.")


class AgentView(BaseModel):
    """A configured agent as GET /v1/agents shows it, without its prompt."""

    name: str = Field(description="The agent's name; `agent` in a request.")
    description: str = Field(description="What it does, as the models read it that may call it.")
    mode: Mode = Field(description="The mode of its executions.")
    model: str | None = Field(description="Its route or engine; null: the request's or its session's.")
    tools: list[str] = Field(description="Its tools; `agent:NAME` is another agent.")
    skills: list[str] = Field(description="Its skills.")
    limits: dict[str, int | float] = Field(description="Its limits, which a request can only lower.")
    output_schema: dict[str, JsonValue] | None = Field(description="JSON Schema of its answers.")
    side_effects: SideEffects = Field(description="The worst effect of the tools that it reaches.")
    idempotent: bool = Field(description="True if no tool that it reaches is unsafe to call twice.")


class SkillView(BaseModel):
    """A skill as GET /v1/skills shows it, without its text."""

    name: str = Field(description="The skill's name; a value for `context.skills`.")
    description: str = Field(description="What it is for.")
    triggers: list[str] = Field(description="Words, and expressions between slashes, that call for it.")
    always: bool = Field(description="True if it is a candidate for every message.")
    value: float = Field(description="Its value; those of the most value that fit are read.")
    requires: list[str] = Field(description="Skills that it is read with.")
    tools: list[str] = Field(description="Tools that it needs; `agent:NAME` is an agent.")
    tokens: int = Field(description="Tokens that it takes in a context, without those that it requires.")


class PromptView(BaseModel):
    """A prompt of the service itself as GET /v1/prompts shows it, without its text."""

    id: PromptId = Field(description="The prompt's id.")
    system_prompt: PromptId | None = Field(description="The system prompt that goes with it.")
    places: list[str] = Field(description="Places that its text may have, each written `{name}`.")
    is_changed: bool = Field(description="True if its text is not the shipped one.")
    input_schema: dict[str, JsonValue] = Field(description="JSON Schema of its input.")
    output_schema: dict[str, JsonValue] | None = Field(description="JSON Schema of the answer; null if it is a text.")


class FlowView(BaseModel):
    """A registered flow as GET /v1/flows shows it."""

    name: str = Field(description="The flow's name; `flow.name` in a request.")
    fingerprint: str = Field(description="Digest of the graph; a suspended execution needs the same one to go on.")
    input_schema: dict[str, JsonValue] = Field(description="JSON Schema of `flow.input`.")
    output_schema: dict[str, JsonValue] = Field(description="JSON Schema of the result.")
    graph: dict[str, JsonValue] = Field(description="Entry, output, and nodes with their kinds and edges.")
    mermaid: str = Field(description="The graph as a Mermaid flowchart.")


class ModelDirectory:
    """Everything that a request may be for: agents, routes and engines, and flows."""

    def __init__(self, environment: Environment, flows: Mapping[str, ServedFlow]) -> None:
        self._environment = environment
        self._flows = flows

    def answer_schema(self, flow: str, node: str) -> dict[str, Any] | None:
        """Return the JSON Schema of the answer to a question of that node; None if there is none."""
        served = self._flows.get(flow)
        nodes = () if served is None else served.graph.nodes
        return next((each.outputs[0].schema() for each in nodes if each.key == node), None)

    @cached_property
    def served(self) -> ServedModels:
        """All of it, of whichever caller. It stays the same while the service runs."""
        environment = self._environment
        catalogue, agents, registry = environment.catalogue, environment.agents, environment.tool_registry
        tools = {name: registry.get(name) for name in registry}
        return ServedModels(
            agents={
                each.name: ServedAgent(each.mode, each.model, each.output, agents.reachable(each.tools))
                for each in agents.all()
            },
            options={
                name: frozenset[str]().union(*(engine.profile.options for engine in catalogue.resolve(name)))
                for name in catalogue.names
            },
            flows=frozenset(self._flows),
            person_tools=frozenset(name for name, tool in tools.items() if tool and PERSON in tool.info().requires),
        )

    def permitted(self, permissions: Permissions) -> list[str]:
        """Return the names of agents, routes and engines that may be used, and `flow:NAME` of such flows."""
        catalogue = self._environment.catalogue
        return [
            *(agent.name for agent in self._environment.agents.all() if permissions.allows_agent(agent.name)),
            *(name for name in catalogue.names if catalogue.is_permitted(name, permissions)),
            *(f"flow:{name}" for name, flow in self._flows.items() if self.permits_flow(flow, permissions)),
        ]

    def permits_flow(self, served: ServedFlow, permissions: Permissions) -> bool:
        """Return True if all models and agents of the flow may be used."""
        configs = [node.config for node in served.graph.nodes if isinstance(node, AgentNode)]
        if not all(config.agent is None or permissions.allows_agent(config.agent) for config in configs):
            return False
        return all(self._environment.catalogue.is_permitted(config.model, permissions) for config in configs)


_DISTANCES: Final = MappingProxyType({BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2})
"""How far a breaker is from closed."""


class Introspection:
    """Views of what is configured."""

    def __init__(
        self,
        environment: Environment,
        flows: Mapping[str, ServedFlow],
        *,
        replica: ReplicaId,
        recent_attempts: Mapping[str, RecentAttempts],
    ) -> None:
        self.models = ModelDirectory(environment, flows)
        self._environment = environment
        self._flows = flows
        self._replica = replica
        self._recent_attempts = recent_attempts
        self._opened_at = environment.clock.now()

    def flows(self, permissions: Permissions) -> list[FlowView]:
        """Return the registered flows of which all models and agents may be used, by name."""
        return [
            _flow_view(name, served.graph)
            for name, served in sorted(self._flows.items())
            if self.models.permits_flow(served, permissions)
        ]

    def flow(self, name: str, permissions: Permissions) -> FlowView | None:
        """Return the flow of that name; None if there is none, or if one of its models may not be used."""
        served = self._flows.get(name)
        if served is None or not self.models.permits_flow(served, permissions):
            return None
        return _flow_view(name, served.graph)

    def agents(self, permissions: Permissions) -> list[AgentView]:
        """Return every agent that may be used, by name, with those of its tools that may be used."""
        return [
            self._agent_view(agent, permissions)
            for agent in self._environment.agents.all()
            if permissions.allows_agent(agent.name)
        ]

    def skills(self, permissions: Permissions) -> list[SkillView]:
        """Return the skills that are in force, by name, with those of their tools that may be used."""
        library = self._environment.skills
        if library is None:
            return []
        catalogue = library.catalogue
        return [
            SkillView(
                name=skill.name,
                description=skill.description,
                triggers=list(skill.triggers),
                always=skill.always,
                value=skill.value,
                requires=list(skill.requires),
                tools=[reference_of(each) for each in skill.tools if permissions.allows_tool(each)],
                tokens=catalogue.tokens(skill.name),
            )
            for skill in catalogue.all()
        ]

    def prompts(self) -> list[PromptView]:
        """Return every prompt, in the order of their ids' definition."""
        registry = self._environment.prompts
        return [_prompt_view(registry.definition(prompt_id)) for prompt_id in registry.ids()]

    def prompt_text(self, prompt_id: str) -> str | None:
        """Return the text of a prompt, with its places; None for an unknown id."""
        is_known = prompt_id in PromptId.__members__
        return self._environment.prompts.definition(PromptId(prompt_id)).template if is_known else None

    def engines(self, permissions: Permissions) -> list[EngineView]:
        """Return the configured engines that may be used, in the order of the configuration."""
        catalogue = self._environment.catalogue
        return [
            self._engine_view(name, permissions)
            for name in catalogue.engines
            if catalogue.is_permitted(name, permissions)
        ]

    def engines_with_health(self, permissions: Permissions) -> list[EngineView]:
        """Return the same with the last hour of each, which counts every tenant.

        Raises: AccessFailure (ACCESS_DENIED) without the permission for metrics.
        """
        require(permissions, Permission.READ_METRICS, "read the health of engines")
        now = self._environment.clock.now()
        views = self.engines(permissions)
        return [self._with_health(view, now) for view in views]

    async def tools(self, permissions: Permissions) -> list[ToolView]:
        """Return the registered tools that may be used, by source and name, then servers whose tools are not known."""
        policy = self._environment.tool_registry.policy
        return [
            ToolView(
                name=status.info.name,
                type=status.info.type,
                description=status.info.description,
                source=status.source,
                parameters=dict(status.definition.parameters),
                side_effects=status.info.side_effects,
                idempotent=status.info.idempotent,
                at_most_once=status.info.unsafe,
                approval=status.info.side_effects is SideEffects.EXTERNAL or policy.may_ask(status.info.name),
                retried=status.info.idempotent,
                requires=list(status.info.requires),
                containment=status.info.containment,
                isolation=status.info.isolation or "",
                network=status.info.network or "",
                original_name=status.info.original_name,
                available=status.available,
                reason=status.reason,
            )
            for status in await self._environment.tool_registry.check_availability()
            if permissions.allows_tool(status.info.name)
        ] + [
            _absent_server(server.name, server.fault)
            for server in self.tool_servers()
            if server.fault is not None and not server.tools and permissions.allows_tool_of(server.name)
        ]

    def tool_servers(self) -> list[ToolServerStatus]:
        """Return the state of each server of tools, for operators."""
        return [server for source in self._environment.tool_registry.sources for server in source.servers]

    async def step_types(self, permissions: Permissions) -> list[StepTypeView]:
        """Return the built-in step types, then those of modules that may be used, in the order of their definition."""
        registry = self._environment.tool_registry
        functions = [
            _module_type(each, (await registry.look_up(each.info().name))[1], registry.policy)
            for each in registry.step_functions.values()
            if permissions.allows_tool(each.info().name)
        ]
        return [*map(_built_in_type, STEP_SPECS), *functions]

    def _agent_view(self, agent: ConfiguredAgent, permissions: Permissions) -> AgentView:
        tool = self._environment.tool_registry.get(AGENT_TOOL_PREFIX + agent.name)
        assert tool is not None  # noqa: S101 - every agent is a registered tool
        info = tool.info()
        return AgentView(
            name=agent.name,
            description=agent.description,
            mode=agent.mode,
            model=agent.model,
            tools=[reference_of(each) for each in agent.tools if permissions.allows_tool(each)],
            skills=list(agent.skills),
            limits=agent.limits.model_dump(exclude_none=True),
            output_schema=agent.output.schema_,
            side_effects=info.side_effects,
            idempotent=info.idempotent,
        )

    def _engine_view(self, name: str, permissions: Permissions) -> EngineView:
        catalogue = self._environment.catalogue
        profile = catalogue.engines[name].profile
        engine = catalogue.engines[name]
        routes = [
            route
            for route, engines in catalogue.routes.items()
            if engine in engines and permissions.allows_model(route)
        ]
        by_cause = {
            cause: [
                route
                for route, causes in catalogue.by_cause.items()
                if engine in causes.get(cause, ()) and permissions.allows_model(route)
            ]
            for cause in CAUSES
        }
        return EngineView(
            name=profile.name,
            scheme=profile.scheme,
            model=profile.model,
            context_window=profile.context_window,
            response_reserve=profile.response_reserve,
            options=sorted(profile.options),
            routes=routes,
            by_cause={cause: named for cause, named in by_cause.items() if named},
            price=None if profile.price is None else EnginePrice.model_validate(asdict(profile.price)),
            known=list(profile.known),
            capabilities=asdict(profile.capabilities),
            breaker=self._breaker_of(name).state,
            **self._deployments_of(name, permissions),
        )

    def _deployments_of(self, name: str, permissions: Permissions) -> dict[str, list[DeploymentView]]:
        """Return the field of an engine's deployments; nothing without any, or for callers who may not see them."""
        members = self._environment.health.deployments.get(name)
        if members is None or not permissions.allows(Permission.READ_METRICS):
            return {}
        return {"deployments": [self._deployment_view(each) for each in members]}

    def _deployment_view(self, member: DeploymentHealth) -> DeploymentView:
        status, health = member.status(), self._environment.health
        if status.state is DeploymentState.AVAILABLE:
            status = health.rooms[member.address].status()
        now = self._environment.clock.now()
        return DeploymentView(
            name=member.deployment.name,
            state=status.state,
            until=None if status.seconds is None else datetime.fromtimestamp(now + status.seconds, UTC),
            reason=status.reason,
            running=member.running,
            weight=member.deployment.weight,
        )

    def _breaker_of(self, name: str) -> CircuitBreaker:
        """Return the breaker of an engine; of one with deployments that which is closest to closed."""
        members = self._environment.health.deployments.get(name)
        if members is None:
            return self._environment.health.breakers[name]
        return min((each.breaker for each in members), key=lambda breaker: _DISTANCES[breaker.state])

    def _with_health(self, view: EngineView, now: float) -> EngineView:
        """Return the view with the last hour of the engine and of each deployment."""
        changes: dict[str, object] = {"health": self._engine_health(view.name, self._breaker_of(view.name), now)}
        if view.deployments is not None:
            members = self._environment.health.deployments[view.name]
            changes["deployments"] = [
                each.model_copy(update={"health": self._engine_health(member.address, member.breaker, now)})
                for each, member in zip(view.deployments, members, strict=True)
            ]
        return view.model_copy(update=changes)

    def _engine_health(self, address: str, breaker: CircuitBreaker, now: float) -> EngineHealth:
        minutes = self._recent_attempts[address].window(now)
        seconds_open = breaker.seconds_open
        first_start = (now // MINUTE_S - MINUTES + 1) * MINUTE_S
        return EngineHealth(
            replica=self._replica,
            since=datetime.fromtimestamp(max(first_start, self._opened_at), UTC),
            attempts=sum(minute.attempts for minute in minutes),
            failures=sum(minute.failures for minute in minutes),
            codes=dict(sum((minute.codes for minute in minutes), Counter[Code]())),
            p50_ms=percentile(minutes, 0.5),
            p95_ms=percentile(minutes, 0.95),
            breaker_since=None if seconds_open is None else datetime.fromtimestamp(now - seconds_open, UTC),
            buckets=[
                AttemptBucket(
                    start=datetime.fromtimestamp(minute.number * MINUTE_S, UTC),
                    attempts=minute.attempts,
                    failures=minute.failures,
                )
                for minute in minutes
            ],
        )

    async def ping_engine(self, address: str) -> EnginePing:
        """Contact the endpoint of a configured engine or deployment."""
        engine = self._environment.catalogue.endpoints[address]
        try:
            return EnginePing(name=address, ok=True, detail=await engine.ping())
        except EngineError as error:
            return EnginePing(name=address, ok=False, detail=f"{error.reason}: {error.message}")


def _absent_server(name: str, fault: ServerFault) -> ToolView:
    """Return the row of a server that has listed no tool: its unknown tools count as the worst."""
    unlisted = unlisted_tool(f"mcp:{name}")
    return ToolView(
        name=unlisted.name,
        type=unlisted.type,
        source="mcp",
        description="",
        parameters={},
        side_effects=unlisted.side_effects,
        idempotent=False,
        at_most_once=True,
        approval=True,
        retried=False,
        requires=[],
        containment="",
        isolation="",
        network="",
        original_name="",
        available=False,
        reason=fault,
    )


def _prompt_view(definition: PromptDefinition) -> PromptView:
    output = definition.output_model
    return PromptView(
        id=definition.prompt_id,
        system_prompt=SYSTEM_PROMPTS.get(definition.prompt_id),
        places=sorted(definition.places),
        is_changed=definition.template != default_registry().definition(definition.prompt_id).template,
        input_schema=definition.input_model.model_json_schema(),
        output_schema=None if output is None else output.model_json_schema(),
    )


def _built_in_type(name: str) -> StepTypeView:
    spec, options = STEP_SPECS[name], StepOptions.model_json_schema()
    properties = {key: each for key, each in options["properties"].items() if key in spec.options}
    return StepTypeView(
        name=name,
        source=BUILT_IN,
        description=STEP_TYPE_DESCRIPTIONS[name],
        input_schema=spec.input_adapter.json_schema(),
        options_schema={"type": "object", "properties": properties, "$defs": options["$defs"]},
        output_schema=None,
        side_effects=None,
        idempotent=None,
        at_most_once=False,
        approval=False,
        available=True,
        reason="",
    )


def _module_type(function: StepFunction, status: Availability, policy: ToolPolicy) -> StepTypeView:
    info = function.info()
    return StepTypeView(
        name=function.step_type,
        source=MODULES,
        description=info.description,
        input_schema=dict(function.input_schema),
        options_schema=dict(function.options_schema),
        output_schema=dict(function.output_schema),
        side_effects=info.side_effects,
        idempotent=info.idempotent,
        at_most_once=info.unsafe,
        approval=info.side_effects is SideEffects.EXTERNAL or policy.may_ask(info.name),
        available=status.available,
        reason=status.reason,
    )


def _flow_view(name: str, graph: FlowGraph[Any, Any]) -> FlowView:
    return FlowView(
        name=name,
        fingerprint=graph.fingerprint,
        input_schema=graph.entry.model.model_json_schema(),
        output_schema=graph.output.model.model_json_schema(),
        graph=graph.as_json(),
        mermaid=graph.as_mermaid(),
    )
