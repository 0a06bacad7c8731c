"""Quotes: the most that a request can take before it runs, added up from its pattern's upper bound and its limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import isfinite

from app.capabilities.models.catalogue import EngineCatalogue
from app.capabilities.tools.agents import NO_AGENTS, AgentCatalogue
from app.capabilities.tools.registry import ToolRegistry
from app.domain.access.principal import ALL, Permissions
from app.domain.agents import ConfiguredAgent, RequestedAgent, models_of
from app.domain.contract.quote import Quote
from app.domain.contract.request import PlanOptions, SystemRequest
from app.domain.contract.response import Cost
from app.domain.guards import RequestedJudge
from app.domain.journal.header import EffectiveLimits
from app.domain.lifecycle import Mode
from app.orchestration.admission import tools_of_steps
from app.orchestration.execution.pattern import (
    TOOL_ATTEMPTS,
    BoundInputs,
    Pattern,
    UpperBound,
    in_parallel,
    max_token_price,
)
from app.orchestration.pipeline.stages import allowed_tools

_GRACE_S = 5.0
"""Seconds after its deadline that an execution may take to end."""


@dataclass(frozen=True, slots=True)
class QuoteCalculator:
    """Calculates quotes for the configured engines, tools and patterns."""

    catalogue: EngineCatalogue
    registry: ToolRegistry
    currency: str
    patterns: Mapping[Mode, Pattern]
    agents: AgentCatalogue = NO_AGENTS
    compacts_sessions: bool = False

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
        bound = bound.concurrent_with(judged)
        judges_models = [judge.model for judge in judges]
        tokens = bound.tokens if limits.tokens is None else min(bound.tokens, limits.tokens + bound.tokens_in_flight)
        highest_price = max(
            max_token_price(engine.profile)
            for engine in self.catalogue.engines_for([*pattern.models(request), *models_of(agents), *judges_models])
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

    def _nested(self, inputs: BoundInputs, agents: Sequence[ConfiguredAgent]) -> UpperBound:
        """Return the bound of one run of the worst of these agents, without the agents that it calls."""
        callers = self.patterns[inputs.request.mode].models(inputs.request)
        each = (
            self.patterns[agent.mode].upper_bound(_inputs_of(agent, inputs, model))
            for agent in agents
            for model in (callers if agent.model is None else [agent.model])
        )
        return reduce(UpperBound.maximum, each, UpperBound())


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
