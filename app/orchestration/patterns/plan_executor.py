"""PlanExecutor, the pattern of mode `plan`: runs the steps of a plan, concurrently if they do not depend on each other.

If a step fails, only the steps that depend on it are skipped. The plan then fails with the failure of the first failed
step, in the order of the plan; the response still shows the results of the others.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pydantic import JsonValue

from app.domain.contract.request import OutputContract, PlanStep
from app.domain.contract.response import PlanReport, PlanTrace, StepReport, StepStatus, SystemError
from app.domain.failures import Cancellation, Failure
from app.domain.journal.outcomes import Plan
from app.domain.lifecycle import State
from app.domain.pattern_result import PatternResult
from app.domain.plan.graph import predecessors, topological_order
from app.domain.plan.plan import parse_options, resolve_input
from app.domain.plan.policy import EffectivePlanPolicy
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.pattern import Pattern
from app.orchestration.patterns.plan_bound import admit, upper_bound
from app.orchestration.patterns.steps import STEP_PATTERNS, as_answer
from app.orchestration.patterns.validated_answer import compiled_contract, validate_answer

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def plan_executor(context: RunContext) -> PatternResult:
    """Return the output of the last step, validated by the request's contract; meanwhile show the steps so far.

    Raises: Failure of the first step that failed; as `validate_answer`.
    """
    progress = _PlanProgress(context)
    order = topological_order(progress.steps)
    branch_of = {index: branch for branch, index in enumerate(order)}
    after = {branch_of[index]: [branch_of[each] for each in progress.predecessors[index]] for index in order}
    ends = await context.gather([partial(_run_step, progress=progress, index=index) for index in order], after=after)
    failures = {index: end for index, end in zip(order, ends, strict=True) if isinstance(end, Failure)}
    if failures:
        raise failures[min(failures)]
    context.transition_to(State.VALIDATE, "output_ready")
    return await _validated_result(context, progress)


def initial_report(plan: Plan, planned_at: float) -> PlanReport:
    """Return the report of a plan before its first step; `planned_at` is in Unix seconds."""
    steps = [StepReport(name=step.name, type=step.type, status=StepStatus.PENDING) for step in plan.steps]
    trace = PlanTrace(
        planner_id=plan.planner_id,
        rationale=plan.rationale,
        created_at=datetime.fromtimestamp(planned_at, UTC),
        step_count=len(steps),
    )
    return PlanReport(steps=steps, trace=trace)


class _PlanProgress:
    """The reports of the steps. A branch writes the report of its own step and reads those that it depends on."""

    def __init__(self, context: RunContext) -> None:
        plan = context.settings.plan
        assert plan is not None  # noqa: S101 - a plan is made before it runs
        self.steps = plan.steps
        self.predecessors = predecessors(self.steps)
        self.report = initial_report(plan, context.settings.planned_at)
        self._context = context

    @property
    def result(self) -> JsonValue:
        """The output of the last step, in the order of the plan."""
        last: JsonValue = self.report.steps[-1].output
        return last

    def inputs_of(self, index: int) -> Mapping[str, JsonValue] | None:
        """Return the outputs of the steps that one depends on, by name; None unless all of them completed."""
        earlier = [self.report.steps[each] for each in self.predecessors[index]]
        if any(report.status is not StepStatus.COMPLETED for report in earlier):
            return None
        return {report.name: report.output for report in earlier}

    def end(
        self, index: int, status: StepStatus, *, output: JsonValue = None, error: SystemError | None = None
    ) -> None:
        """Write how the step ended into the partial result."""
        steps = list(self.report.steps)
        steps[index] = steps[index].model_copy(update={"status": status, "output": output, "error": error})
        self.report = self.report.model_copy(update={"steps": steps})
        self._context.set_partial_result(PatternResult(None, plan=self.report))


async def _run_step(context: RunContext, *, progress: _PlanProgress, index: int) -> None:
    """Run one step from its start to its end. Raises: Failure that it ended with."""
    step, outputs = progress.steps[index], progress.inputs_of(index)
    if outputs is None:
        progress.end(index, StepStatus.SKIPPED)
        return
    correlation = replace(context.settings.correlation, step_name=step.name)
    context = context.with_settings(replace(context.settings, correlation=correlation))
    context.start_step(step.type)
    try:
        output = await _output(context, step, outputs)
    except Failure as failure:
        status = StepStatus.CANCELLED if isinstance(failure, Cancellation) else StepStatus.FAILED
        context.end_step(status, failure.code)
        progress.end(index, status, error=SystemError.of(failure))
        raise
    context.end_step(StepStatus.COMPLETED)
    progress.end(index, StepStatus.COMPLETED, output=output)


async def _output(context: RunContext, step: PlanStep, outputs: Mapping[str, JsonValue]) -> JsonValue:
    step_input = resolve_input(step, outputs, context.settings.last_user_text)

    async def run(context: RunContext) -> JsonValue:
        return await STEP_PATTERNS[step.type](context, step, step_input)

    seconds = _timeout(context, step)
    return await (run(context) if seconds is None else context.with_timeout(seconds, run))


def _timeout(context: RunContext, step: PlanStep) -> float | None:
    """Return the running time that the step may take: the smaller of its own and the policy's."""
    plan = context.request.plan
    policy = EffectivePlanPolicy.from_request(None if plan is None else plan.policy, context.limits)
    return min(filter(None, (parse_options(step).timeout, policy.timeout_per_step)), default=None)


async def _validated_result(context: RunContext, progress: _PlanProgress) -> PatternResult:
    """Return the validated result. Raises: as `validate_answer`; ConstraintFailure, ValidationFailure."""
    result, report, output = progress.result, progress.report, context.settings.output
    answer = as_answer(result)
    if not _has_contract(output):
        return PatternResult(answer.text, None if isinstance(result, str) else result, plan=report)

    def set_partial_result(result: PatternResult) -> None:
        context.set_partial_result(replace(result, plan=report))

    contract = await compiled_contract(context)
    content = result if isinstance(result, str) else answer
    validated = await validate_answer(context, contract, content, 1, set_partial_result=set_partial_result)
    return replace(validated.result_after_last_attempt(strict=context.settings.is_strict), plan=report)


def _has_contract(output: OutputContract) -> bool:
    has_format = output.schema_ is not None or output.grammar is not None
    return has_format or bool(output.rules) or bool(output.semantic)


PATTERN = Pattern(
    plan_executor,
    VERSION,
    upper_bound,
    admit=admit,
    own_fields=frozenset({"plan"}),
    offers_all_tools=True,
    starts_with_request=False,
)
"""Has no `plan` hook: the composition root adds the planner, which stands above the patterns."""
