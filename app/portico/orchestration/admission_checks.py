"""Checks of a request at admission: a row for each reason to refuse it, in the order in which refusals win.

The errors of fields that the rows of one group find are answered together, and later groups are not asked. What a check
raises is answered alone, even if its group has found errors before.

The checks are asked at admission only, never again at recovery: whether a request gives a field is known of the request
as it was received.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from portico.capabilities.output.schema.compiled import check_schema_size
from portico.capabilities.tools.arguments import plan_violations
from portico.domain.access.principal import ALL, Permissions
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.agents import RequestedAgent, models_of
from portico.domain.contract.messages import TOOL_NAME_PATTERN
from portico.domain.contract.request import NamedTool, PlanOptions, PlanPolicy, SystemRequest
from portico.domain.failures import AccessFailure, Code, ConfigurationFailure, ToolFailure, invalid_request
from portico.domain.field_errors import nearest_name
from portico.domain.journal.header import EffectiveLimits
from portico.domain.limits import CAPS, Cap, ConfiguredLimits
from portico.domain.plan.parsed_plan import ParsedStep, parse_plan
from portico.domain.plan.steps import StepType
from portico.domain.time_zones import DAY_S, unix_seconds
from portico.domain.tools import REPLICA_RULE, STEP_PREFIX, reference_of
from portico.domain.value import value
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.pattern import FieldError, Pattern
from portico.orchestration.pipeline.media import media_errors
from portico.orchestration.pipeline.stages import allowed_tools
from portico.ports.model import ConfiguredEngine

PLAIN: Final = frozenset({"messages", "model", "metadata", "request_id", "session_id", "trace_id"})
"""Fields that a plain request may give: its messages, its model, its metadata and ids."""
_HINTED_CHARACTERS: Final = 128
MAX_DELAY_DAYS: Final = 366
_UNTOUCHED: Final = SystemRequest()
_BUILT_IN_TYPES: Final = frozenset(StepType)
_NO_PLAN, _NO_POLICY = PlanOptions(), PlanPolicy()
_NO_MEMORY: Final = "needs a memory of documents, and this service has none"
_MODE_FIELDS: Final = ("redundancy", "plan", "flow")
"""Request fields that only the patterns which claim them in `own_fields` accept."""


@value
class CheckInputs:
    """Inputs of the checks: a request, and what it is compared with.

    `tools` are those that the request and its agent allow together; None if neither names any.
    """

    request: SystemRequest
    pattern: Pattern
    limits: EffectiveLimits
    caps: ConfiguredLimits
    environment: Environment
    tools: Sequence[str] | None = None
    agent: RequestedAgent | None = None
    caller: ToolCaller | None = None
    permissions: Permissions = ALL

    @property
    def engines(self) -> Sequence[ConfiguredEngine]:
        """The engines that the request may use; unknown names are left out."""
        catalogue = self.environment.catalogue
        known = [model for model in self.pattern.models(self.request) if model is None or catalogue.has(model)]
        return catalogue.all_engines_for(known or (self.request.model,))

    @property
    def plan(self) -> PlanOptions:
        """The options of the plan; those of an empty one without a plan."""
        return self.request.plan or _NO_PLAN

    @property
    def named_tools(self) -> Sequence[str]:
        """The tools that the request names: those that it offers, the one that it demands, and those of its steps."""
        choice = self.request.hints.tool_choice
        is_named = isinstance(choice, NamedTool) and not self.request.has_client_tool(choice.name)
        demanded = [choice.name] if isinstance(choice, NamedTool) and is_named else []
        return [*(self.request.tools or ()), *demanded, *tools_of_steps(self.plan)]


@value
class Check:
    """A reason to refuse a request, and the `fields` of the request that decide about it.

    `errors` returns the errors of fields, or raises the Failure that is answered alone.
    """

    name: str
    fields: frozenset[str]
    errors: Callable[[CheckInputs], Iterable[FieldError]]


def is_plain(request: SystemRequest) -> bool:
    """Return True if the request gives no fields but plain ones, or others their defaults."""
    others = request.model_fields_set - PLAIN
    return not others or all(getattr(request, name) == getattr(_UNTOUCHED, name) for name in others)


def tools_of_steps(plan: PlanOptions) -> list[str]:
    """Return the tools that the steps of the plan name, without names that no tool could have, and the functions that
    run its steps, if their types are not built in.
    """
    steps = plan.steps or ()
    named = (name for step in steps for _, name in ParsedStep(step).named_tools)
    functions = (STEP_PREFIX + step.type for step in steps if step.type not in _BUILT_IN_TYPES)
    tools = (name for name in dict.fromkeys(named) if re.fullmatch(TOOL_NAME_PATTERN, name))
    return [*tools, *dict.fromkeys(functions)]


def _above_caps(caps: Sequence[tuple[str, Cap]], inputs: CheckInputs) -> Iterator[FieldError]:
    for limit, cap in caps:
        requested, most = cap.requested(inputs.request), getattr(inputs.caps, limit)
        if requested is not None and requested > most:
            yield FieldError(cap.field, f"must be at most {most:g}")


def _skills_without_effect(inputs: CheckInputs) -> Iterator[FieldError]:
    if inputs.request.context.skills:
        if not inputs.pattern.starts_with_request:
            yield FieldError("context.skills", f"has no effect in mode {inputs.request.mode}")
        elif inputs.environment.skills is None:
            yield FieldError("context.skills", "needs skills, and this service has none")


def _retrieval_without_effect(inputs: CheckInputs) -> Iterator[FieldError]:
    if inputs.request.context.retrieve:
        if not inputs.pattern.starts_with_request:
            yield FieldError("context.retrieve", f"has no effect in mode {inputs.request.mode}")
        elif inputs.environment.memory is None:
            yield FieldError("context.retrieve", _NO_MEMORY)


def _steps_without_memory(inputs: CheckInputs) -> Iterator[FieldError]:
    if inputs.environment.memory is None:
        for index, step in enumerate(inputs.plan.steps or ()):
            if step.type == StepType.RETRIEVE:
                yield FieldError(f"plan.steps.{index}.type", _NO_MEMORY)


def _chunks_without_retrieval(inputs: CheckInputs) -> Iterator[FieldError]:
    context = inputs.request.context
    if not context.retrieve:
        for field, given in (("max_chunks", context.max_chunks), ("min_score", context.min_score)):
            if given is not None:
                yield FieldError(f"context.{field}", "has no effect unless context.retrieve is true")


def _unknown_step_types(inputs: CheckInputs) -> Iterator[FieldError]:
    allowed = (inputs.plan.policy or _NO_POLICY).allowed_step_types
    if allowed is not None:
        known = (*StepType, *inputs.environment.tool_registry.step_functions)
        if not (allowed and frozenset(allowed) <= frozenset(known)):
            yield FieldError("plan.policy.allowed_step_types", f"must name some of {', '.join(known)}")


def _fields_of_other_modes(inputs: CheckInputs) -> Iterator[FieldError]:
    request = inputs.request
    for field in _MODE_FIELDS:
        if field not in inputs.pattern.own_fields and getattr(request, field) is not None:
            yield FieldError(field, f"has no effect in mode {request.mode}")


def _client_tools(inputs: CheckInputs) -> Iterator[FieldError]:
    request, pattern = inputs.request, inputs.pattern
    if not request.client_tools:
        if request.on_client_call == "end":
            yield FieldError("on_client_call", "has no effect without client_tools")
        return
    if not pattern.takes_client_tools:
        yield FieldError("client_tools", f"has no effect in mode {request.mode}")
        return
    registry, caller = inputs.environment.tool_registry, inputs.caller
    offered = frozenset(allowed_tools(request, pattern, registry, inputs.agent, inputs.permissions))
    names = [tool.name for tool in request.client_tools]
    for index, tool in enumerate(request.client_tools):
        if tool.name in names[:index]:
            yield FieldError(f"client_tools.{index}.name", "occurs twice")
        elif tool.name in offered and (caller is None or registry.policy.offers(tool.name, caller)):
            yield FieldError(f"client_tools.{index}.name", "is the name of a tool that the service may offer")
        if tool.parameters.get("type") != "object":
            yield FieldError(f"client_tools.{index}.parameters", "must be a JSON Schema of type object")
        try:
            check_schema_size(tool.parameters)
        except ConfigurationFailure as refusal:
            yield FieldError(f"client_tools.{index}.parameters", str(refusal.details["message"]))


def _after_in_a_session(inputs: CheckInputs) -> Iterator[FieldError]:
    if inputs.request.after is not None and inputs.request.session_id is not None:
        yield FieldError("after", "does not go with session_id: a session begins with its own messages")


def _busy_without_a_session(inputs: CheckInputs) -> Iterator[FieldError]:
    if inputs.request.if_session_busy == "enqueue" and inputs.request.session_id is None:
        yield FieldError("if_session_busy", "has no effect without a session_id")


def _refused_store(inputs: CheckInputs) -> Iterator[FieldError]:
    request = inputs.request
    if not request.store:
        if request.run_at is not None:
            yield FieldError("run_at", "must be absent with store false, since its answer is read later")
        elif request.background:
            yield FieldError("store", "must be true for a background execution, whose answer is read later")
        if request.session_id is not None:
            yield FieldError("store", "must be true with a session_id, since a session stores its messages")


def _too_late_a_start(inputs: CheckInputs) -> Iterator[FieldError]:
    run_at = inputs.request.run_at
    if run_at is not None and unix_seconds(run_at) > inputs.environment.clock.now() + MAX_DELAY_DAYS * DAY_S:
        yield FieldError("run_at", f"must be at most {MAX_DELAY_DAYS} days ahead")


def _messages(inputs: CheckInputs) -> Iterable[FieldError]:
    for message in inputs.request.messages:
        if message.content.__class__ is list:
            return media_errors(inputs.request.messages, inputs.environment.media)
    if inputs.request.messages or not inputs.pattern.needs_messages:
        return ()
    return (FieldError("messages", "must have at least one message"),)


def _of_the_mode(inputs: CheckInputs) -> Iterator[FieldError]:
    """Return the errors that only the mode knows. Raises: Failure."""
    return inputs.pattern.admit(inputs.request, inputs.limits, inputs.environment.catalogue)


def _unknown_model(inputs: CheckInputs) -> Iterable[FieldError]:
    """Return nothing. Raises: RequestFailure (REQUEST_INVALID)."""
    model, catalogue = inputs.request.model, inputs.environment.catalogue
    if model is not None and not catalogue.has(model):
        known = [name for name in catalogue.names if catalogue.is_permitted(name, inputs.permissions)]
        raise invalid_request(("model", f"must be a name from GET /v1/engines{_hint(model, known)}"))
    return ()


def _unknown_options(inputs: CheckInputs) -> Iterator[FieldError]:
    options = inputs.request.hints.options
    if options:
        known = frozenset().union(*(engine.profile.options for engine in inputs.engines))
        for key in sorted(options.keys() - known):
            yield FieldError("hints.options", f"{key[:64]!a} is not an option of this model's engines")


def _engines_without_price(inputs: CheckInputs) -> Iterator[FieldError]:
    if inputs.request.limits.cost is not None:
        for engine in inputs.engines:
            if engine.profile.price is None:
                yield FieldError("limits.cost", f"needs a price for engine {engine.profile.name}, which has none")


def _unknown_skills(inputs: CheckInputs) -> Iterator[FieldError]:
    names, library, agent = inputs.request.context.skills, inputs.environment.skills, inputs.agent
    if library is None or names is None or names == "auto":
        return
    for index, name in enumerate(names):
        if name not in library.catalogue:
            yield FieldError(f"context.skills.{index}", "must be a name from GET /v1/skills")
        elif agent is not None and name not in agent.skills:
            yield FieldError(f"context.skills.{index}", "must be a skill of the agent")


def _agents_without_price(inputs: CheckInputs) -> Iterator[FieldError]:
    request, environment = inputs.request, inputs.environment
    if request.limits.cost is not None:
        named = [*(inputs.tools or ()), *tools_of_steps(inputs.plan)]
        named += inputs.pattern.own_tools(request)
        for engine in environment.catalogue.engines_for(models_of(environment.agents.behind_any(named))):
            if engine.profile.price is None:
                name = engine.profile.name
                yield FieldError("limits.cost", f"needs a price for engine {name} of an agent, which has none")


def _unknown_tools(inputs: CheckInputs) -> Iterable[FieldError]:
    """Return nothing. Raises: ToolFailure (TOOL_NOT_FOUND)."""
    registry = inputs.environment.tool_registry
    unknown = [name for name in inputs.named_tools if name not in registry and not name.startswith(STEP_PREFIX)]
    if unknown:
        usable = (name for name in registry if inputs.permissions.allows_tool(name))
        known = [name for name in usable if inputs.caller is None or registry.policy.offers(name, inputs.caller)]
        message = f"the request names a tool that is not registered{_hint(unknown[0], known)}"
        raise ToolFailure(Code.TOOL_NOT_FOUND, message, {"tools": unknown})
    return ()


def _hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name, with the nearest known one; empty if none is near."""
    nearest = nearest_name(reference_of(name[:_HINTED_CHARACTERS]), map(reference_of, known))
    return "" if nearest is None else f'; did you mean "{nearest}"?'


def _denied_tools(inputs: CheckInputs) -> Iterable[FieldError]:
    """Return nothing. Raises: AccessFailure (ACCESS_DENIED)."""
    policy, caller = inputs.environment.tool_registry.policy, inputs.caller
    denied = [] if caller is None else [name for name in inputs.named_tools if not policy.offers(name, caller)]
    if denied:
        message = "a policy of the service does not permit this tool"
        raise AccessFailure(Code.ACCESS_DENIED, message, {"tools": denied})
    return ()


def _demanded_tool(inputs: CheckInputs) -> Iterator[FieldError]:
    choice, tools = inputs.request.hints.tool_choice, inputs.tools
    if isinstance(choice, NamedTool) and tools is not None and choice.name not in tools:
        if inputs.request.has_client_tool(choice.name):
            return
        yield FieldError("hints.tool_choice", "must name one of the request's tools")


def _replicated_tools(inputs: CheckInputs) -> Iterator[FieldError]:
    """Yield an error for each tool that several replicas must not call, and for each agent that reaches one."""
    environment = inputs.environment
    if inputs.pattern.replicates:
        for name in inputs.tools or ():
            if not all(map(environment.tool_registry.may_replicate, environment.agents.reachable([name]))):
                yield FieldError("tools", f"must not name {name}: {REPLICA_RULE}")


def _planned_arguments(inputs: CheckInputs) -> Iterator[FieldError]:
    """Yield an error for each step that calls a tool with arguments that can never fit it."""
    parsed = parse_plan(inputs.plan.steps or ())
    for path, message in plan_violations(parsed, inputs.environment.tool_registry):
        yield FieldError(f"plan.{path}", message)


def _missing_format(inputs: CheckInputs) -> Iterable[FieldError]:
    """Return nothing. Raises: ConfigurationFailure (CONFIG_SCHEMA_REQUIRED)."""
    required, output = inputs.pattern.required_output, inputs.request.output
    formats = {"schema": output.schema_, "grammar": output.grammar}
    if required and all(formats[name] is None for name in required):
        field = "output" if len(required) > 1 else f"output.{required[0]}"
        needed = " or ".join(f"a {name}" for name in required)
        message = f"{field}: {inputs.request.mode} needs {needed}"
        raise ConfigurationFailure(Code.CONFIG_SCHEMA_REQUIRED, message, {"field": field})
    return ()


def _check(name: str, fields: str, errors: Callable[[CheckInputs], Iterable[FieldError]]) -> Check:
    return Check(name, frozenset(fields.split()), errors)


def _cap_checks() -> Iterator[Check]:
    """Yield a check for each field of requests in which there are caps, in their order."""
    for field in dict.fromkeys(field for field, _, _ in CAPS):
        caps = [(limit, cap) for each, limit, cap in CAPS if each == field]
        yield _check(f"{field} above a cap", field, partial(_above_caps, caps))


CHECKS: Final[Sequence[Sequence[Check]]] = (
    (
        *_cap_checks(),
        _check("skills without effect", "context", _skills_without_effect),
        _check("retrieval without effect", "context", _retrieval_without_effect),
        _check("steps without a memory", "plan", _steps_without_memory),
        _check("chunks without retrieval", "context", _chunks_without_retrieval),
        _check("unknown step types", "plan", _unknown_step_types),
        _check("fields of other modes", "redundancy plan flow", _fields_of_other_modes),
        _check("client tools", "client_tools on_client_call", _client_tools),
        _check("after in a session", "after", _after_in_a_session),
        _check("busy without a session", "if_session_busy", _busy_without_a_session),
        _check("refused store", "store", _refused_store),
        _check("too late a start", "run_at", _too_late_a_start),
        _check("no messages, or URLs that are not fetched", "messages", _messages),
        _check("what only the mode knows", "mode output", _of_the_mode),
        _check("unknown model", "model", _unknown_model),
        _check("unknown options", "hints", _unknown_options),
        _check("engines without a price", "limits", _engines_without_price),
        _check("unknown skills", "context", _unknown_skills),
        _check("agents without a price", "limits", _agents_without_price),
    ),
    (_check("unknown tools", "tools hints plan", _unknown_tools),),
    (_check("denied tools", "tools hints plan", _denied_tools),),
    (_check("demanded tool", "hints", _demanded_tool),),
    (_check("replicated tools", "mode", _replicated_tools),),
    (_check("planned arguments", "plan", _planned_arguments),),
    (_check("missing format", "mode", _missing_format),),
)
PLAIN_CHECKS: Final[Sequence[Sequence[Check]]] = tuple(
    filter(None, (tuple(check for check in group if check.fields <= PLAIN) for group in CHECKS))
)
"""Those that can refuse a plain request."""
