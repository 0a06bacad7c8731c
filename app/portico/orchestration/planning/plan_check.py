"""Checks of plans: their policy, their inputs, the arguments of their tools, and the contracts of their steps.

A model learns why its plan was refused and tries again, so a replay has to refuse it for the same reasons: the tools
that it may call are recorded first, all else is in the header of the execution.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, Final

import orjson

from portico.capabilities.answer_contract import LARGE_CONTRACT_CHARACTERS, AnswerContract
from portico.capabilities.output.rules.custom import BUILT_IN_RULES
from portico.capabilities.output.rules.rule_set import RuleRegistry
from portico.capabilities.prompting.prompts.planning import STEP_TYPE_DESCRIPTIONS
from portico.capabilities.tools.arguments import ArgumentValidators, plan_violations
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.contract.request import OutputContract, PlanStep
from portico.domain.failures import ConfigurationFailure, OrchestrationFailure, RequestFailure
from portico.domain.journal.outcomes import Outcome, Plan, PlanningInputs, Refused
from portico.domain.plan.parsed_plan import ParsedPlan, ParsedStep, parse_plan
from portico.domain.plan.plan import plan_refused, validate_plan
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.plan.steps import StepType
from portico.domain.tools import REPLICA_RULE, STEP_PREFIX, ToolDefinition, agent_of
from portico.domain.value import replace, value
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.environment import Environment
from portico.ports.validation import AnswerValidator

MAX_SCHEMA_BYTES: Final = 131_072
"""Limit of the schemas and rules of all steps, so that the large ones stay in the schema cache while the plan runs."""
_LARGE_BYTES: Final = 65_536


def refusal_of(
    plan: ParsedPlan,
    policy: EffectivePlanPolicy,
    *,
    plain_only: bool = False,
    rules: RuleRegistry = BUILT_IN_RULES,
    unchecked: Sequence[int] | None = None,
) -> OrchestrationFailure | None:
    """Return why the plan cannot run, with `details.violations`; None if it can. It may take a while.

    With `plain_only` only those schemas and rules are compiled that are small and plain. The indexes `unchecked` are as
    for `validate_plan`.
    """
    indexes = range(len(plan.steps)) if unchecked is None else unchecked
    return validate_plan(plan, policy, indexes) or _contract_errors(
        plan, indexes, rules, lambda contract: contract.size.is_plain or not plain_only
    )


class AcceptedSteps:
    """The steps that a policy accepted, one by one; as long as it stays the same they are not checked again."""

    def __init__(self) -> None:
        self._policy: EffectivePlanPolicy | None = None
        self._steps: set[ParsedStep] = set()

    def missing(self, plan: ParsedPlan, policy: EffectivePlanPolicy) -> Sequence[int]:
        """Return the indexes of the steps of the plan that this policy has not accepted yet."""
        of_steps = replace(policy, max_steps=0, require_linear=False)
        if of_steps != self._policy:
            self._policy, self._steps = of_steps, set()
        return [index for index, step in enumerate(plan.steps) if step not in self._steps]

    def add(self, plan: ParsedPlan) -> None:
        """Add the steps of a plan that the last policy accepted."""
        self._steps.update(plan.steps)


@value
class PlanRules:
    """Rules for a plan that a model makes or changes: the policy, and the tools and the types of modules that were
    recorded.

    Its steps name built-in rules only; those of the plan that is changed were accepted before.
    """

    policy: EffectivePlanPolicy
    tools: Sequence[Mapping[str, Any]]
    accepted: Sequence[PlanStep] = ()
    module_types: Sequence[Mapping[str, Any]] = ()
    checked_steps: AcceptedSteps = field(default_factory=AcceptedSteps)

    @classmethod
    def of(
        cls, context: RunContext, inputs: PlanningInputs, *, max_steps: int | None = None, subplans: bool = True
    ) -> "PlanRules":
        """Return the rules for plans of at most `max_steps`, with or without steps of type `subplan`."""
        types = [each["name"] for each in inputs.step_types]
        policy = plan_policy(context, [tool["name"] for tool in inputs.tools], types)
        most = policy.max_steps if max_steps is None else min(policy.max_steps, max_steps)
        plan = context.settings.plan
        accepted = () if plan is None else plan.steps
        rules = replace(policy, max_steps=most, subplans=subplans, retrieval=inputs.retrieval)
        return cls(rules, inputs.tools, accepted, inputs.step_types)

    @property
    def step_types(self) -> Mapping[str, str]:
        """The types that steps may have, with their descriptions."""
        descriptions = {**STEP_TYPE_DESCRIPTIONS} | {each["name"]: each["description"] for each in self.module_types}
        return {
            name: descriptions[name]
            for name in self.policy.step_types
            if name in self.policy.allowed_step_types and (name != StepType.TOOL or self.tools)
        }

    def within(self, max_steps: int) -> "PlanRules":
        """Return the same rules for plans of at most so many steps."""
        return replace(self, policy=replace(self.policy, max_steps=max_steps))

    def check(self, plan: ParsedPlan) -> None:
        """Raise OrchestrationFailure for a plan that cannot run. Steps that were accepted before are not checked again.

        Large schemas and rules are checked later, outside of the event loop, and so are those that are not plain.
        """
        unchecked = self.checked_steps.missing(plan, self.policy)
        refusal = validate_plan(plan, self.policy, unchecked) or self._call_errors(plan, unchecked)
        if refusal is None and _contract_bytes(plan) <= LARGE_CONTRACT_CHARACTERS:
            others = [index for index in unchecked if plan.steps[index].plan_step not in self.accepted]
            refusal = _contract_errors(plan, others, BUILT_IN_RULES, _has_plain_format)
        if refusal is not None:
            raise refusal
        self.checked_steps.add(plan)

    def _call_errors(self, plan: ParsedPlan, indexes: Sequence[int]) -> OrchestrationFailure | None:
        """Return the refusal of arguments that do not fit a tool or a function of a module."""
        types = {plan.steps[index].type for index in indexes}
        tools = self.tools if StepType.TOOL in types else ()
        known = (each for each in self.module_types if each["name"] in types)
        functions = ({**each, "name": STEP_PREFIX + each["name"]} for each in known)
        validators = ArgumentValidators(ToolDefinition(**tool) for tool in (*tools, *functions))
        violations = list(plan_violations(plan, validators, indexes))
        return plan_refused(violations) if violations else None


def _has_plain_format(contract: AnswerContract) -> bool:
    return contract.size.has_plain_format


async def checked_plan(
    context: RunContext,
    plan: Plan | Refused,
    environment: Environment,
    *,
    parsed: ParsedPlan | None = None,
    accepted: AcceptedSteps | None = None,
) -> Outcome:
    """Return the plan, or its refusal. Large schemas and rules are compiled outside of the event loop.

    `parsed` is the same plan, if it was parsed before, of which only the steps are checked that are not `accepted`.
    """
    if isinstance(plan, Refused):
        return plan
    parsed, accepted = parsed or parse_plan(plan.steps), accepted or AcceptedSteps()
    policy = plan_policy(context, allowed_tools_of(context, environment), module_types_of(context, environment))
    replicated = _replicated_tools(parsed, context.settings.allowed_tools, environment.tool_registry)
    if replicated:
        return Refused.by(plan_refused(replicated))
    unchecked = accepted.missing(parsed, policy)
    check = partial(refusal_of, parsed, policy, plain_only=True, unchecked=unchecked)
    refusal = await environment.thread_pool.run(check) if _is_large(parsed, unchecked) else check()
    refusal = refusal or await _worker_refusal(parsed, unchecked, environment.answer_validator)
    if refusal is not None:
        return Refused.by(refusal)
    accepted.add(parsed)
    return plan


def _replicated_tools(plan: ParsedPlan, allowed: Sequence[str] | None, registry: ToolRegistry) -> list[tuple[str, str]]:
    """Return the violations of redundant steps whose replicas would call a tool that must not be replicated."""
    found = []
    for index, step in enumerate(plan.steps):
        if step.type == StepType.REDUNDANT:
            named = step.named_tools or [("", name) for name in allowed or ()]
            barred = [(path, name) for path, name in named if not registry.may_replicate(name)]
            found += [(f"steps.{index}{path}", f"must not name {name}: {REPLICA_RULE}") for path, name in barred]
    return found


async def _worker_refusal(
    plan: ParsedPlan, indexes: Sequence[int], validator: AnswerValidator
) -> OrchestrationFailure | None:
    """Return the refusal of the first schema or rules that are not small and plain and cannot be compiled."""
    for index in indexes:
        contract = _contract_of(plan.steps[index])
        if not contract.size.is_plain:
            try:
                await validator.check_contract(contract.output)
            except (ConfigurationFailure, RequestFailure) as failure:
                return plan_refused([_contract_error(index, failure)])
    return None


def plan_policy(context: RunContext, tools: Iterable[str], module_types: Iterable[str]) -> EffectivePlanPolicy:
    """Return the policy of the request's plan, whose steps may call these tools and have these types of modules."""
    policy = None if context.request.plan is None else context.request.plan.policy
    return EffectivePlanPolicy.from_request(policy, context.limits, frozenset(tools), module_types=module_types)


def allowed_tools_of(context: RunContext, environment: Environment) -> list[str]:
    """Return the names of the registered tools that the request, its agent and the rights of its principal allow."""
    settings = context.settings
    return list(filter(settings.allows_tool, environment.tool_registry.names(settings.allowed_tools)))


def plannable_tools_of(context: RunContext, environment: Environment) -> list[str]:
    """Return the tools that a model may plan with: agents are tools only where they are named."""
    are_named = context.settings.allowed_tools is not None
    return [name for name in allowed_tools_of(context, environment) if are_named or agent_of(name) is None]


def module_types_of(context: RunContext, environment: Environment) -> list[str]:
    """Return the step types of modules that the rights of the principal allow."""
    permissions = context.settings.permissions
    return [each for each in environment.tool_registry.step_functions if permissions.allows_tool(STEP_PREFIX + each)]


def _is_large(plan: ParsedPlan, indexes: Sequence[int]) -> bool:
    """Return True if these steps of the plan are checked on a thread."""
    steps = [plan.steps[index].plan_step for index in indexes]
    size = len(orjson.dumps([(step.input, step.depends_on, step.model_extra) for step in steps]))
    return size > _LARGE_BYTES or _contract_bytes(plan) > LARGE_CONTRACT_CHARACTERS


def _contract_bytes(plan: ParsedPlan) -> int:
    """Return the size of all schemas and rules, valid or not."""
    pairs = ((step.own_schema, step.given.get("schema"), step.given.get("rules")) for step in plan.steps)
    return len(orjson.dumps([each for pair in pairs for each in pair if each is not None]))


def _contract_errors(
    plan: ParsedPlan,
    indexes: Sequence[int],
    rules: RuleRegistry,
    is_checked: Callable[[AnswerContract], bool],
) -> OrchestrationFailure | None:
    """Return the refusal of schemas and rules that cannot be compiled, of these steps, which are valid otherwise."""
    if _contract_bytes(plan) > MAX_SCHEMA_BYTES:
        return plan_refused([("steps", f"must have schemas and rules of at most {MAX_SCHEMA_BYTES} bytes together")])
    errors = []
    for index in indexes:
        contract = _contract_of(plan.steps[index], rules)
        try:
            if is_checked(contract):
                contract.compile()
        except (ConfigurationFailure, RequestFailure) as failure:
            errors.append(_contract_error(index, failure))
    return plan_refused(errors) if errors else None


def _contract_of(step: ParsedStep, rules: RuleRegistry = BUILT_IN_RULES) -> AnswerContract:
    return AnswerContract(step.contract or OutputContract(), rules)


def _contract_error(index: int, failure: ConfigurationFailure | RequestFailure) -> tuple[str, str]:
    """Return the place in the plan and the message of a contract that cannot be compiled."""
    if isinstance(failure, ConfigurationFailure):
        return f"steps.{index}.schema", failure.message
    return f"steps.{index}.rules", failure.message.removeprefix("output.")
