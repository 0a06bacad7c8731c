"""PlanExecutor, the pattern of mode `plan`: runs the steps of a plan, at once where they do not wait for each other.

A step that fails keeps nobody from running but those that come after it, which are skipped. The plan then ends with the
failure of the first step, in its own order, that failed; what the others came to stands in the response all the same.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pydantic import JsonValue

from app.domain.contract.request import OutputContract, PlanStep
from app.domain.contract.response import PlanReport, PlanTrace, StepReport, StepStatus, SystemError
from app.domain.failures import Cancellation, Failure
from app.domain.lifecycle import State
from app.domain.pattern_result import PatternResult
from app.domain.plan.plan import EffectivePlanPolicy, parse_options, predecessors, resolve_input, topological_order
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.pattern import Pattern
from app.orchestration.patterns.plan_bound import admit, upper_bound
from app.orchestration.patterns.steps import STEP_PATTERNS, as_answer
from app.orchestration.patterns.validated_answer import compiled_contract, validate_answer

VERSION = 1
"""Raised by hand with every change of effects or their order; golden journals guard it."""


async def plan_executor(run: RunContext) -> PatternResult:
    """The last step's output, held to the request's contract. The draft says what the steps came to so far.

    Raises: Failure of the first step that failed; as `judged`.
    """
    board = _Board(run)
    order = topological_order(board.steps)
    place = {index: position for position, index in enumerate(order)}
    after = {place[index]: [place[each] for each in board.before[index]] for index in order}
    ends = await run.gather([partial(_branch, board=board, index=index) for index in order], after=after)
    failed = {index: end for index, end in zip(order, ends, strict=True) if isinstance(end, Failure)}
    if failed:
        raise failed[min(failed)]
    run.transition_to(State.VALIDATE, "output_ready")
    return await _held(run, board)


def initial_report(run: RunContext) -> PlanReport:
    """The plan before any of its steps."""
    assert run.plan is not None  # noqa: S101 - what plans comes before what is planned
    steps = [StepReport(name=step.name, type=step.type, status=StepStatus.PENDING) for step in run.plan.steps]
    trace = PlanTrace(
        planner_id=run.plan.planner_id,
        rationale=run.plan.rationale,
        created_at=datetime.fromtimestamp(run.planned_at, UTC),
        step_count=len(steps),
    )
    return PlanReport(steps=steps, trace=trace)


class _Board:
    """What has come of the steps. A branch writes that of its own step, and reads that of those it comes after."""

    def __init__(self, run: RunContext) -> None:
        assert run.plan is not None  # noqa: S101 - what plans comes before what is planned
        self.steps = run.plan.steps
        self.before = predecessors(self.steps)
        self.report = initial_report(run)
        self._run = run

    @property
    def result(self) -> JsonValue:
        """What the last step, in the order of the plan, came to."""
        last: JsonValue = self.report.steps[-1].output
        return last

    def outputs_before(self, index: int) -> Mapping[str, JsonValue] | None:
        """The outputs of the steps that one comes after, by name; None where one of them did not complete."""
        earlier = [self.report.steps[each] for each in self.before[index]]
        if any(report.status is not StepStatus.COMPLETED for report in earlier):
            return None
        return {report.name: report.output for report in earlier}

    def end(
        self, index: int, status: StepStatus, *, output: JsonValue = None, error: SystemError | None = None
    ) -> None:
        """Writes how the step ended, which is shown from now on."""
        steps = list(self.report.steps)
        steps[index] = steps[index].model_copy(update={"status": status, "output": output, "error": error})
        self.report = self.report.model_copy(update={"steps": steps})
        self._run.set_partial_result(PatternResult(None, plan=self.report))


async def _branch(run: RunContext, *, board: _Board, index: int) -> None:
    """One step from its start to its end. Raises: Failure that it ended with."""
    step, outputs = board.steps[index], board.outputs_before(index)
    if outputs is None:
        board.end(index, StepStatus.SKIPPED)
        return
    run.correlation = replace(run.correlation, step_name=step.name)
    run.start_step(step.type)
    try:
        output = await _output(run, step, outputs)
    except Failure as failure:
        status = StepStatus.CANCELLED if isinstance(failure, Cancellation) else StepStatus.FAILED
        run.end_step(status, failure.code)
        board.end(index, status, error=SystemError.of(failure))
        raise
    run.end_step(StepStatus.COMPLETED)
    board.end(index, StepStatus.COMPLETED, output=output)


async def _output(run: RunContext, step: PlanStep, outputs: Mapping[str, JsonValue]) -> JsonValue:
    asked = next((message.text for message in reversed(run.messages) if message.role == "user"), "")
    work = resolve_input(step, outputs, asked)

    async def pattern(door: RunContext) -> JsonValue:
        return await STEP_PATTERNS[step.type](door, step, work)

    seconds = _seconds(run, step)
    return await (pattern(run) if seconds is None else run.with_timeout(seconds, pattern))


def _seconds(run: RunContext, step: PlanStep) -> float | None:
    """The running time that the step may take: the smaller of its own and the policy's."""
    policy = EffectivePlanPolicy.from_request(None if run.request.plan is None else run.request.plan.policy, run.limits)
    return min(filter(None, (parse_options(step).timeout, policy.timeout_per_step)), default=None)


async def _held(run: RunContext, board: _Board) -> PatternResult:
    """The result, held to what the request asks of it. Raises: as `judged`; ConstraintFailure, ValidationFailure."""
    result, report = board.result, board.report
    answer = as_answer(result)
    if not _asks_anything(run.output):
        return PatternResult(answer.text, None if isinstance(result, str) else result, plan=report)

    def draft(produced: PatternResult) -> None:
        run.set_partial_result(replace(produced, plan=report))

    judged_as = result if isinstance(result, str) else answer
    found = await validate_answer(run, await compiled_contract(run), judged_as, 1, draft=draft)
    if found.failure is not None:
        raise found.failure
    return replace(found.pattern_result, plan=report)


def _asks_anything(output: OutputContract) -> bool:
    form = output.schema_ is not None or output.grammar is not None
    return form or bool(output.rules) or bool(output.semantic)


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
