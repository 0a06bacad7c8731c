"""What a request can come to at most, from the machines' own tables and the limits in force.

Theory of operation

1. An inference may ask each of its engines as often as the fallback machine lets it; the machine's own bounds say how
   many attempts and state changes that are. An attempt takes no more tokens than its engine's context window holds.
2. A pattern asks one thing after the other, and an inference that nobody answers ends it. So only the last one of a
   chain can have the changes that exhausting all engines takes more than being answered.
3. A step of a plan that is not known, or that may bring a form or tools from the step before it, is taken for the
   worst of its kind. A plan that cannot run is refused before its first step, so nothing is quoted for what is wrong.
4. A budget stops what is begun, not what runs: beyond `limits` there is what may be on its way at one time.
5. Windows and prices are as configured. A crash, after which attempts are made again, and the waiting for a person
   are in no quote.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from math import inf, isfinite

from app.capabilities.models.catalogue import EngineCatalogue
from app.capabilities.tools.registry import ToolRegistry
from app.domain import fallback, lifecycle
from app.domain.contract.quote import Quote
from app.domain.contract.request import PlanOptions, PlanStep, RedundancyOptions, SystemRequest
from app.domain.contract.response import Cost
from app.domain.journal.header import EffectiveLimits
from app.domain.lifecycle import Mode, State
from app.domain.plan.plan import (
    EffectivePlanPolicy,
    StepType,
    infer_input_types,
    non_linear_steps,
    output_contract_of,
    parse_options,
    resolve_input,
    validate_plan,
)
from app.domain.plan.steps import InferInput, InputType, RedundantInput, ToolInput
from app.orchestration.pipeline.prepare import allowed_tools
from app.ports.model import EngineProfile

_GRACE_S = 5.0
"""How long past its deadline an execution may take to end."""
_TOOL_ATTEMPTS = 2
"""Of an idempotent tool; another runs once."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class UpperBound:
    """The most of everything. Cost is infinite where it is not known; `_at_once` is what can be on its way together."""

    inferences: int = 0
    tool_calls: int = 0
    transitions: int = 0
    tokens: int = 0
    cost: float = 0.0
    tokens_at_once: int = 0
    cost_at_once: float = 0.0

    def then(self, other: "UpperBound") -> "UpperBound":
        """This and after it the other."""
        return self._with(
            other, max(self.tokens_at_once, other.tokens_at_once), max(self.cost_at_once, other.cost_at_once)
        )

    def beside(self, other: "UpperBound") -> "UpperBound":
        """Both at once."""
        return self._with(other, self.tokens_at_once + other.tokens_at_once, self.cost_at_once + other.cost_at_once)

    def either(self, other: "UpperBound") -> "UpperBound":
        """The one or the other, whichever it is."""
        return UpperBound(*(max(getattr(self, field.name), getattr(other, field.name)) for field in fields(UpperBound)))

    def times(self, count: int) -> "UpperBound":
        """This so often, one after the other."""
        if not count:
            return UpperBound()
        return UpperBound(
            self.inferences * count,
            self.tool_calls * count,
            self.transitions * count,
            self.tokens * count,
            self.cost * count,
            self.tokens_at_once,
            self.cost_at_once,
        )

    def _with(self, other: "UpperBound", tokens_at_once: int, cost_at_once: float) -> "UpperBound":
        return UpperBound(
            self.inferences + other.inferences,
            self.tool_calls + other.tool_calls,
            self.transitions + other.transitions,
            self.tokens + other.tokens,
            self.cost + other.cost,
            tokens_at_once,
            cost_at_once,
        )


@dataclass(frozen=True, slots=True)
class QuoteCalculator:
    """What a quote goes by beside the request: what is configured. `static` is the plan that is always the same."""

    catalogue: EngineCatalogue
    registry: ToolRegistry
    currency: str
    static_plan: Sequence[PlanStep] | None = None

    def quote(self, request: SystemRequest, bounds: EffectiveLimits) -> Quote:
        """Upper bounds of the request, which was admitted under those limits."""
        most = _Patterns(self, request, bounds).most()
        tokens = most.tokens if bounds.tokens is None else min(most.tokens, bounds.tokens + most.tokens_at_once)
        dearest = max(_dearest(engine.profile) for engine in self.catalogue.engines_for(request))
        cost = min(most.cost, tokens * dearest)
        if bounds.cost is not None:
            cost = min(cost, bounds.cost + most.cost_at_once)
        return Quote(
            inferences=most.inferences,
            tool_calls=most.tool_calls,
            transitions=most.transitions,
            tokens=tokens,
            seconds=bounds.timeout + _GRACE_S,
            cost=Cost(amount=cost, currency=self.currency) if isfinite(cost) else None,
        )


class _Patterns:
    """What each pattern comes to. `attempts` are those at an answer, `tools` those that may be offered."""

    def __init__(self, quoting: QuoteCalculator, request: SystemRequest, bounds: EffectiveLimits) -> None:
        self._quoting = quoting
        self._request = request
        self._bounds = bounds
        self._tools = allowed_tools(request, quoting.registry)

    def most(self) -> UpperBound:
        """The whole execution."""
        request, attempts = self._request, self._bounds.attempts
        judgements = attempts if request.output.semantic else 0
        match request.mode:
            case Mode.STRUCTURED:
                said = self._structured(request.model, self._tools, attempts, judgements)
                return said.then(_moves(request.mode, attempts))
            case Mode.REDUNDANT:
                return self._redundant(judgements).then(_moves(request.mode))
            case Mode.PLAN:
                return self._plan().then(self._chain(request.model, judgements)).then(_moves(request.mode))
            case _:
                judged = bool(request.output.rules or request.output.semantic)
                said = self._chat(self._tools, attempts if judged else 1, judgements)
                return said.then(_moves(request.mode, attempts, judged=judged))

    def _chat(self, tools: Collection[str], attempts: int, judgements: int = 0) -> UpperBound:
        asked = self._bounds.tool_rounds + attempts * (1 + judgements)
        return self._chain(self._request.model, asked).then(self._rounds(tools))

    def _structured(self, model: str | None, tools: Collection[str], attempts: int, judgements: int = 0) -> UpperBound:
        gathering = self._bounds.tool_rounds + 1 if tools else 0
        return self._chain(model, gathering + attempts * (1 + judgements)).then(self._rounds(tools))

    def _redundant(self, judgements: int) -> UpperBound:
        options = self._request.redundancy or RedundancyOptions()
        models: Sequence[str | None] = options.models or [self._request.model] * options.n
        voted = _at_once(self._structured(model, self._tools, 1, judgements) for model in models)
        put_together = judgements if options.voting == "field_majority" else 0
        return voted.then(self._chain(self._request.model, put_together))

    def _plan(self) -> UpperBound:
        options = self._request.plan or PlanOptions()
        steps = self._quoting.static_plan if options.steps is None else options.steps
        policy = EffectivePlanPolicy.from_request(options.policy, self._bounds)
        if steps is not None and validate_plan(steps, policy):
            return UpperBound()
        if steps is not None:
            each = [self._step(steps[index], given) for index, given in infer_input_types(steps).items()]
            return _at_once(each) if non_linear_steps(steps) else _one_by_one(each)
        worst = reduce(UpperBound.either, map(self._unknown, policy.allowed_step_types), UpperBound())
        run = [worst] * policy.max_steps
        planned = self._chain(self._request.model, self._bounds.attempts)
        return planned.then(_one_by_one(run) if policy.require_linear else _at_once(run))

    def _step(self, step: PlanStep, given: InputType) -> UpperBound:
        """That step, of which it is known beforehand what it works on when that is its own input, or a text."""
        if step.input is None and _may_bring_more(given):
            return self._unknown(step.type)
        said, work = parse_options(step), None if step.input is None else resolve_input(step, {}, "")
        kept = output_contract_of(step, work)
        named = work.tools if isinstance(work, InferInput) and work.tools is not None else said.tools
        tools = [tool for tool in (self._request.tools if named is None else named) or () if tool in self._tools]
        match step.type:
            case StepType.INFER if kept is not None and kept.schema_ is not None:
                return self._structured(self._request.model, tools, said.attempts or self._bounds.attempts)
            case StepType.INFER:
                return self._chat(tools, (said.attempts or self._bounds.attempts) if kept else 1)
            case StepType.REDUNDANT:
                n = work.n if isinstance(work, RedundantInput) and work.n is not None else said.n
                return self._replicas(n or RedundancyOptions().n, tools)
            case StepType.TOOL if isinstance(work, ToolInput):
                return UpperBound(tool_calls=self._attempts_at({work.name}.intersection(self._tools)))
            case _:
                return UpperBound()

    def _unknown(self, step_type: str) -> UpperBound:
        """The worst of that type."""
        model, attempts = self._request.model, self._bounds.attempts
        match step_type:
            case StepType.INFER:
                return self._structured(model, self._tools, attempts).either(self._chat(self._tools, attempts))
            case StepType.REDUNDANT:
                return self._replicas(self._bounds.replicas, self._tools)
            case StepType.TOOL:
                return UpperBound(tool_calls=self._attempts_at(self._tools))
            case _:
                return UpperBound()

    def _replicas(self, count: int, tools: Collection[str]) -> UpperBound:
        return _at_once([self._structured(self._request.model, tools, 1)] * count)

    def _rounds(self, tools: Collection[str]) -> UpperBound:
        calls = self._bounds.tool_rounds * self._bounds.calls_per_reply
        return UpperBound(tool_calls=calls * self._attempts_at(tools))

    def _attempts_at(self, tools: Collection[str]) -> int:
        """How often a call of any of them runs."""
        found = [tool for name in tools if (tool := self._quoting.registry.get(name))]
        return max((_TOOL_ATTEMPTS if tool.info().idempotent else 1 for tool in found), default=0)

    def _chain(self, model: str | None, inferences: int) -> UpperBound:
        """So many inferences, one after the other, of which the last may fail."""
        profiles = [engine.profile for engine in self._quoting.catalogue.resolve(model)]
        count, retries = len(profiles), self._bounds.max_retries
        exhausting = fallback.max_transitions(count, retries) - fallback.max_transitions_if_answered(count, retries)
        one = UpperBound(
            inferences=fallback.max_attempts(count, retries),
            transitions=fallback.max_transitions_if_answered(count, retries),
            tokens=(retries + 1) * sum(profile.context_window for profile in profiles),
            cost=(retries + 1) * sum(map(_dearest_attempt, profiles)),
            tokens_at_once=max(profile.context_window for profile in profiles),
            cost_at_once=max(map(_dearest_attempt, profiles)),
        )
        return one.times(inferences).then(UpperBound(transitions=exhausting if inferences else 0))


def _moves(mode: Mode, attempts: int = 1, *, judged: bool = True) -> UpperBound:
    avoided = frozenset() if judged else frozenset({State.VALIDATE})
    return UpperBound(transitions=lifecycle.max_transitions(mode, attempts, avoided))


def _may_bring_more(given: InputType) -> bool:
    """Whether it may be more than a text: a conversation with a form or tools of its own, or a call."""
    return given == "value" or not (isinstance(given, str) or {"messages", "name"}.isdisjoint(given))


def _one_by_one(each: Iterable[UpperBound]) -> UpperBound:
    return reduce(UpperBound.then, each, UpperBound())


def _at_once(each: Iterable[UpperBound]) -> UpperBound:
    return reduce(UpperBound.beside, each, UpperBound())


def _dearest(profile: EngineProfile) -> float:
    """What a token costs at most; infinite when it has no price."""
    return inf if profile.price is None else max(profile.price) / _MILLION


def _dearest_attempt(profile: EngineProfile) -> float:
    return profile.context_window * _dearest(profile)
