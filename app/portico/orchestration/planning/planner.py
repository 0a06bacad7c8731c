"""Planner: makes the plan in the state PLAN and decides whether it may run.

The plan of the request comes first, then the configured one or that of the configured planner, then that of a model.
Every plan must satisfy the policy of the request, within the limits in force, and the input types of its steps.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import JsonValue, TypeAdapter

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.planning import PlanGenerationInput, PlanGenerationOutput
from portico.capabilities.tools.planner_function import PlannerFunction
from portico.domain.contract.request import PlanStep
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.journal.events import PlanCreated
from portico.domain.journal.outcomes import Plan, PlanningInputs, Refused
from portico.domain.journal.step_key import PLAN_KEY, StepKey
from portico.domain.pattern_result import PatternResult
from portico.domain.plan.graph import predecessors
from portico.domain.plan.parsed_plan import ParsedPlan, parse_plan
from portico.domain.plan.plan import plan_refused
from portico.domain.plan.steps import StepType
from portico.domain.value import replace
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.plan_run import initial_report
from portico.orchestration.planning.plan_check import AcceptedSteps, PlanRules, checked_plan
from portico.orchestration.planning.task import Task, planning_inputs

REFUSALS = frozenset({Code.ORCHESTRATION_PLAN_REFUSED, Code.ORCHESTRATION_STEP_MISMATCH})
"""Codes of a plan that may not run."""
_STEPS: Final = TypeAdapter(Sequence[PlanStep])


async def make_plan(
    context: RunContext, static_plan: Sequence[PlanStep] | None = None, planner: PlannerFunction | None = None
) -> RunContext:
    """Return the context with its plan: the request's, else the static one, else the planner's, else a model's.

    Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED, ORCHESTRATION_STEP_MISMATCH) with `details.violations`;
    InferenceFailure; ConstraintFailure if the model's answer is no plan.
    """
    authored = authored_plan(context)
    return await start_plan(context, await _obtain(context, static_plan, planner) if authored is None else authored)


def authored_plan(context: RunContext) -> Plan | None:
    """Return the plan of the request, if it has one."""
    steps = None if context.request.plan is None else context.request.plan.steps
    return None if steps is None else Plan(tuple(steps), "authored", "")


async def start_plan(context: RunContext, plan: Plan | Refused) -> RunContext:
    """Return the context with the plan, checked and recorded. Raises: OrchestrationFailure if it may not run."""
    checked, planned_at = await record_check(context, plan, PLAN_KEY)
    context.set_partial_result(PatternResult(None, plan=initial_report(checked, planned_at)))
    context.emit(plan_created(checked))
    return context.with_settings(replace(context.settings, plan=checked, planned_at=planned_at))


async def record_check(
    context: RunContext,
    plan: Plan | Refused,
    key: StepKey | None = None,
    *,
    parsed: ParsedPlan | None = None,
    accepted: AcceptedSteps | None = None,
) -> tuple[Plan, float]:
    """Return the plan and the time of its check, which is recorded. Raises: OrchestrationFailure if it may not run.

    `parsed` is the same plan, if it was parsed before, of which only the steps are checked that are not `accepted`.
    """
    known = _as_json(plan.steps) if isinstance(plan, Plan) else (plan.code,)
    check = partial(checked_plan, context, plan, parsed=parsed, accepted=accepted)
    checked, planned_at = await context.record_value(check, *known, key=key, is_instant=False)
    if isinstance(checked, Refused):
        raise checked.failure()
    assert isinstance(checked, Plan)  # noqa: S101 - the other outcome of the check
    return checked, planned_at


def _as_json(steps: Sequence[PlanStep]) -> Sequence[JsonValue]:
    """Return the steps as fingerprints have them."""
    found: Sequence[JsonValue] = _STEPS.dump_python(steps, by_alias=True, exclude_none=True)
    return found


async def _obtain(
    context: RunContext, static_plan: Sequence[PlanStep] | None, planner: PlannerFunction | None
) -> Plan | Refused:
    """Return the static plan, the planner's or a model's; the last refusal if no plan of the model may run."""
    inputs = await planning_inputs(context, context.settings.messages, static_plan, planner)
    if isinstance(inputs, Plan | Refused):
        return inputs
    assert isinstance(inputs, PlanningInputs)  # noqa: S101 - the other outcome of the search
    if inputs.plan is not None:
        return inputs.plan
    rules = PlanRules.of(context, inputs, subplans=_names_subplans(context))
    if not rules.step_types:
        return Refused.by(nothing_to_plan())
    prompt = PlanGenerationInput(
        **Task.of(inputs.history or context.request.messages, inputs).planning_fields,
        step_types=rules.step_types,
        max_steps=rules.policy.max_steps,
        require_linear=rules.policy.require_linear,
    )
    try:
        made = await context.ask(
            PromptCall(
                PromptId.PLAN_GENERATION_USER,
                prompt,
                PlanGenerationOutput,
                lambda made: rules.check(parse_plan(made.steps)),
            )
        )
    except OrchestrationFailure as refusal:
        if refusal.code not in REFUSALS:
            raise
        return Refused.by(refusal)
    return Plan(made.steps, "model", made.rationale)


def _names_subplans(context: RunContext) -> bool:
    """Return True if the policy names the type `subplan`; a plan in one pass has such steps only on demand."""
    policy = None if context.request.plan is None else context.request.plan.policy
    return policy is not None and StepType.SUBPLAN in (policy.allowed_step_types or ())


def nothing_to_plan() -> OrchestrationFailure:
    """Return the refusal of a policy that allows no step."""
    return plan_refused([("policy.allowed_step_types", "leave nothing that could be planned")])


def plan_created(plan: Plan) -> PlanCreated:
    """Return the event of a plan."""
    steps, earlier = plan.steps, predecessors(plan.steps)
    return PlanCreated(
        plan.planner_id,
        tuple(
            {"name": step.name, "type": step.type, "depends_on": [steps[each].name for each in earlier[index]]}
            for index, step in enumerate(steps)
        ),
    )
