"""Quotes: the most that a request can take before it runs, added up from its pattern's upper bound and its limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from app.capabilities.models.catalogue import EngineCatalogue
from app.capabilities.tools.registry import ToolRegistry
from app.domain.access import ALL, Permissions
from app.domain.agents import RequestedAgent
from app.domain.contract.quote import Quote
from app.domain.contract.request import SystemRequest
from app.domain.contract.response import Cost
from app.domain.journal.header import EffectiveLimits
from app.domain.lifecycle import Mode
from app.orchestration.execution.pattern import BoundInputs, Pattern, max_token_price
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

    def quote(
        self,
        request: SystemRequest,
        limits: EffectiveLimits,
        agent: RequestedAgent | None = None,
        permissions: Permissions = ALL,
    ) -> Quote:
        """Return the upper bounds of an admitted request; `limits` are those that admission returned."""
        pattern = self.patterns[request.mode]
        tools = allowed_tools(request, pattern, self.registry, agent, permissions)
        inputs = BoundInputs(request, limits, tools, self.catalogue, self.registry, pattern.static_plan)
        bound = pattern.upper_bound(inputs)
        if request.on_limit == "salvage":
            bound = bound.then(inputs.inferences(inputs.inferences_per_ask))
        tokens = bound.tokens if limits.tokens is None else min(bound.tokens, limits.tokens + bound.tokens_in_flight)
        highest_price = max(
            max_token_price(engine.profile) for engine in self.catalogue.engines_for(pattern.models(request))
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
