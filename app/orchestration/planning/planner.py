"""Planner: makes the plan in the state PLAN and decides whether it may run.

The plan of the request comes first, then the configured one, then that of a model. Every plan must satisfy the policy
of the request, within the limits in force, and the input types of its steps. A model learns why its plan was refused
and tries again, so a replay has to refuse it for the same reasons: the tools that it may call are recorded first, all
else is in the header of the execution.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

import orjson

from app.capabilities.answer_contract import LARGE_CONTRACT_CHARACTERS, AnswerContract
from app.capabilities.prompting.definition import PromptId
from app.capabilities.prompting.prompt_call import PromptCall
from app.capabilities.prompting.prompts.planning import (
    STEP_TYPE_DESCRIPTIONS,
    HistoryMessage,
    PlanGenerationInput,
    PlanGenerationOutput,
    PlannableTool,
)
from app.capabilities.tools.arguments import ArgumentValidators
from app.domain.contract.messages import Message
from app.domain.contract.request import OutputContract, PlanStep, SystemRequest
from app.domain.failures import Code, ConfigurationFailure, OrchestrationFailure, RequestFailure
from app.domain.journal.events import PlanCreated
from app.domain.journal.outcomes import Outcome, Plan, PlanningInputs, Refused
from app.domain.journal.step_key import PLAN_KEY
from app.domain.pattern_result import PatternResult
from app.domain.plan.graph import predecessors
from app.domain.plan.plan import output_contract_of, plan_refused, validate_plan
from app.domain.plan.policy import EffectivePlanPolicy
from app.domain.plan.steps import STEP_SPECS, StepType, step_options
from app.domain.tools import ToolDefinition
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.environment import Environment
from app.orchestration.patterns.plan_run import initial_report
from app.ports.validation import AnswerValidator

MAX_SCHEMA_BYTES: Final = 131_072
"""Limit of the schemas and rules of all steps, so that the large ones stay in the schema cache while the plan runs."""
_LARGE_BYTES: Final = 65_536
_REFUSALS = frozenset({Code.ORCHESTRATION_PLAN_REFUSED, Code.ORCHESTRATION_STEP_MISMATCH})


async def make_plan(context: RunContext, static_plan: Sequence[PlanStep] | None = None) -> RunContext:
    """Return the context with its plan: the request's, else the static one, else a model's.

    Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED, ORCHESTRATION_STEP_MISMATCH) with `details.violations`;
    InferenceFailure; ConstraintFailure if the model's answer is no plan.
    """
    authored = None if context.request.plan is None else context.request.plan.steps
    plan = await _obtain(context, static_plan) if authored is None else Plan(tuple(authored), "authored", "")
    known = plan.steps if isinstance(plan, Plan) else (plan.code,)
    check = partial(_checked, context, plan)
    checked, planned_at = await context.record_value(check, *known, key=PLAN_KEY, is_instant=False)
    if isinstance(checked, Refused):
        raise checked.failure()
    assert isinstance(checked, Plan)  # noqa: S101 - the other outcome of the check
    context.set_partial_result(PatternResult(None, plan=initial_report(checked, planned_at)))
    context.emit(_plan_created(checked))
    return context.with_settings(replace(context.settings, plan=checked, planned_at=planned_at))


def refusal_of(
    steps: Sequence[PlanStep], policy: EffectivePlanPolicy, *, plain_only: bool = False
) -> OrchestrationFailure | None:
    """Return why the plan cannot run, with `details.violations`; None if it can. It may take a while.

    With `plain_only` only those schemas and rules are compiled that are small and plain.
    """
    return validate_plan(steps, policy) or _contract_errors(steps, plain_only=plain_only)


async def _obtain(context: RunContext, static_plan: Sequence[PlanStep] | None) -> Plan | Refused:
    """Return the static plan or a model's; the last refusal if no plan of the model may run."""
    find = partial(_planning_inputs, context.request, static_plan, context.settings.messages)
    inputs, _ = await context.record_value(find)
    if isinstance(inputs, Plan):
        return inputs
    assert isinstance(inputs, PlanningInputs)  # noqa: S101 - the other outcome of the search
    policy = _policy(context, [tool["name"] for tool in inputs.tools])
    types = {
        name: STEP_TYPE_DESCRIPTIONS[name]
        for name in STEP_SPECS
        if name in policy.allowed_step_types and (name != StepType.TOOL or inputs.tools)
    }
    if not types:
        return Refused.by(plan_refused([("policy.allowed_step_types", "leave nothing that could be planned")]))
    prompt = _prompt(inputs.history or context.request.messages, inputs, types, policy)
    tools = inputs.tools if context.settings.revision > 1 else ()
    validators = ArgumentValidators(ToolDefinition(**tool) for tool in tools)
    check = partial(_check, policy, validators, plain_only=context.settings.revision > 1)
    try:
        made = await context.ask(PromptCall(PromptId.PLAN_GENERATION_USER, prompt, PlanGenerationOutput, check))
    except OrchestrationFailure as refusal:
        if refusal.code not in _REFUSALS:
            raise
        return Refused.by(refusal)
    return Plan(made.steps, "model", made.rationale)


async def _planning_inputs(
    request: SystemRequest,
    static_plan: Sequence[PlanStep] | None,
    messages: Sequence[Message],
    environment: Environment,
) -> Outcome:
    if static_plan is not None:
        return Plan(tuple(static_plan), "static", "")
    tools = environment.tool_registry.definitions(_allowed_tools(request, environment))
    described = (
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools
    )
    return PlanningInputs(tuple(described), tuple(messages))


def _prompt(
    conversation: Sequence[Message], inputs: PlanningInputs, types: Mapping[str, str], policy: EffectivePlanPolicy
) -> PlanGenerationInput:
    """Return the question for a plan that answers the last user message, or the last message if there is none."""
    asked = next((message for message in reversed(conversation) if message.role == "user"), conversation[-1])
    others = (message for message in conversation if message is not asked and message.text)
    return PlanGenerationInput(
        request=asked.text,
        history=tuple(HistoryMessage(role=other.role, text=other.text) for other in others),
        tools=tuple(PlannableTool.model_validate(tool) for tool in inputs.tools),
        step_types=types,
        max_steps=policy.max_steps,
        require_linear=policy.require_linear,
    )


async def _checked(context: RunContext, plan: Plan | Refused, environment: Environment) -> Outcome:
    if isinstance(plan, Refused):
        return plan
    policy = _policy(context, _allowed_tools(context.request, environment))
    check = partial(refusal_of, plan.steps, policy, plain_only=True)
    refusal = await environment.thread_pool.run(check) if _is_large(plan.steps) else check()
    refusal = refusal or await _worker_refusal(plan.steps, environment.answer_validator)
    return plan if refusal is None else Refused.by(refusal)


async def _worker_refusal(steps: Sequence[PlanStep], validator: AnswerValidator) -> OrchestrationFailure | None:
    """Return the refusal of the first schema or rules that are not small and plain and cannot be compiled."""
    for index, contract in enumerate(map(_contract_of, steps)):
        if not contract.size.is_plain:
            try:
                await validator.check_contract(contract.output)
            except (ConfigurationFailure, RequestFailure) as failure:
                return plan_refused([_contract_error(index, failure)])
    return None


def _check(
    policy: EffectivePlanPolicy, validators: ArgumentValidators, made: PlanGenerationOutput, *, plain_only: bool
) -> None:
    """Raise OrchestrationFailure for a plan that cannot run.

    Large schemas and rules are checked later, outside of the event loop; with `plain_only` also those not plain.
    """
    refusal = validate_plan(made.steps, policy)
    violations = [] if refusal else list(validators.plan_violations(made.steps))
    if violations:
        raise plan_refused(violations)
    if refusal is None and _contract_bytes(made.steps) <= LARGE_CONTRACT_CHARACTERS:
        refusal = _contract_errors(made.steps, plain_only=plain_only)
    if refusal is not None:
        raise refusal


def _policy(context: RunContext, tools: Iterable[str]) -> EffectivePlanPolicy:
    policy = None if context.request.plan is None else context.request.plan.policy
    return EffectivePlanPolicy.from_request(policy, context.limits, frozenset(tools))


def _allowed_tools(request: SystemRequest, environment: Environment) -> list[str]:
    return [name for name in environment.tool_registry.names() if request.tools is None or name in request.tools]


def _is_large(steps: Sequence[PlanStep]) -> bool:
    """Return True if the plan is checked on a thread."""
    size = len(orjson.dumps([(step.input, step.depends_on, step.model_extra) for step in steps]))
    return size > _LARGE_BYTES or _contract_bytes(steps) > LARGE_CONTRACT_CHARACTERS


def _contract_bytes(steps: Sequence[PlanStep]) -> int:
    """Return the size of all schemas and rules, valid or not."""
    inner = [step.input.get("schema") for step in steps if isinstance(step.input, dict)]
    own = [(step_options(step).get("schema"), step_options(step).get("rules")) for step in steps]
    return len(orjson.dumps([each for each in (*inner, *chain.from_iterable(own)) if each is not None]))


def _contract_errors(steps: Sequence[PlanStep], *, plain_only: bool) -> OrchestrationFailure | None:
    """Return the refusal of schemas and rules that cannot be compiled, of steps that are valid otherwise."""
    if _contract_bytes(steps) > MAX_SCHEMA_BYTES:
        return plan_refused([("steps", f"must have schemas and rules of at most {MAX_SCHEMA_BYTES} bytes together")])
    errors = []
    for index, contract in enumerate(map(_contract_of, steps)):
        try:
            if contract.size.is_plain or not plain_only:
                contract.compile()
        except (ConfigurationFailure, RequestFailure) as failure:
            errors.append(_contract_error(index, failure))
    return plan_refused(errors) if errors else None


def _contract_of(step: PlanStep) -> AnswerContract:
    return AnswerContract(output_contract_of(step) or OutputContract())


def _contract_error(index: int, failure: ConfigurationFailure | RequestFailure) -> tuple[str, str]:
    """Return the place in the plan and the message of a contract that cannot be compiled."""
    if isinstance(failure, ConfigurationFailure):
        return f"steps.{index}.schema", failure.message
    return f"steps.{index}.rules", failure.message.removeprefix("output.")


def _plan_created(plan: Plan) -> PlanCreated:
    steps, earlier = plan.steps, predecessors(plan.steps)
    return PlanCreated(
        plan.planner_id,
        tuple(
            {"name": step.name, "type": step.type, "depends_on": [steps[each].name for each in earlier[index]]}
            for index, step in enumerate(steps)
        ),
    )
