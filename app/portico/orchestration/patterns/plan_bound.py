"""Upper bound of mode `plan`.

A step whose input is not known beforehand, or may bring an output format or tools from the step before it, counts as
the worst of its type. A plan that cannot run is refused before its first step, so its bound is zero.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from portico.domain.contract.request import PlanOptions, PlanStep, RedundancyOptions
from portico.domain.plan.graph import non_linear_steps
from portico.domain.plan.parsed_plan import ParsedPlan, ParsedStep, parse_plan
from portico.domain.plan.plan import resolve_input, validate_plan
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.plan.steps import InferInput, InputType, RedundantInput, StepType, ToolInput
from portico.domain.tools import STEP_PREFIX
from portico.orchestration.execution.pattern import BoundInputs, UpperBound, in_parallel, in_sequence
from portico.orchestration.patterns.agent_loop import text_bound
from portico.orchestration.patterns.redundant_loop import replicas_bound
from portico.orchestration.patterns.specialized_loop import answers_bound


def upper_bound(inputs: BoundInputs) -> UpperBound:
    """Return the bound of planning, of the plan's steps, and of judging the result."""
    return _plan_bound(inputs).then(inputs.inferences(inputs.judgements)).then(inputs.transitions())


def _plan_bound(inputs: BoundInputs) -> UpperBound:
    steps, policy = supplied_steps(inputs), bound_policy(inputs)
    if steps is None:
        types = policy.allowed_step_types
        offered = types if _names_subplans(inputs) else types - {StepType.SUBPLAN}
        return inputs.inferences(inputs.inferences_per_ask).then(worst_steps(inputs, policy, policy.max_steps, offered))
    plan = parse_plan(steps)
    if validate_plan(plan, policy):
        return UpperBound()
    nested = policy.max_steps - len(steps) if any(step.type == StepType.SUBPLAN for step in steps) else 0
    return steps_bound(inputs, plan).concurrent_with(worst_steps(inputs, policy, nested))


def supplied_steps(inputs: BoundInputs) -> Sequence[PlanStep] | None:
    """Return the plan of the request, or else the configured one; None if a model makes it."""
    options = inputs.request.plan or PlanOptions()
    return inputs.static_plan if options.steps is None else options.steps


def bound_policy(inputs: BoundInputs) -> EffectivePlanPolicy:
    """Return the policy of the request's plan."""
    options = inputs.request.plan or PlanOptions()
    return EffectivePlanPolicy.from_request(options.policy, inputs.limits, module_types=inputs.registry.step_functions)


def worst_steps(
    inputs: BoundInputs, policy: EffectivePlanPolicy, count: int, types: Collection[str] | None = None
) -> UpperBound:
    """Return the bound of any steps of these types, by default of all that the policy allows."""
    offered = policy.allowed_step_types if types is None else types
    worst = reduce(UpperBound.maximum, (_worst(inputs, each) for each in offered), UpperBound())
    run = [worst] * count
    return in_sequence(run) if policy.require_linear else in_parallel(run)


def steps_bound(inputs: BoundInputs, plan: ParsedPlan) -> UpperBound:
    """Return the bound of the steps of a plan that can run, without those of subplans."""
    bounds = [_step_bound(inputs, step, types.input) for step, types in plan.types.items()]
    return in_parallel(bounds) if non_linear_steps(plan.predecessors, plan.order) else in_sequence(bounds)


def _names_subplans(inputs: BoundInputs) -> bool:
    policy = (inputs.request.plan or PlanOptions()).policy
    return policy is not None and StepType.SUBPLAN in (policy.allowed_step_types or ())


def _step_bound(inputs: BoundInputs, step: ParsedStep, given: InputType) -> UpperBound:
    """Return the bound of one step; its input is known if it is its own or a text."""
    if step.type == StepType.SUBPLAN or (step.input is None and _may_bring_more(given)):
        return _worst(inputs, step.type)
    options, value = step.options, None if step.input is None else resolve_input(step, {}, "")
    contract = step.contract_for(value)
    named = value.tools if isinstance(value, InferInput) and value.tools is not None else options.tools
    requested = inputs.request.tools if named is None else named
    tools = [tool for tool in requested or () if tool in inputs.tools]
    attempts = options.attempts or inputs.limits.attempts
    match step.type:
        case StepType.INFER if contract is not None and contract.schema_ is not None:
            return answers_bound(inputs, tools, attempts)
        case StepType.INFER:
            return text_bound(inputs, tools, attempts if contract else 1)
        case StepType.REDUNDANT:
            n = value.n if isinstance(value, RedundantInput) and value.n is not None else options.n
            return replicas_bound(inputs, n or RedundancyOptions().n, tools)
        case StepType.TOOL if isinstance(value, ToolInput):
            return _call_bound(inputs, {value.name}.intersection(inputs.tools))
        case _:
            return _call_bound(inputs, _functions(inputs, step.type))


def _worst(inputs: BoundInputs, step_type: str) -> UpperBound:
    """Return the bound of the worst step of that type."""
    attempts, tools = inputs.limits.attempts, inputs.tools
    match step_type:
        case StepType.INFER:
            return answers_bound(inputs, tools, attempts).maximum(text_bound(inputs, tools, attempts))
        case StepType.REDUNDANT:
            return replicas_bound(inputs, inputs.limits.replicas, tools)
        case StepType.TOOL:
            return _call_bound(inputs, tools)
        case StepType.SUBPLAN:
            return inputs.inferences(inputs.inferences_per_ask)
        case _:
            return _call_bound(inputs, _functions(inputs, step_type))


def _call_bound(inputs: BoundInputs, tools: Collection[str]) -> UpperBound:
    return UpperBound(tool_calls=inputs.tool_attempts(tools))


def _functions(inputs: BoundInputs, step_type: str) -> Collection[str]:
    """Return the name of the function that runs a type of a module; nothing for a built-in type."""
    return (STEP_PREFIX + step_type,) if step_type in inputs.registry.step_functions else ()


def _may_bring_more(given: InputType) -> bool:
    """Return whether the input may be more than a text: a conversation with a format or tools of its own, or a call."""
    return given == "value" or (isinstance(given, Mapping) and not {"messages", "name"}.isdisjoint(given))
