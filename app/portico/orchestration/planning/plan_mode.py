"""Mode `plan`: one pass over a plan, or several with reasoning between them."""

from collections.abc import Mapping, Sequence

from portico.capabilities.tools.planner_function import PlannerFunction
from portico.domain.contract.request import PlanOptions, PlanStep
from portico.domain.pattern_result import PatternResult
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.value import replace
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns import plan_executor
from portico.orchestration.patterns.plan_run import PlanProgress
from portico.orchestration.patterns.steps import StepPattern
from portico.orchestration.planning import planner as single_pass
from portico.orchestration.planning.passes.bound import upper_bound
from portico.orchestration.planning.passes.multipass import reason_in_passes, start_passes
from portico.orchestration.planning.subplan import Subplans


async def make_plan(
    context: RunContext, static_plan: Sequence[PlanStep] | None = None, planner: PlannerFunction | None = None
) -> RunContext:
    """Return the context with its plan. Raises: as `make_plan` of one pass."""
    make = start_passes if _has_passes(context) else single_pass.make_plan
    return await make(context, static_plan, planner)


async def run_plan(context: RunContext) -> PatternResult:
    """Return the result of the plan. Raises: as `plan_executor` or `reason_in_passes`."""
    if _has_passes(context):
        return await reason_in_passes(context)
    options = context.request.plan or PlanOptions()
    policy = EffectivePlanPolicy.from_request(options.policy, context.limits)

    def step_patterns(progress: PlanProgress, order: Sequence[int]) -> Mapping[str, StepPattern]:
        return Subplans(progress, order, policy.max_steps - len(progress.plan.steps)).step_patterns

    return await plan_executor.plan_executor(context, step_patterns)


def _has_passes(context: RunContext) -> bool:
    return (context.request.plan or PlanOptions()).passes > 1


PATTERN = replace(plan_executor.PATTERN, run=run_plan, plan=make_plan, upper_bound=upper_bound)
