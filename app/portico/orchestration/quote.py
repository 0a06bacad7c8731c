"""Quotes: the most that a request can take before it runs, added up from its pattern's upper bound and its limits."""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import isfinite
from typing import Final

from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.tools.agents import NO_AGENTS, AgentCatalogue
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.access.principal import ALL, Permissions
from portico.domain.agents import ConfiguredAgent, RequestedAgent, models_of
from portico.domain.context.guards import RequestedJudge
from portico.domain.contract.quote import Quote
from portico.domain.contract.request import PlanOptions, PlanPolicy, SystemRequest
from portico.domain.contract.response import Cost
from portico.domain.journal.header import EffectiveLimits
from portico.domain.lifecycle import Mode
from portico.domain.plan.steps import StepType
from portico.domain.token_prices import FREE
from portico.domain.value import replace, value
from portico.orchestration.admission_checks import tools_of_steps
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.pattern import (
    TOOL_ATTEMPTS,
    BoundInputs,
    Pattern,
    UpperBound,
    in_parallel,
    max_token_price,
)
from portico.orchestration.execution.retrieval.search import MAX_QUERY_CHARACTERS
from portico.orchestration.pipeline.stages import allowed_tools

MAX_QUERY_BYTES: Final = 4 * MAX_QUERY_CHARACTERS
"""Bytes of a query at most, of which no token has less than one."""
_GRACE_S = 5.0
"""Seconds after its deadline that an execution may take to end."""


@value
class QuoteCalculator:
    """Calculates quotes for the configured engines, tools and patterns."""

    catalogue: EngineCatalogue
    registry: ToolRegistry
    currency: str
    patterns: Mapping[Mode, Pattern]
    agents: AgentCatalogue = NO_AGENTS
    compacts_sessions: bool = False
    embedder: str | None = None
    """The engine that embeds the queries of searches; None if no engine does."""

    @classmethod
    def of(
        cls, environment: Environment, patterns: Mapping[Mode, Pattern], currency: str, embedder: str | None
    ) -> "QuoteCalculator":
        """Return the calculator for the engines, tools and agents of the environment."""
        catalogue, registry = environment.catalogue, environment.tool_registry
        compacts, agents = environment.compacts_sessions, environment.agents
        return cls(catalogue, registry, currency, patterns, agents, compacts, embedder)

    def quote(
        self,
        request: SystemRequest,
        limits: EffectiveLimits,
        agent: RequestedAgent | None = None,
        permissions: Permissions = ALL,
        judges: Sequence[RequestedJudge] = (),
    ) -> Quote:
        """Return the upper bounds of an admitted request; `limits` are those that admission returned.

        The `judges` are asked about its input, beside all else.
        """
        pattern = self.patterns[request.mode]
        tools = allowed_tools(request, pattern, self.registry, agent, permissions)
        inputs = BoundInputs(request, limits, tools, self.catalogue, self.registry, pattern.static_plan)
        bound = pattern.upper_bound(inputs)
        if self.compacts_sessions and request.session_id is not None:
            bound = bound.then(inputs.inferences(inputs.inferences_per_ask))
        if request.on_limit == "salvage":
            bound = bound.then(inputs.inferences(inputs.inferences_per_ask))
        plan = request.plan or PlanOptions()
        planned = tools_of_steps(plan if plan.steps else PlanOptions(steps=list(pattern.static_plan or ())))
        agents = self.agents.behind_any([*tools, *planned, *pattern.own_tools(request)])
        bound = _with_agents(bound, self._nested(inputs, agents), limits)
        judged = in_parallel(inputs.inferences(inputs.inferences_per_ask, judge.model) for judge in judges)
        embedded = self._embeddings(inputs)
        bound = bound.concurrent_with(judged).concurrent_with(embedded)
        others = [*[judge.model for judge in judges], *([self.embedder] if embedded.tokens else [])]
        tokens = bound.tokens if limits.tokens is None else min(bound.tokens, limits.tokens + bound.tokens_in_flight)
        highest_price = max(
            max_token_price(engine.profile)
            for engine in self.catalogue.all_engines_for([*pattern.models(request), *models_of(agents), *others])
        )
        cost = min(bound.cost, tokens * highest_price)
        if limits.cost is not None:
            cost = min(cost, limits.cost + bound.cost_in_flight)
        return Quote(
            inferences=bound.inferences,
            tool_calls=bound.tool_calls,
            transitions=bound.transitions,
            tokens=tokens,
            seconds=limits.timeout + _GRACE_S,
            cost=Cost(amount=cost, currency=self.currency) if isfinite(cost) else None,
        )

    def _embeddings(self, inputs: BoundInputs) -> UpperBound:
        """Return the bound of embedding all queries. No budget holds one back, so all of them count as in flight."""
        searches = max_searches(inputs)
        if self.embedder is None or not searches:
            return UpperBound()
        prices = [engine.profile.price or FREE for engine in self.catalogue.engines_for([self.embedder])]
        tokens = searches * MAX_QUERY_BYTES
        cost = tokens * max(each.dearest_input_token for each in prices)
        return UpperBound(tokens=tokens, cost=cost, tokens_in_flight=tokens, cost_in_flight=cost)

    def _nested(self, inputs: BoundInputs, agents: Sequence[ConfiguredAgent]) -> UpperBound:
        """Return the bound of one run of the worst of these agents, without the agents that it calls."""
        callers = self.patterns[inputs.request.mode].models(inputs.request)
        each = (
            self.patterns[agent.mode].upper_bound(_inputs_of(agent, inputs, model))
            for agent in agents
            for model in (callers if agent.model is None else [agent.model])
        )
        return reduce(UpperBound.maximum, each, UpperBound())


def max_searches(inputs: BoundInputs) -> int:
    """Return how often the request can search the memory: before its first inference, or in steps of its plan."""
    request, plan = inputs.request, inputs.request.plan or PlanOptions()
    if request.context.retrieve:
        return 1
    supplied = inputs.static_plan if plan.steps is None else plan.steps
    policy = plan.policy or PlanPolicy()
    if request.mode is Mode.PLAN and StepType.RETRIEVE in (policy.allowed_step_types or ()):
        return min(policy.max_steps or inputs.limits.plan_steps, inputs.limits.plan_steps)
    return sum(step.type == StepType.RETRIEVE for step in supplied or ())


def _inputs_of(agent: ConfiguredAgent, caller: BoundInputs, model: str | None) -> BoundInputs:
    request = SystemRequest(mode=agent.mode, model=model, output=agent.output, hints=agent.hints)
    limits = caller.limits.lowered_to(agent.limits)
    return BoundInputs(request, limits, agent.tools, caller.catalogue, caller.registry)


def _with_agents(bound: UpperBound, agent: UpperBound, limits: EffectiveLimits) -> UpperBound:
    """Return the bound with the runs of agents: at most one for each tool call, and all of them at the same time."""
    most = TOOL_ATTEMPTS * limits.tool_calls if limits.tool_calls is not None else None
    runs = 0 if not agent.inferences else limits.tool_calls or 0
    in_flight = UpperBound(tokens_in_flight=agent.tokens_in_flight * runs, cost_in_flight=agent.cost_in_flight * runs)
    whole = bound.then(replace(agent, tokens_in_flight=0, cost_in_flight=0.0).times(runs)).concurrent_with(in_flight)
    return whole if most is None else replace(whole, tool_calls=min(whole.tool_calls, most))
