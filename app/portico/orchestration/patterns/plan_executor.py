"""PlanExecutor, the pattern of mode `plan` in one pass: runs the steps of a plan and returns the output of the last.

The plan fails with the failure of the first failed step, in the order of the plan; the response still shows the results
of the others.
"""

from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from portico.domain.contract.request import OutputContract
from portico.domain.contract.response import WHOLE_ANSWER, PlanReport
from portico.domain.lifecycle import State
from portico.domain.pattern_result import PatternResult
from portico.domain.value import replace
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.patterns.plan_bound import upper_bound
from portico.orchestration.patterns.plan_run import PlanProgress, run_steps
from portico.orchestration.patterns.steps import STEP_PATTERNS, StepPattern, as_answer
from portico.orchestration.patterns.validated_answer import compiled_contract, validate_answer

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


def built_in_steps(_progress: PlanProgress, _order: Sequence[int]) -> Mapping[str, StepPattern]:
    """Return the code that runs a step of each type, without `subplan`: planning, which makes such plans, adds it."""
    return STEP_PATTERNS


async def plan_executor(
    context: RunContext,
    step_patterns: Callable[[PlanProgress, Sequence[int]], Mapping[str, StepPattern]] = built_in_steps,
) -> PatternResult:
    """Return the output of the last step, validated by the request's contract; meanwhile show the steps so far.

    Raises: Failure of the first step that failed; as `validate_answer`.
    """
    progress = PlanProgress.at_start(context)
    order = progress.plan.order
    failures = await run_steps(context, progress, order, step_patterns(progress, order))
    if failures:
        raise failures[min(failures)]
    context.transition_to(State.VALIDATE, "output_ready")
    return await validated_result(context, progress.result, progress.report)


async def validated_result(
    context: RunContext,
    result: JsonValue,
    report: PlanReport,
    set_partial_result: Callable[[PatternResult], None] | None = None,
) -> PatternResult:
    """Return the output of a plan, validated by the request's contract.

    Raises: as `validate_answer`; ConstraintFailure, ValidationFailure.
    """
    output = context.settings.output
    answer = as_answer(result)
    if not _has_contract(output):
        value = None if isinstance(result, str) else result
        return PatternResult(answer.text, value, plan=report, repeated=WHOLE_ANSWER)

    keep = set_partial_result or context.set_partial_result

    def set_with_plan(result: PatternResult) -> None:
        keep(replace(result, plan=report, repeated=WHOLE_ANSWER))

    contract = await compiled_contract(context)
    content = result if isinstance(result, str) else answer
    validated = await validate_answer(context, contract, content, 1, set_partial_result=set_with_plan)
    result_shown = validated.result_after_last_attempt(strict=context.settings.is_strict)
    return replace(result_shown, plan=report, repeated=WHOLE_ANSWER)


def _has_contract(output: OutputContract) -> bool:
    has_format = output.schema_ is not None or output.grammar is not None
    return has_format or bool(output.rules) or bool(output.semantic)


PATTERN = Pattern(
    plan_executor,
    VERSION,
    upper_bound,
    own_fields=frozenset({"plan"}),
    offers_all_tools=True,
    starts_with_request=False,
)
"""Has no `plan` hook: the composition root adds the planner, which stands above the patterns."""
