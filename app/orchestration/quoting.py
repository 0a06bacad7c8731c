"""What a request can come to at most, from the machines' own tables and the limits in force.

Theory of operation

1. An inference may ask each of its engines as often as the fallback machine lets it; the machine's own bounds say how
   many attempts and state changes that are. An attempt takes no more tokens than its engine's context window holds.
2. A pattern asks one thing after the other, and an inference that nobody answers ends it. So only the last one of a
   chain can have the changes that exhausting all engines takes more than being answered.
3. A budget stops what is begun, not what runs: beyond `limits` there is what may be on its way at one time.
4. Windows and prices are as configured. A crash, after which attempts are made again, and the waiting for a person
   are in no quote.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf, isfinite

from app.capabilities.inference import Catalogue
from app.capabilities.tools.registry import ToolRegistry
from app.domain import fallback, lifecycle
from app.domain.boundary import Cost, RedundancyOptions, SystemRequest
from app.domain.effects import Bounds
from app.domain.lifecycle import Mode, State
from app.domain.quote import Quote
from app.orchestration.pipeline.prepare import offerable
from app.ports import EngineProfile

_GRACE_S = 5.0
"""How long past its deadline an execution may take to end."""
_TOOL_ATTEMPTS = 2
"""Of an idempotent tool; another runs once."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Most:
    """The most of everything. Cost is infinite where it is not known; `_at_once` is what can be on its way together."""

    inferences: int = 0
    tool_calls: int = 0
    transitions: int = 0
    tokens: int = 0
    cost: float = 0.0
    tokens_at_once: int = 0
    cost_at_once: float = 0.0

    def then(self, other: "Most") -> "Most":
        """This and after it the other."""
        return self._with(
            other, max(self.tokens_at_once, other.tokens_at_once), max(self.cost_at_once, other.cost_at_once)
        )

    def beside(self, other: "Most") -> "Most":
        """Both at once."""
        return self._with(other, self.tokens_at_once + other.tokens_at_once, self.cost_at_once + other.cost_at_once)

    def times(self, count: int) -> "Most":
        """This so often, one after the other."""
        return reduce(Most.then, [self] * count, Most())

    def _with(self, other: "Most", tokens_at_once: int, cost_at_once: float) -> "Most":
        return Most(
            self.inferences + other.inferences,
            self.tool_calls + other.tool_calls,
            self.transitions + other.transitions,
            self.tokens + other.tokens,
            self.cost + other.cost,
            tokens_at_once,
            cost_at_once,
        )


def quote(
    request: SystemRequest, bounds: Bounds, *, catalogue: Catalogue, registry: ToolRegistry, currency: str
) -> Quote:
    """Upper bounds of the request, which was admitted under those limits."""
    most = _Patterns(request, bounds, catalogue, registry).most()
    tokens = most.tokens if bounds.tokens is None else min(most.tokens, bounds.tokens + most.tokens_at_once)
    dearest = max(_dearest(engine.profile) for engine in catalogue.asked(request))
    cost = min(most.cost, tokens * dearest)
    if bounds.cost is not None:
        cost = min(cost, bounds.cost + most.cost_at_once)
    return Quote(
        inferences=most.inferences,
        tool_calls=most.tool_calls,
        transitions=most.transitions,
        tokens=tokens,
        seconds=bounds.timeout + _GRACE_S,
        cost=Cost(amount=cost, currency=currency) if isfinite(cost) else None,
    )


class _Patterns:
    """What each pattern comes to. `attempts` are those at an answer."""

    def __init__(self, request: SystemRequest, bounds: Bounds, catalogue: Catalogue, registry: ToolRegistry) -> None:
        self._request = request
        self._bounds = bounds
        self._catalogue = catalogue
        tools = [tool for name in offerable(request, registry) if (tool := registry.get(name))]
        self._tool_attempts = max((_TOOL_ATTEMPTS if tool.info().idempotent else 1 for tool in tools), default=0)

    def most(self) -> Most:
        """The whole execution."""
        request, attempts = self._request, self._bounds.attempts
        match request.mode:
            case Mode.STRUCTURED:
                return self._structured(request.model, attempts).then(_moves(request.mode, attempts))
            case Mode.REDUNDANT:
                return self._redundant(request.redundancy or RedundancyOptions()).then(_moves(request.mode))
            case _:
                judged = bool(request.output.rules or request.output.semantic)
                asked = self._bounds.tool_rounds + (attempts + self._judgements(attempts) if judged else 1)
                said = self._chain(request.model, asked).then(self._tools())
                return said.then(_moves(request.mode, attempts, judged=judged))

    def _structured(self, model: str | None, attempts: int) -> Most:
        gathering = self._bounds.tool_rounds + 1 if self._tool_attempts else 0
        return self._chain(model, gathering + attempts + self._judgements(attempts)).then(self._tools())

    def _redundant(self, options: RedundancyOptions) -> Most:
        models: Sequence[str | None] = options.models or [self._request.model] * options.n
        voted = reduce(Most.beside, (self._structured(model, 1) for model in models))
        if options.voting != "field_majority":
            return voted
        return voted.then(self._chain(self._request.model, self._judgements(1)))

    def _judgements(self, attempts: int) -> int:
        """Inferences that judge so many answers."""
        return attempts * self._bounds.attempts if self._request.output.semantic else 0

    def _tools(self) -> Most:
        rounds, calls = self._bounds.tool_rounds, self._bounds.calls_per_reply
        return Most(tool_calls=rounds * calls * self._tool_attempts)

    def _chain(self, model: str | None, inferences: int) -> Most:
        """So many inferences, one after the other, of which the last may fail."""
        profiles = [engine.profile for engine in self._catalogue.resolve(model)]
        count, retries = len(profiles), self._bounds.max_retries
        exhausting = fallback.bound(count, retries) - fallback.bound_answered(count, retries)
        one = Most(
            inferences=fallback.most_attempts(count, retries),
            transitions=fallback.bound_answered(count, retries),
            tokens=(retries + 1) * sum(profile.context_window for profile in profiles),
            cost=(retries + 1) * sum(map(_dearest_attempt, profiles)),
            tokens_at_once=max(profile.context_window for profile in profiles),
            cost_at_once=max(map(_dearest_attempt, profiles)),
        )
        return one.times(inferences).then(Most(transitions=exhausting)) if inferences else Most()


def _moves(mode: Mode, attempts: int = 1, *, judged: bool = True) -> Most:
    avoided = frozenset() if judged else frozenset({State.VALIDATE})
    return Most(transitions=lifecycle.bound(mode, attempts, avoided))


def _dearest(profile: EngineProfile) -> float:
    """What a token costs at most; infinite when it has no price."""
    return inf if profile.price is None else max(profile.price) / _MILLION


def _dearest_attempt(profile: EngineProfile) -> float:
    return profile.context_window * _dearest(profile)
