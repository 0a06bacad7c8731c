"""Changes of a plan: a model says what to refine, and the plan stays as it is if that cannot be used."""

from collections.abc import Sequence

from pydantic import JsonValue

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts import recursion
from portico.capabilities.prompting.prompts.assessment import SemanticIssue
from portico.domain.failures import ConstraintFailure, OrchestrationFailure
from portico.domain.plan.parsed_plan import ParsedPlan, parse_plan
from portico.domain.plan.refinement import PlanChange, refine
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.plan_run import PlanProgress
from portico.orchestration.planning.passes.evaluation import step_states
from portico.orchestration.planning.plan_check import PlanRules
from portico.orchestration.planning.planner import REFUSALS
from portico.orchestration.planning.task import Task


async def refined_plan(
    context: RunContext,
    task: Task,
    rules: PlanRules,
    progress: PlanProgress,
    *,
    assessment: JsonValue = None,
    issues: Sequence[SemanticIssue] = (),
) -> ParsedPlan | None:
    """Return the changed plan; None if nothing is to change, or if the answer cannot be used.

    Raises: InferenceFailure; OrchestrationFailure if a limit is reached.
    """
    statuses = {report.name: report.status for report in progress.report.steps}

    steps, changed = progress.plan.plan_steps, list[ParsedPlan]()

    def check(output: recursion.RecursiveRefinementOutput) -> None:
        if output.refinements:
            plan = parse_plan(refine(steps, statuses, list(map(_as_change, output.refinements))), progress.plan)
            rules.check(plan)
            changed.append(plan)

    prompt = recursion.RecursiveRefinementInput(
        **task.planning_fields,
        step_types=rules.step_types,
        max_steps=max(0, rules.policy.max_steps - len(steps)),
        require_linear=rules.policy.require_linear,
        steps=step_states(progress),
        assessment=assessment,
        issues=tuple(issues),
    )
    question = PromptCall(PromptId.RECURSIVE_REFINEMENT_USER, prompt, recursion.RecursiveRefinementOutput, check)
    try:
        output = await context.ask(question)
    except ConstraintFailure:
        return None
    except OrchestrationFailure as refusal:
        if refusal.code not in REFUSALS:
            raise
        return None
    return changed[-1] if output.refinements else None


def _as_change(change: recursion.Refinement) -> PlanChange:
    return PlanChange(change.action, change.target_step, change.new_step)
