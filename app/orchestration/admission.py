"""What request, principal and configuration alone decide, before there is an execution."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.capabilities.answer_contract import AnswerContract
from app.capabilities.models.catalogue import EngineCatalogue, requested_models
from app.capabilities.models.format_enforcement import choose_enforcement, prepare_call
from app.capabilities.tools.registry import ToolRegistry
from app.domain.contract.messages import TOOL_NAME_PATTERN
from app.domain.contract.request import (
    NamedTool,
    OutputContract,
    PlanOptions,
    PlanPolicy,
    RedundancyOptions,
    SystemRequest,
)
from app.domain.failures import Code, ConfigurationFailure, OrchestrationFailure, RequestFailure, ToolFailure
from app.domain.journal.header import EffectiveLimits
from app.domain.lifecycle import Mode
from app.domain.model_call import EngineCall
from app.domain.pausing import Pausing
from app.domain.plan.plan import StepType, named_tools
from app.domain.plan.steps import STEP_SPECS
from app.domain.tools import ToolDefinition
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.ledger import budget_for
from app.ports.model import Engine

FieldError: TypeAlias = tuple[str, str]
"""A field's path and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ConfiguredLimits:
    """The deployment's caps; a request may narrow them. `timeout` is in seconds."""

    messages: int
    tools: int
    tool_rounds: int
    calls_per_reply: int
    timeout: float
    max_retries: int
    attempts: int
    replicas: int
    plan_steps: int
    history_messages: int
    history_tokens: int


_NO_PLAN, _NO_POLICY = PlanOptions(), PlanPolicy()
_NOT_YET = "is not in this version"
_FORM_OPTIONAL = frozenset({Mode.CHAT, Mode.PLAN})
"""Modes whose answer may be a text without a form."""
_LATER_FIELDS = frozenset(
    {
        "agent",
        "context",
        "flow",
        "on_limit",
    }
)


class Admission:
    """Refuses what cannot run here, and says which field is why. `modes` are those that have a pattern."""

    def __init__(
        self, limits: ConfiguredLimits, catalogue: EngineCatalogue, registry: ToolRegistry, modes: frozenset[Mode]
    ) -> None:
        self._limits = limits
        self._modes = modes
        self._catalogue = catalogue
        self._tools = frozenset(registry.names())

    def admit(self, request: SystemRequest) -> EffectiveLimits:
        """The limits that will be in force.

        Raises: RequestFailure (REQUEST_INVALID) naming every field at fault; ToolFailure (TOOL_NOT_FOUND).
        """
        faults = [] if request.mode in self._modes else [("mode", f"{request.mode} {_NOT_YET}")]
        faults += [*_of_later_versions(request), *self._above_caps(request), *self._redundancy(request)]
        faults += [
            *_session(request),
            *_without_form(request),
            *_plan(request),
            *self._options(request),
            *self._unpriced(request),
        ]
        if faults:
            raise _invalid(faults)
        self._known_tools(request)
        hints, limits, caps = request.hints, request.limits, self._limits
        return EffectiveLimits(
            timeout=caps.timeout if hints.timeout is None else hints.timeout,
            tool_rounds=caps.tool_rounds if limits.tool_rounds is None else limits.tool_rounds,
            calls_per_reply=caps.calls_per_reply if limits.calls_per_reply is None else limits.calls_per_reply,
            max_retries=caps.max_retries,
            attempts=caps.attempts if limits.attempts is None else limits.attempts,
            replicas=caps.replicas,
            plan_steps=caps.plan_steps,
            tokens=limits.tokens,
            cost=limits.cost,
            history_messages=caps.history_messages,
            history_tokens=caps.history_tokens,
        )

    def _above_caps(self, request: SystemRequest) -> Iterator[FieldError]:
        caps, plan = self._limits, request.plan or _NO_PLAN
        policy = plan.policy or _NO_POLICY
        asked = (
            ("messages", len(request.messages), caps.messages),
            ("tools", len(request.tools or ()), caps.tools),
            ("hints.timeout", request.hints.timeout, caps.timeout),
            ("limits.tool_rounds", request.limits.tool_rounds, caps.tool_rounds),
            ("limits.calls_per_reply", request.limits.calls_per_reply, caps.calls_per_reply),
            ("limits.attempts", request.limits.attempts, caps.attempts),
            ("plan.steps", len(plan.steps or ()), caps.plan_steps),
            ("plan.policy.max_steps", policy.max_steps, caps.plan_steps),
            ("plan.policy.timeout_per_step", policy.timeout_per_step, caps.timeout),
        )
        for field, value, cap in asked:
            if value is not None and value > cap:
                yield field, f"must be at most {cap:g}"

    def _redundancy(self, request: SystemRequest) -> Iterator[FieldError]:
        if request.mode is not Mode.REDUNDANT:
            if request.redundancy is not None:
                yield "redundancy", f"is of no use in mode {request.mode}"
            return
        options = request.redundancy or RedundancyOptions()
        if options.n > self._limits.replicas:
            yield "redundancy.n", f"must be at most {self._limits.replicas}"
        if options.quorum is not None and options.quorum > options.n:
            yield "redundancy.quorum", f"must be at most the {options.n} replicas"
        if options.models is not None and len(options.models) != options.n:
            yield "redundancy.models", f"must name {options.n} models, one a replica"
        for index, model in enumerate(options.models or ()):
            if not self._catalogue.has(model):
                yield f"redundancy.models.{index}", "must be a name from GET /v1/engines"

    def _options(self, request: SystemRequest) -> Iterator[FieldError]:
        self._catalogue.resolve(request.model)
        if request.hints.options:
            allowed = frozenset().union(*(engine.profile.options for engine in self._asked(request)))
            for key in sorted(request.hints.options.keys() - allowed):
                yield "hints.options", f"{key[:64]!a} is not an option of this model's engines"

    def _unpriced(self, request: SystemRequest) -> Iterator[FieldError]:
        if request.limits.cost is not None:
            for engine in self._asked(request):
                if engine.profile.price is None:
                    yield "limits.cost", f"needs a price of engine {engine.profile.name}, which has none"

    def _asked(self, request: SystemRequest) -> Sequence[Engine]:
        """The engines that may be asked, without those of unknown names."""
        known = [model for model in requested_models(request) if model is None or self._catalogue.has(model)]
        models = known or (request.model,)
        return tuple(dict.fromkeys(engine for model in models for engine in self._catalogue.resolve(model)))

    def _known_tools(self, request: SystemRequest) -> None:
        named = list(request.tools or ())
        if isinstance(request.hints.tool_choice, NamedTool):
            named.append(request.hints.tool_choice.name)
        named += _tools_of_steps(request)
        unknown = [name for name in named if name not in self._tools]
        if unknown:
            raise ToolFailure(
                Code.TOOL_NOT_FOUND, "the request names a tool that is not registered", {"tools": unknown}
            )
        choice = request.hints.tool_choice
        if isinstance(choice, NamedTool) and request.tools is not None and choice.name not in request.tools:
            raise _invalid([("hints.tool_choice", "must name one of the request's tools")])


def _session(request: SystemRequest) -> Iterator[FieldError]:
    if request.if_session_busy == "enqueue" and request.session_id is None:
        yield "if_session_busy", "is of no use without a session_id"


def _plan(request: SystemRequest) -> Iterator[FieldError]:
    asked = request.plan
    if asked is None:
        return
    if request.mode is not Mode.PLAN:
        yield "plan", f"is of no use in mode {request.mode}"
    if asked.passes > 1:
        yield "plan.passes", _NOT_YET
    allowed = None if asked.policy is None else asked.policy.allowed_step_types
    if allowed is not None and not (allowed and frozenset(allowed) <= frozenset(StepType)):
        yield "plan.policy.allowed_step_types", f"must name some of {', '.join(StepType)}"


def _tools_of_steps(request: SystemRequest) -> list[str]:
    """What the steps of an authored plan call tools, as far as these could be names of some."""
    steps = [] if request.plan is None else request.plan.steps or []
    named = (name for step in steps if step.type in STEP_SPECS for _, name in named_tools(step))
    return [name for name in dict.fromkeys(named) if re.fullmatch(TOOL_NAME_PATTERN, name)]


def _of_later_versions(request: SystemRequest) -> Iterator[FieldError]:
    asked = request.model_fields_set
    for field in sorted(_LATER_FIELDS & asked):
        if getattr(request, field) != SystemRequest.model_fields[field].get_default(call_default_factory=True):
            yield field, _NOT_YET


def _without_form(request: SystemRequest) -> Iterator[FieldError]:
    """What mode chat, whose answer is a text without a form, cannot keep."""
    output = request.output
    if request.mode is not Mode.CHAT:
        return
    for field, value in (("schema", output.schema_), ("grammar", output.grammar)):
        if value is not None:
            yield f"output.{field}", "is kept in mode structured, not in mode chat"
    if not output.repair_allowed:
        yield "output.repair_allowed", "is of no use in mode chat"
    for index, rule in enumerate(output.rules):
        if not isinstance(rule, str) and rule.path is not None:
            yield f"output.rules.{index}.path", "needs a value, which mode structured has, not mode chat"


def compile_contract(request: SystemRequest) -> Pausing[None]:
    """Makes the contract ready, which is remembered.

    Raises: ConfigurationFailure, RequestFailure, for a contract that no answer could be held to.
    """
    output = request.output
    if request.mode is Mode.REDUNDANT and output.schema_ is None:
        raise _formless("output.schema", "redundant needs a schema")
    if request.mode not in _FORM_OPTIONAL and output.schema_ is None and output.grammar is None:
        raise _formless("output", "structured needs a schema or a grammar")
    yield from AnswerContract.compiling(output)


def check_budget(
    request: SystemRequest, bounds: EffectiveLimits, world: Environment, tools: Sequence[ToolDefinition]
) -> None:
    """Raises: OrchestrationFailure (ORCHESTRATION_BUDGET_EXCEEDED) when no engine could be asked the first thing.

    With tools that is what they are offered with; what a form is asked for with comes later then. What a plan asks
    first is not known yet.
    """
    budget = budget_for(bounds)
    if budget is None or request.mode is Mode.PLAN:
        return
    form = OutputContract() if tools else request.output
    call = EngineCall(request.messages, tools, request.hints, form.schema_, form.grammar)
    refused: list[OrchestrationFailure] = []
    for engine in world.catalogue.engines_for(request):
        try:
            first = prepare_call(call, engine.profile, choose_enforcement(call, engine.profile))
            budget.grant("", first, engine.profile, world.token_counter)
        except OrchestrationFailure as refusal:
            refused.append(refusal)
        else:
            return
    raise refused[0]


def _formless(field: str, why: str) -> ConfigurationFailure:
    return ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, f"{field}: {why}", {"field": field})


def _invalid(faults: Sequence[FieldError]) -> RequestFailure:
    summary = "; ".join(f"{field} {what}" for field, what in faults)
    details = {"errors": [{"field": field, "message": what} for field, what in faults]}
    return RequestFailure(Code.REQUEST_INVALID, summary, details)
