"""Admission: what the request and the configuration alone decide, before there is an execution."""

import re
from collections.abc import Iterator, Mapping, Sequence

from portico.capabilities.models.catalogue import requested_models
from portico.capabilities.models.format_enforcement import choose_enforcement, prepare_call
from portico.capabilities.tools.arguments import plan_violations
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.agents import RequestedAgent, models_of
from portico.domain.contract.messages import TOOL_NAME_PATTERN
from portico.domain.contract.request import NamedTool, OutputContract, PlanOptions, PlanPolicy, SystemRequest
from portico.domain.failures import (
    AccessFailure,
    Code,
    ConfigurationFailure,
    OrchestrationFailure,
    ToolFailure,
    invalid_request,
)
from portico.domain.ids import TenantId
from portico.domain.journal.header import EffectiveLimits
from portico.domain.lifecycle import Mode
from portico.domain.limits import CAPS, ConfiguredLimits
from portico.domain.model_call import EngineCall
from portico.domain.plan.parsed_plan import ParsedStep, parse_plan
from portico.domain.plan.steps import StepType
from portico.domain.tools import REPLICA_RULE, STEP_PREFIX, ToolDefinition
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.ledger import budget_for
from portico.orchestration.execution.pattern import FieldError, Pattern
from portico.ports.model import Engine

_BUILT_IN_TYPES = frozenset(StepType)
_NO_PLAN, _NO_POLICY = PlanOptions(), PlanPolicy()
_NOT_YET = "is not in this version"
_NO_MEMORY = "needs a memory of documents, and this service has none"
_MODE_FIELDS = ("redundancy", "plan", "flow")
"""Request fields that only the patterns which claim them in `own_fields` accept."""


class Admission:
    """Refuses requests that cannot run here and names every field at fault."""

    def __init__(self, limits: ConfiguredLimits, environment: Environment, patterns: Mapping[Mode, Pattern]) -> None:
        self._limits = limits
        self._effective_limits = EffectiveLimits.configured(limits, environment.health.policy.max_retries)
        self._has_memory = environment.memory is not None
        self._skills = environment.skills
        self._patterns = patterns
        self._catalogue = environment.catalogue
        self._registry = environment.tool_registry
        self._agents = environment.agents

    def admit(
        self, request: SystemRequest, agent: RequestedAgent | None = None, caller: ToolCaller | None = None
    ) -> EffectiveLimits:
        """Return the limits that apply to the execution of a request, which has what its agent gives it.

        Raises: RequestFailure (REQUEST_INVALID) naming every field at fault; ToolFailure (TOOL_NOT_FOUND);
        AccessFailure (ACCESS_DENIED) for a tool that policy does not offer to the caller; ConfigurationFailure
        (CONFIG_SCHEMA_REQUIRED).
        """
        limits = self._effective_limits.lowered_by(request)
        allowed = request.tools if agent is None else agent.allowed(request.tools)
        errors = [
            *self._errors(request, limits),
            *self._skill_errors(request, agent),
            *self._agents_without_price(request, allowed or ()),
        ]
        if errors:
            raise invalid_request(*errors)
        self._check_tools(request, allowed, caller)
        if self._patterns[request.mode].replicates:
            self._check_replicated(allowed or ())
        if request.plan is not None:
            self._check_arguments(request.plan)
        _check_output(request, self._patterns[request.mode])
        return limits

    def _errors(self, request: SystemRequest, limits: EffectiveLimits) -> Iterator[FieldError]:
        pattern = self._patterns.get(request.mode)
        if pattern is None:
            yield FieldError("mode", f"{request.mode} {_NOT_YET}")
        yield from self._above_caps(request)
        yield from self._context_errors(request, pattern)
        yield from self._unknown_step_types(request)
        own_fields = frozenset() if pattern is None else pattern.own_fields
        for field in _MODE_FIELDS:
            if field not in own_fields and getattr(request, field) is not None:
                yield FieldError(field, f"has no effect in mode {request.mode}")
        if request.after is not None and request.session_id is not None:
            yield FieldError("after", "does not go with session_id: a session begins with its own messages")
        if request.if_session_busy == "enqueue" and request.session_id is None:
            yield FieldError("if_session_busy", "has no effect without a session_id")
        yield from _stored_fields(request)
        if pattern is not None and pattern.needs_messages and not request.messages:
            yield FieldError("messages", "must have at least one message")
        if pattern is not None:
            yield from pattern.admit(request, limits, self._catalogue)
        yield from self._unknown_options(request)
        yield from self._engines_without_price(request)

    def _context_errors(self, request: SystemRequest, pattern: Pattern | None) -> Iterator[FieldError]:
        context = request.context
        if context.skills and pattern is not None and not pattern.starts_with_request:
            yield FieldError("context.skills", f"has no effect in mode {request.mode}")
        elif context.skills and self._skills is None:
            yield FieldError("context.skills", "needs skills, and this service has none")
        if context.retrieve and pattern is not None and not pattern.starts_with_request:
            yield FieldError("context.retrieve", f"has no effect in mode {request.mode}")
        elif context.retrieve and not self._has_memory:
            yield FieldError("context.retrieve", _NO_MEMORY)
        for index, step in enumerate([] if self._has_memory or request.plan is None else request.plan.steps or ()):
            if step.type == StepType.RETRIEVE:
                yield FieldError(f"plan.steps.{index}.type", _NO_MEMORY)
        for field in ("max_chunks", "min_score"):
            if not context.retrieve and getattr(context, field) is not None:
                yield FieldError(f"context.{field}", "has no effect unless context.retrieve is true")

    def _skill_errors(self, request: SystemRequest, agent: RequestedAgent | None) -> Iterator[FieldError]:
        names = request.context.skills
        if self._skills is None or names is None or names == "auto":
            return
        for index, name in enumerate(names):
            if name not in self._skills.catalogue:
                yield FieldError(f"context.skills.{index}", "must be a name from GET /v1/skills")
            elif agent is not None and name not in agent.skills:
                yield FieldError(f"context.skills.{index}", "must be a skill of the agent")

    def _above_caps(self, request: SystemRequest) -> Iterator[FieldError]:
        given = request.model_fields_set
        for field, limit, cap in CAPS:
            requested = cap.requested(request) if field in given else None
            most = getattr(self._limits, limit)
            if requested is not None and requested > most:
                yield FieldError(cap.field, f"must be at most {most:g}")

    def _unknown_step_types(self, request: SystemRequest) -> Iterator[FieldError]:
        allowed = ((request.plan or _NO_PLAN).policy or _NO_POLICY).allowed_step_types
        if allowed is None:
            return
        known = (*StepType, *self._registry.step_functions)
        if not (allowed and frozenset(allowed) <= frozenset(known)):
            yield FieldError("plan.policy.allowed_step_types", f"must name some of {', '.join(known)}")

    def _unknown_options(self, request: SystemRequest) -> Iterator[FieldError]:
        self._catalogue.resolve(request.model)
        if request.hints.options:
            known = frozenset().union(*(engine.profile.options for engine in self._possible_engines(request)))
            for key in sorted(request.hints.options.keys() - known):
                yield FieldError("hints.options", f"{key[:64]!a} is not an option of this model's engines")

    def _engines_without_price(self, request: SystemRequest) -> Iterator[FieldError]:
        if request.limits.cost is not None:
            for engine in self._possible_engines(request):
                if engine.profile.price is None:
                    yield FieldError("limits.cost", f"needs a price for engine {engine.profile.name}, which has none")

    def _agents_without_price(self, request: SystemRequest, tools: Sequence[str]) -> Iterator[FieldError]:
        if request.limits.cost is not None:
            pattern = self._patterns.get(request.mode)
            named = [*tools, *([] if request.plan is None else tools_of_steps(request.plan))]
            named += () if pattern is None else pattern.own_tools(request)
            for engine in self._catalogue.engines_for(models_of(self._agents.behind_any(named))):
                if engine.profile.price is None:
                    name = engine.profile.name
                    yield FieldError("limits.cost", f"needs a price for engine {name} of an agent, which has none")

    def _possible_engines(self, request: SystemRequest) -> Sequence[Engine]:
        """Return the engines that the request may use; unknown names are left out."""
        known = [
            model
            for model in self._patterns[request.mode].models(request)
            if model is None or self._catalogue.has(model)
        ]
        models = known or (request.model,)
        return tuple(dict.fromkeys(engine for model in models for engine in self._catalogue.resolve(model)))

    def _check_tools(self, request: SystemRequest, allowed: Sequence[str] | None, caller: ToolCaller | None) -> None:
        """Raise if the request names a tool that is not registered or not permitted, or demands one not `allowed`."""
        choice = request.hints.tool_choice
        named = [*(request.tools or ()), *([choice.name] if isinstance(choice, NamedTool) else ())]
        if request.plan is not None:
            named += tools_of_steps(request.plan)
        if not named:
            return
        unknown = [name for name in named if name not in self._registry and not name.startswith(STEP_PREFIX)]
        if unknown:
            raise ToolFailure(
                Code.TOOL_NOT_FOUND, "the request names a tool that is not registered", {"tools": unknown}
            )
        forbidden = [] if caller is None else [each for each in named if not self._registry.policy.offers(each, caller)]
        if forbidden:
            raise AccessFailure(
                Code.ACCESS_DENIED, "a policy of the service does not permit this tool", {"tools": forbidden}
            )
        if isinstance(choice, NamedTool) and allowed is not None and choice.name not in allowed:
            raise invalid_request(("hints.tool_choice", "must name one of the request's tools"))

    def _check_replicated(self, tools: Sequence[str]) -> None:
        """Raise RequestFailure for tools that several replicas must not call, and for agents that reach one."""
        may_replicate, reachable = self._registry.may_replicate, self._agents.reachable
        barred = [name for name in tools if not all(map(may_replicate, reachable([name])))]
        if barred:
            raise invalid_request(*[("tools", f"must not name {name}: {REPLICA_RULE}") for name in barred])

    def _check_arguments(self, plan: PlanOptions) -> None:
        """Raise if a step of the plan calls a tool with arguments that can never fit it."""
        parsed = parse_plan(plan.steps or ())
        errors = [FieldError(f"plan.{path}", message) for path, message in plan_violations(parsed, self._registry)]
        if errors:
            raise invalid_request(*errors)


def _check_output(request: SystemRequest, pattern: Pattern) -> None:
    """Raise ConfigurationFailure (CONFIG_SCHEMA_REQUIRED) if the mode needs an output format and none is given."""
    required, output = pattern.required_output, request.output
    formats = {"schema": output.schema_, "grammar": output.grammar}
    if required and all(formats[name] is None for name in required):
        field = "output" if len(required) > 1 else f"output.{required[0]}"
        message = f"{field}: {request.mode} needs {' or '.join(f'a {name}' for name in required)}"
        raise ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, message, {"field": field})


def check_budget(
    request: SystemRequest,
    limits: EffectiveLimits,
    environment: Environment,
    tools: Sequence[ToolDefinition],
    tenant: TenantId,
) -> None:
    """Raise OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED) if no engine's first inference fits the budget.

    With tools the first inference offers them and does not enforce an output format, which comes later.
    """
    budget = budget_for(limits)
    if budget is None:
        return
    output = OutputContract() if tools else request.output
    call = EngineCall(request.messages, tools, request.hints, output.schema_, output.grammar)
    refusals: list[OrchestrationFailure] = []
    for engine in environment.catalogue.engines_for(requested_models(request)):
        try:
            first = prepare_call(call, engine.profile, choose_enforcement(call, engine.profile), environment.prompts)
            counter = environment.token_estimator.counter(tenant, engine.profile.model)
            budget.grant("", first, engine.profile, counter)
        except OrchestrationFailure as refusal:
            refusals.append(refusal)
        else:
            return
    raise refusals[0]


def _stored_fields(request: SystemRequest) -> Iterator[FieldError]:
    """Yield an error if the request needs to be stored and refuses it."""
    if not request.store:
        if request.background:
            yield FieldError("store", "must be true for a background execution, whose answer is read later")
        if request.session_id is not None:
            yield FieldError("store", "must be true with a session_id, since a session stores its messages")


def tools_of_steps(plan: PlanOptions) -> list[str]:
    """Return the tools that the steps of the plan name, without names that no tool could have, and the functions that
    run its steps, if their types are not built in.
    """
    steps = plan.steps or ()
    named = (name for step in steps for _, name in ParsedStep(step).named_tools)
    functions = (STEP_PREFIX + step.type for step in steps if step.type not in _BUILT_IN_TYPES)
    tools = (name for name in dict.fromkeys(named) if re.fullmatch(TOOL_NAME_PATTERN, name))
    return [*tools, *dict.fromkeys(functions)]
