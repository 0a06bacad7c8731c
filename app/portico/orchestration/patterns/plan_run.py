"""Run of a plan: each step starts as soon as those that it depends on have ended.

If a step fails, only the steps that depend on it are skipped. A plan in a plan has names of its own: its step `inner`
is `outer/inner` in events and in the results of tools.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from pydantic import JsonValue

from portico.domain.contract.response import PlanReport, PlanTrace, StepReport, StepStatus, SystemError
from portico.domain.failures import Cancellation, Failure
from portico.domain.journal.outcomes import MODEL_PLANNERS, Plan
from portico.domain.pattern_result import PatternResult
from portico.domain.plan.parsed_plan import ParsedPlan, ParsedStep, parse_plan
from portico.domain.plan.plan import resolve_input
from portico.domain.plan.refinement import HAS_RUN, runnable_steps
from portico.domain.plan.steps import RetrieveInput, StepInput, StepType
from portico.orchestration.execution.branch_span import in_span
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.steps import StepPattern, as_answer, run_module_step


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


class PlanProgress:
    """The reports of the steps. A branch writes the report of its own step and reads those that it depends on."""

    def __init__(
        self, context: RunContext, plan: ParsedPlan, report: PlanReport, texts: dict[str, str] | None = None
    ) -> None:
        self.plan = plan
        self.report = report
        self._context = context
        self._texts = {} if texts is None else texts

    @classmethod
    def at_start(cls, context: RunContext) -> "PlanProgress":
        """Return the progress of the plan in the settings, before its first step."""
        plan = context.settings.plan
        assert plan is not None  # noqa: S101 - a plan is made before it runs
        return cls(context, parse_plan(plan.steps), initial_report(plan, context.settings.planned_at))

    @property
    def is_made_by_model(self) -> bool:
        """True unless a person or a module wrote the plan, in the request or in the configuration."""
        return self.report.trace.planner_id in MODEL_PLANNERS

    @property
    def result(self) -> JsonValue:
        """The output of the last step, in the order of the plan."""
        last: JsonValue = self.report.steps[-1].output
        return last

    @property
    def output_texts(self) -> Mapping[str, str]:
        """The text of each output, by the name of its step."""
        for report in self.report.steps:
            if report.status is StepStatus.COMPLETED and report.name not in self._texts:
                self._texts[report.name] = as_answer(report.output).text
        return self._texts

    def changed(self, plan: ParsedPlan) -> "PlanProgress":
        """Return the progress of a changed plan: what has run stays as it is, and what cannot run is skipped."""
        ran = {report.name: report for report in self.report.steps if report.status in HAS_RUN}
        runnable = runnable_steps(plan, {name: report.status for name, report in ran.items()})
        reports = [
            ran.get(step.name)
            or StepReport(
                name=step.name,
                type=step.type,
                status=StepStatus.PENDING if index in runnable else StepStatus.SKIPPED,
            )
            for index, step in enumerate(plan.steps)
        ]
        trace = self.report.trace.model_copy(update={"step_count": len(reports)})
        progress = PlanProgress(self._context, plan, PlanReport(steps=reports, trace=trace), self._texts)
        self._context.set_partial_result(PatternResult(None, plan=progress.report))
        return progress

    def inputs_of(self, index: int) -> Mapping[str, JsonValue] | None:
        """Return the outputs of the steps that one depends on, by name; None unless all of them completed."""
        earlier = [self.report.steps[each] for each in self.plan.predecessors[index]]
        if any(report.status is not StepStatus.COMPLETED for report in earlier):
            return None
        return {report.name: report.output for report in earlier}

    def query_of(self, index: int, request: str) -> str | None:
        """Return the query of the search whose chunks a step is given; None if its only predecessor is none."""
        earlier = self.plan.predecessors[index]
        if len(earlier) != 1 or self.plan.steps[earlier[0]].type != StepType.RETRIEVE:
            return None
        found = resolve_input(self.plan.steps[earlier[0]], self.inputs_of(earlier[0]) or {}, request)
        return found.query if isinstance(found, RetrieveInput) else str(found)

    def end(
        self, index: int, status: StepStatus, *, output: JsonValue = None, error: SystemError | None = None
    ) -> None:
        """Write how the step ended into the partial result."""
        steps = list(self.report.steps)
        steps[index] = steps[index].model_copy(update={"status": status, "output": output, "error": error})
        self.report = self.report.model_copy(update={"steps": steps})
        self._context.set_partial_result(PatternResult(None, plan=self.report))


async def run_steps(
    context: RunContext, progress: PlanProgress, order: Sequence[int], step_patterns: Mapping[str, StepPattern]
) -> Mapping[int, Failure]:
    """Run these steps of the plan, given in topological order, and return the failures by step.

    A type without a pattern is one of a module.
    """
    branch_of = {index: branch for branch, index in enumerate(order)}
    after = {
        branch_of[index]: [branch_of[each] for each in progress.plan.predecessors[index] if each in branch_of]
        for index in order
    }
    run = partial(_run_step, progress=progress, step_patterns=step_patterns)
    ends = await context.gather([partial(run, index=index) for index in order], after=after)
    return {index: end for index, end in zip(order, ends, strict=True) if isinstance(end, Failure)}


async def _run_step(
    context: RunContext, *, progress: PlanProgress, step_patterns: Mapping[str, StepPattern], index: int
) -> None:
    """Run one step from its start to its end. Raises: Failure that it ended with."""
    step, outputs = progress.plan.steps[index], progress.inputs_of(index)
    if outputs is None:
        progress.end(index, StepStatus.SKIPPED)
        return
    correlation = context.settings.correlation
    name = step.name if correlation.step_name is None else f"{correlation.step_name}/{step.name}"
    context = in_span(context, step_name=name)
    context.start_step(step.type)
    try:
        request = context.settings.last_user_text
        step_input = resolve_input(step, outputs, request, progress.query_of(index, request))
        output = await _output(context, step, step_input, step_patterns.get(step.type, run_module_step))
    except Failure as failure:
        status = StepStatus.CANCELLED if isinstance(failure, Cancellation) else StepStatus.FAILED
        context.end_step(status, failure.code)
        progress.end(index, status, error=SystemError.of(failure))
        raise
    context.end_step(StepStatus.COMPLETED)
    progress.end(index, StepStatus.COMPLETED, output=output)


async def _output(context: RunContext, step: ParsedStep, step_input: StepInput, pattern: StepPattern) -> JsonValue:
    async def run(context: RunContext) -> JsonValue:
        return await pattern(context, step, step_input)

    seconds = _timeout(context, step)
    return await (run(context) if seconds is None else context.with_timeout(seconds, run))


def _timeout(context: RunContext, step: ParsedStep) -> float | None:
    """Return the running time that the step may take: the smaller of its own and the policy's."""
    plan = context.request.plan
    most = None if plan is None or plan.policy is None else plan.policy.timeout_per_step
    return min(filter(None, (step.options.timeout, most)), default=None)
