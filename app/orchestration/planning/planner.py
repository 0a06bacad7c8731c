"""Planner: makes the plan in the state PLAN and decides whether it may run.

The plan of the request comes first, then the configured one, then that of a model. Every plan must satisfy the policy
of the request, within the limits in force, and the input types of its steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

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
from app.domain.contract.request import PlanStep, SystemRequest
from app.domain.failures import Code, OrchestrationFailure
from app.domain.journal.events import PlanCreated
from app.domain.journal.outcomes import Outcome, Plan, PlanningInputs, Refused
from app.domain.journal.step_key import PLAN_KEY
from app.domain.pattern_result import PatternResult
from app.domain.plan.graph import predecessors
from app.domain.plan.plan import plan_refused
from app.domain.plan.policy import EffectivePlanPolicy
from app.domain.plan.steps import STEP_SPECS, StepType
from app.domain.tools import ToolDefinition
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.environment import Environment
from app.orchestration.patterns.plan_run import initial_report
from app.orchestration.planning.plan_check import allowed_tools_of, check_made_plan, checked_plan, plan_policy

_REFUSALS = frozenset({Code.ORCHESTRATION_PLAN_REFUSED, Code.ORCHESTRATION_STEP_MISMATCH})


async def make_plan(context: RunContext, static_plan: Sequence[PlanStep] | None = None) -> RunContext:
    """Return the context with its plan: the request's, else the static one, else a model's.

    Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED, ORCHESTRATION_STEP_MISMATCH) with `details.violations`;
    InferenceFailure; ConstraintFailure if the model's answer is no plan.
    """
    authored = None if context.request.plan is None else context.request.plan.steps
    plan = await _obtain(context, static_plan) if authored is None else Plan(tuple(authored), "authored", "")
    known = plan.steps if isinstance(plan, Plan) else (plan.code,)
    check = partial(checked_plan, context, plan)
    checked, planned_at = await context.record_value(check, *known, key=PLAN_KEY, is_instant=False)
    if isinstance(checked, Refused):
        raise checked.failure()
    assert isinstance(checked, Plan)  # noqa: S101 - the other outcome of the check
    context.set_partial_result(PatternResult(None, plan=initial_report(checked, planned_at)))
    context.emit(_plan_created(checked))
    return context.with_settings(replace(context.settings, plan=checked, planned_at=planned_at))


async def _obtain(context: RunContext, static_plan: Sequence[PlanStep] | None) -> Plan | Refused:
    """Return the static plan or a model's; the last refusal if no plan of the model may run."""
    find = partial(_planning_inputs, context.request, static_plan, context.settings.messages)
    inputs, _ = await context.record_value(find)
    if isinstance(inputs, Plan):
        return inputs
    assert isinstance(inputs, PlanningInputs)  # noqa: S101 - the other outcome of the search
    policy = plan_policy(context, [tool["name"] for tool in inputs.tools])
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

    def check(made: PlanGenerationOutput) -> None:
        check_made_plan(made.steps, policy, validators, plain_only=context.settings.revision > 1)

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
    tools = environment.tool_registry.definitions(allowed_tools_of(request, environment))
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


def _plan_created(plan: Plan) -> PlanCreated:
    steps, earlier = plan.steps, predecessors(plan.steps)
    return PlanCreated(
        plan.planner_id,
        tuple(
            {"name": step.name, "type": step.type, "depends_on": [steps[each].name for each in earlier[index]]}
            for index, step in enumerate(steps)
        ),
    )
