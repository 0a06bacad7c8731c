"""Patterns: everything that distinguishes one mode from another, as values and hooks.

The rest of the core asks a `Pattern` and never a mode by name: admission calls `admit`, the quote adds up
`upper_bound`, the driver runs `plan` and `run`, the pipeline reads `offers_all_tools` and `starts_with_request`. A new
mode is a row in the lifecycle table, a pattern with its hooks, and a row in the composition root.

Upper bounds, from the tables of the state machines and the effective limits:

1. An inference may try each of its engines as often as the fallback machine permits; the machine's own bounds give the
   number of attempts and state changes. An attempt uses at most the tokens of its engine's context window.
2. A pattern makes one inference after the other, and an inference that every engine fails ends it. So only the last
   inference of a sequence can have the state changes of exhausting all engines instead of being answered.
3. A budget stops what has not begun yet, not what runs: beyond `limits` there is what can be in flight at one time.
4. Windows and prices are as configured. Attempts that a crash repeats, and waiting for a person, are in no bound.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import reduce
from math import inf
from typing import NamedTuple, TypeAlias

from pydantic import JsonValue

from portico.capabilities.models.catalogue import EngineCatalogue, requested_models
from portico.capabilities.models.deployments import most_candidates
from portico.capabilities.prompting.supervisor import max_inferences
from portico.capabilities.tools.code_tool import MAX_ROUND_CALLS, MAX_ROUNDS, CodeTool
from portico.capabilities.tools.planner_function import PlannerFunction
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain import fallback, lifecycle
from portico.domain.contract.request import PlanStep, SystemRequest
from portico.domain.contract.response import Suspension
from portico.domain.journal.header import EffectiveLimits, ExecutionHeader
from portico.domain.lifecycle import State
from portico.domain.pattern_result import PatternResult
from portico.domain.value import value
from portico.orchestration.execution.context import RunContext
from portico.ports.model import EngineProfile

TOOL_ATTEMPTS = 2
"""Attempts at an idempotent tool; any other tool runs once."""


class FieldError(NamedTuple):
    """A field of the request, by its path, and what is wrong with it."""

    field: str
    message: str


@value
class UpperBound:
    """The most of everything that work can take.

    `cost` is infinite where a price is unknown; the `_in_flight` values are what can be in flight at one time.
    """

    inferences: int = 0
    tool_calls: int = 0
    transitions: int = 0
    tokens: int = 0
    cost: float = 0.0
    tokens_in_flight: int = 0
    cost_in_flight: float = 0.0

    def then(self, other: "UpperBound") -> "UpperBound":
        """Return the bound of this followed by the other."""
        tokens = max(self.tokens_in_flight, other.tokens_in_flight)
        return self._plus(other, tokens, max(self.cost_in_flight, other.cost_in_flight))

    def concurrent_with(self, other: "UpperBound") -> "UpperBound":
        """Return the bound of both at the same time."""
        tokens = self.tokens_in_flight + other.tokens_in_flight
        return self._plus(other, tokens, self.cost_in_flight + other.cost_in_flight)

    def maximum(self, other: "UpperBound") -> "UpperBound":
        """Return the bound of one or the other."""
        return UpperBound(*(max(getattr(self, each.name), getattr(other, each.name)) for each in fields(UpperBound)))

    def times(self, count: int) -> "UpperBound":
        """Return the bound of this `count` times in sequence."""
        if not count:
            return UpperBound()
        return UpperBound(
            self.inferences * count,
            self.tool_calls * count,
            self.transitions * count,
            self.tokens * count,
            self.cost * count,
            self.tokens_in_flight,
            self.cost_in_flight,
        )

    def _plus(self, other: "UpperBound", tokens_in_flight: int, cost_in_flight: float) -> "UpperBound":
        return UpperBound(
            self.inferences + other.inferences,
            self.tool_calls + other.tool_calls,
            self.transitions + other.transitions,
            self.tokens + other.tokens,
            self.cost + other.cost,
            tokens_in_flight,
            cost_in_flight,
        )


def in_sequence(bounds: Iterable[UpperBound]) -> UpperBound:
    """Return the bound of all of them, one after the other."""
    return reduce(UpperBound.then, bounds, UpperBound())


def in_parallel(bounds: Iterable[UpperBound]) -> UpperBound:
    """Return the bound of all of them at the same time."""
    return reduce(UpperBound.concurrent_with, bounds, UpperBound())


@value
class BoundInputs:
    """Inputs of the `upper_bound` hooks: a request, its limits, its tools, and the configuration."""

    request: SystemRequest
    limits: EffectiveLimits
    tools: Collection[str]
    catalogue: EngineCatalogue
    registry: ToolRegistry
    static_plan: Sequence[PlanStep] | None = None

    @property
    def judgements(self) -> int:
        """Return the number of inferences that judge one answer."""
        return self.inferences_per_ask if self.request.output.semantic else 0

    @property
    def inferences_per_ask(self) -> int:
        """Return the number of inferences of one question of the service itself, its repairs included."""
        return max_inferences(self.limits.attempts)

    def inferences(self, count: int, model: str | None = None) -> UpperBound:
        """Return the bound of `count` inferences in sequence, of which only the last may fail."""
        engines = self.catalogue.all_engines(model or self.request.model)
        profiles = [engine.profile for engine in engines for _ in range(most_candidates(engine))]
        candidates, retries = len(profiles), self.limits.max_retries
        if_answered = fallback.max_transitions_if_answered(candidates, retries)
        one = UpperBound(
            inferences=fallback.max_attempts(candidates, retries),
            transitions=if_answered,
            tokens=(retries + 1) * sum(profile.context_window for profile in profiles),
            cost=(retries + 1) * sum(map(_attempt_cost, profiles)),
            tokens_in_flight=max(profile.context_window for profile in profiles),
            cost_in_flight=max(map(_attempt_cost, profiles)),
        )
        exhausting = fallback.max_transitions(candidates, retries) - if_answered
        return one.times(count).then(UpperBound(transitions=exhausting if count else 0))

    def tool_rounds(self, tools: Collection[str]) -> UpperBound:
        """Return the bound of all tool calls that the model may ask for."""
        calls = self.limits.tool_rounds * self.limits.calls_per_reply
        attempts = max(self.tool_attempts(tools), 1 if self.request.client_tools else 0)
        return UpperBound(tool_calls=calls * attempts)

    def tool_attempts(self, tools: Collection[str]) -> int:
        """Return how often one call of any of these tools can run, with the calls that its code makes."""
        found = [tool for name in tools if (tool := self.registry.get(name))]
        attempts = max((TOOL_ATTEMPTS if tool.info().idempotent else 1 for tool in found), default=0)
        has_code = any(isinstance(tool, CodeTool) for tool in found)
        return 1 + attempts * MAX_ROUNDS * MAX_ROUND_CALLS if has_code else attempts

    def transitions(self, attempts: int = 1, *, validates: bool = True) -> UpperBound:
        """Return the bound of the lifecycle's transitions; VALIDATE is left out unless the pattern `validates`."""
        avoided: frozenset[State] = frozenset() if validates else frozenset({State.VALIDATE})
        return UpperBound(transitions=lifecycle.max_transitions(self.request.mode, attempts, avoided))


RunPattern: TypeAlias = Callable[[RunContext], Awaitable[PatternResult | str]]
MakePlan: TypeAlias = Callable[[RunContext, Sequence[PlanStep] | None, PlannerFunction | None], Awaitable[RunContext]]
Admit: TypeAlias = Callable[[SystemRequest, EffectiveLimits, EngineCatalogue], Iterator[FieldError]]


def admit_everything(
    _request: SystemRequest, _limits: EffectiveLimits, _catalogue: EngineCatalogue
) -> Iterator[FieldError]:
    """Refuse nothing."""
    yield from ()


def accept_any_answer(
    _request: SystemRequest, _suspension: Suspension, _payload: JsonValue
) -> Sequence[tuple[str, str]]:
    """Return no errors: the kind of a suspension says everything about its answer."""
    return ()


def no_names(_request: SystemRequest) -> Collection[str]:
    """Return nothing: the pattern has no agents of its own."""
    return ()


@value
class Pattern:
    """A mode: the code that runs it, the version that its records belong to, and what the rest of the core asks of it.

    `version` is raised by hand with every change of effects or their order; records of another one can be neither
    continued nor replayed. `upper_bound` is the most that an admitted request can take.
    """

    run: RunPattern
    version: int
    upper_bound: Callable[[BoundInputs], UpperBound]
    admit: Admit = admit_everything
    """Yields the errors of the request that only this mode knows."""
    plan: MakePlan | None = None
    """Makes the plan, lets the configured planner make it, or takes the static one, in the state PLAN, before PREPARE.

    None for a mode without a plan.
    """
    static_plan: Sequence[PlanStep] | None = None
    """The configured plan that every request without a plan of its own runs."""
    planner: PlannerFunction | None = None
    """The configured planner that makes the plan of every request without one."""
    own_fields: frozenset[str] = frozenset()
    """Request fields that only some modes accept, of which this one is."""
    required_output: tuple[str, ...] = ()
    """Fields of `output` of which one must be given, in the order in which they are named; none by default."""
    replicates: bool = False
    """True if several replicas call the request's tools, which then must neither act nor wait for a person."""
    offers_all_tools: bool = False
    """True if a request that names no tools may use all of them; otherwise it may use none."""
    starts_with_request: bool = True
    """True if the first inference reads the request's messages and tools, so that its size is known beforehand."""
    takes_client_tools: bool = False
    """True if a request may bring tools along that its client runs."""
    needs_messages: bool = True
    """True if a request of this mode has at least one message."""
    models: Callable[[SystemRequest], Sequence[str | None]] = requested_models
    """The routes and engines that inferences of the request name; None is the default route."""
    own_tools: Callable[[SystemRequest], Collection[str]] = no_names
    """The tools that its own agents hold, besides those that the request names."""
    own_agents: Callable[[SystemRequest], Collection[str]] = no_names
    """The agents of the configuration that are its own."""
    fingerprint: Callable[[SystemRequest], str | None] | None = None
    """The fingerprint of what the records of a request depend on besides the version, such as a flow's graph."""
    answer_errors: Callable[[SystemRequest, Suspension, JsonValue], Sequence[tuple[str, str]]] = accept_any_answer
    """The errors of an answer to a suspension that only this mode knows, as pairs of path and message."""

    def can_continue(self, header: ExecutionHeader) -> bool:
        """Return True if the pattern, as it is now, can continue and replay the execution."""
        fingerprint = None if self.fingerprint is None else self.fingerprint(header.request)
        return header.pattern_version == self.version and fingerprint == header.flow_fingerprint


def max_token_price(profile: EngineProfile) -> float:
    """Return the highest price of one token; infinite for an engine without a price."""
    if profile.price is None:
        return inf
    return max(profile.price.dearest_input_token, profile.price.output_token)


def _attempt_cost(profile: EngineProfile) -> float:
    return profile.context_window * max_token_price(profile)
