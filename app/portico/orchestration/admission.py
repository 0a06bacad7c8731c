"""Admission: what the request and the configuration alone decide, before there is an execution."""

from collections.abc import Mapping, Sequence

from portico.capabilities.models.catalogue import requested_models
from portico.capabilities.models.format_enforcement import choose_enforcement, prepare_call
from portico.domain.access.principal import ALL, Permissions
from portico.domain.access.tool_policy import ToolCaller
from portico.domain.agents import RequestedAgent
from portico.domain.contract.request import OutputContract, SystemRequest
from portico.domain.failures import OrchestrationFailure, invalid_request
from portico.domain.ids import TenantId
from portico.domain.journal.header import EffectiveLimits
from portico.domain.lifecycle import Mode
from portico.domain.limits import ConfiguredLimits
from portico.domain.model_call import EngineCall
from portico.domain.schedules import RUN_PREFIX
from portico.domain.tools import ToolDefinition
from portico.orchestration.admission_checks import CHECKS, PLAIN_CHECKS, CheckInputs, is_plain
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.ledger import budget_for
from portico.orchestration.execution.pattern import Pattern


class Admission:
    """Refuses requests that cannot run here and names every field at fault."""

    def __init__(self, limits: ConfiguredLimits, environment: Environment, patterns: Mapping[Mode, Pattern]) -> None:
        self._limits = limits
        self._environment = environment
        self._patterns = patterns
        self._configured_limits = EffectiveLimits.configured(limits, environment.health.policy.max_retries)

    def admit(
        self,
        request: SystemRequest,
        agent: RequestedAgent | None = None,
        *,
        caller: ToolCaller | None = None,
        permissions: Permissions = ALL,
    ) -> EffectiveLimits:
        """Return the limits that apply to the execution of a request, which has what its agent gives it.

        A refusal names nothing that is not permitted.

        Raises: RequestFailure (REQUEST_INVALID) naming every field at fault; ToolFailure (TOOL_NOT_FOUND);
        AccessFailure (ACCESS_DENIED) for a tool that policy does not offer to the caller; ConfigurationFailure
        (CONFIG_SCHEMA_REQUIRED, CONFIG_FLOW_INVALID).
        """
        pattern = self._patterns.get(request.mode)
        if pattern is None:
            raise invalid_request(("mode", f"{request.mode} is not in this version"))
        if request.request_id is not None and request.request_id.startswith(RUN_PREFIX):
            raise invalid_request(("request_id", f"must not begin with {RUN_PREFIX}, as those of schedules do"))
        plain = is_plain(request)
        limits = self._configured_limits if plain else self._configured_limits.lowered_by(request)
        tools = request.tools if agent is None else agent.allowed(request.tools)
        environment, caps = self._environment, self._limits
        inputs = CheckInputs(request, pattern, limits, caps, environment, tools, agent, caller, permissions)
        for group in PLAIN_CHECKS if plain else CHECKS:
            errors = [error for check in group for error in check.errors(inputs)]
            if errors:
                raise invalid_request(*errors)
        return limits


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
