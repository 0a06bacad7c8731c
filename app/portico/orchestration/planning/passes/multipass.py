"""Multi-pass reasoning, the pattern of mode `plan` with more than one pass [003].

Theory of operation

1. Phase A, in PLAN: a profile of the task, and from it the number of passes that the plan may have, its TTL.
2. Phase B, in PLAN: the plan, a semantic check of it, and one refinement if the check found something grave. A plan
   that was supplied is checked and not refined.
3. Phase C: a pass runs every step that can run, in EXECUTE. Then, in VALIDATE, the plan is evaluated. A pass that did
   not converge costs one of the TTL; while some is left the plan is refined. Nothing left to run ends the phase.
4. Phase D, after a pass that another one follows: the profile is updated. The TTL is not allocated again.
5. Phase E: the final answer, in the state that the others ended in, whether they ended well or with a failure.

A step that failed is a result like any other here: the evaluation sees it. A profile and a semantic check that no model
gives are done without, by the default profile and no check. The TTL counts passes only: tokens, cost and time have
limits of their own, and reaching one of them is a failure.
"""

from collections.abc import Sequence

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import Output, PromptCall
from portico.capabilities.prompting.prompts.assessment import SemanticCheckInput, SemanticCheckOutput, Severity
from portico.capabilities.prompting.prompts.planning import PlanGenerationOutput
from portico.capabilities.prompting.prompts.recursion import RecursivePlanGenerationInput
from portico.capabilities.prompting.prompts.task_profile import (
    DEFAULT_PROFILE,
    TaskProfileInput,
    TaskProfileOutput,
    TaskProfileUpdateInput,
)
from portico.capabilities.tools.planner_function import PlannerFunction
from portico.domain.contract.request import PlanOptions, PlanStep
from portico.domain.failures import ConstraintFailure, Failure, InferenceFailure, OrchestrationFailure
from portico.domain.journal.outcomes import Plan, PlanningInputs, Refused
from portico.domain.lifecycle import State
from portico.domain.pattern_result import PatternResult
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.plan.refinement import runnable_steps
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import ReasoningStart
from portico.orchestration.execution.branch_span import in_span
from portico.orchestration.execution.branches import has_diverged
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.plan_executor import validated_result
from portico.orchestration.patterns.plan_run import PlanProgress, initial_report, run_steps
from portico.orchestration.planning.passes.allocation import allocated_passes
from portico.orchestration.planning.passes.change import refined_plan
from portico.orchestration.planning.passes.evaluation import evaluate, last_output, step_states
from portico.orchestration.planning.passes.record import PassRecord
from portico.orchestration.planning.plan_check import PlanRules
from portico.orchestration.planning.planner import (
    REFUSALS,
    authored_plan,
    nothing_to_plan,
    plan_created,
    record_check,
    start_plan,
)
from portico.orchestration.planning.subplan import Subplans
from portico.orchestration.planning.task import Task, planning_inputs

GRAVE = frozenset({Severity.MEDIUM, Severity.HIGH, Severity.CRITICAL})
"""Severities for which a plan is refined before its first pass."""


async def start_passes(
    context: RunContext, static_plan: Sequence[PlanStep] | None = None, planner: PlannerFunction | None = None
) -> RunContext:
    """Return the context with a plan and its TTL: phases A and B.

    Raises: as `make_plan`; the final answer then stands in the partial result.
    """
    record = PassRecord(context)
    try:
        return await _start(context, record, static_plan, planner)
    except Failure as failure:
        await _answer_failure(context, record, failure, PatternResult(None))
        raise


async def reason_in_passes(context: RunContext) -> PatternResult:
    """Return the final answer and the output of the last completed step: phases C to E.

    Raises: InferenceFailure, OrchestrationFailure if the plan cannot be evaluated or a limit is reached; as
    `validated_result`. The final answer then stands in the partial result.
    """
    record, partial = PassRecord(context), list[PatternResult]()
    progress = record.progress = PlanProgress.at_start(context)
    try:
        progress = await _run_passes(context, record, progress)
        value = last_output(progress)
        result = await validated_result(context, value, progress.report, partial.append)
    except Failure as failure:
        shown = partial[-1] if partial else PatternResult(None)
        await _answer_failure(context, record, failure, replace(shown, plan=record.progress.report))
        raise
    answer = await record.final_answer(context)
    value = value if result.structured_output is None else result.structured_output
    return answer.added_to(replace(result, structured_output=value))


async def _answer_failure(context: RunContext, record: PassRecord, failure: Failure, shown: PatternResult) -> None:
    """Put the final answer into the partial result, unless it is a replay that failed."""
    if not has_diverged(failure):
        answer = await record.final_answer(context, failure)
        context.set_partial_result(answer.added_to(shown))


async def _start(
    context: RunContext,
    record: PassRecord,
    static_plan: Sequence[PlanStep] | None,
    planner: PlannerFunction | None,
) -> RunContext:
    authored = authored_plan(context)
    inputs = await planning_inputs(context, context.settings.messages, planner=None if authored else planner)
    if isinstance(inputs, Refused):
        raise inputs.failure()
    assert isinstance(inputs, PlanningInputs)  # noqa: S101 - no static plan was given
    task = Task.of(inputs.history or context.request.messages, inputs)
    static = None if static_plan is None else Plan(tuple(static_plan), "static", "")
    supplied = authored or static or inputs.plan
    if supplied is not None:
        context = await start_plan(context, supplied)
        record.progress = PlanProgress.at_start(context)
    record.profile = await _profile(context, task)
    passes = (context.request.plan or PlanOptions()).passes
    record.ttl_remaining = allocated_passes(record.profile, passes)
    if supplied is None:
        context = await _planned(context, task, record, inputs)
    else:
        record.semantic_check = await _semantic_check(context, task, PlanProgress.at_start(context))
    start = ReasoningStart(
        record.ttl_remaining, record.profile, inputs, record.semantic_check, record.total_refinements
    )
    return context.with_settings(replace(context.settings, reasoning=start))


async def _profile(context: RunContext, task: Task) -> TaskProfileOutput:
    """Return the profile that a model gives, or the default one."""
    prompt = TaskProfileInput(request=task.request, history=task.history, tools=task.tool_summaries)
    profile = await _ask_if_possible(
        context, PromptCall(PromptId.TASKPROFILE_INFERENCE_USER, prompt, TaskProfileOutput)
    )
    return profile or DEFAULT_PROFILE


async def _planned(context: RunContext, task: Task, record: PassRecord, inputs: PlanningInputs) -> RunContext:
    """Return the context with the plan of a model, refined once if its semantic check is grave."""
    assert record.profile is not None  # noqa: S101 - phase A comes first
    rules = PlanRules.of(context, inputs)
    if not rules.step_types:
        raise nothing_to_plan()
    prompt = RecursivePlanGenerationInput(
        **task.planning_fields,
        step_types=rules.step_types,
        max_steps=rules.policy.max_steps,
        require_linear=rules.policy.require_linear,
        profile=record.profile,
        passes=record.ttl_remaining,
    )
    question = PromptCall(
        PromptId.RECURSIVE_PLAN_GENERATION_USER,
        prompt,
        PlanGenerationOutput,
        lambda made: rules.check(parse_plan(made.steps)),
    )
    made = await context.ask(question)
    plan = Plan(made.steps, "model", made.rationale)
    progress = record.progress = PlanProgress(context, parse_plan(plan.steps), initial_report(plan, 0.0))
    check = record.semantic_check = await _semantic_check(context, task, progress)
    if check is not None and check.worst_severity in GRAVE:
        refined = await refined_plan(context, task, rules, progress, issues=check.issues)
        if refined is not None:
            record.total_refinements += 1
            plan = replace(plan, steps=refined.plan_steps)
    return await start_plan(context, plan)


async def _semantic_check(context: RunContext, task: Task, progress: PlanProgress) -> SemanticCheckOutput | None:
    prompt = SemanticCheckInput(request=task.request, tools=task.tool_summaries, steps=step_states(progress))
    return await _ask_if_possible(context, PromptCall(PromptId.VALIDATION_SEMANTIC_USER, prompt, SemanticCheckOutput))


async def _ask_if_possible(context: RunContext, question: PromptCall[Output]) -> Output | None:
    """Return the answer; None if no model gives one that can be read. Raises: OrchestrationFailure at a limit."""
    try:
        return await context.ask(question)
    except (ConstraintFailure, InferenceFailure):
        return None


async def _run_passes(context: RunContext, record: PassRecord, progress: PlanProgress) -> PlanProgress:
    """Run passes until one converges, the TTL has expired, or nothing is left to run: phases C and D.

    Return the progress of the last plan.
    """
    start = context.settings.reasoning
    assert start is not None  # noqa: S101 - the state PLAN comes first
    task = Task.of(start.inputs.history or context.request.messages, start.inputs)
    rules, nested, issues = PlanRules.of(context, start.inputs), 0, tuple[str, ...]()
    order: Sequence[int] = _runnable(progress)
    while order:
        pass_context = in_span(context, f"pass/{record.total_passes + 1}")
        nested += await _run_pass(pass_context, record, progress, order, rules.policy.max_steps - nested)
        verdict = await evaluate(pass_context, task, progress, issues)
        record.end_pass(verdict)
        pass_context.emit(verdict.event(record.total_passes, record.ttl_remaining))
        if verdict.converged or not record.ttl_remaining:
            break
        rest = rules.within(rules.policy.max_steps - nested)
        progress = await _refined(context, task, rest, record, progress)
        issues, order = verdict.issues, _runnable(progress)
        if order:
            record.profile = await _updated_profile(context, task, record, progress)
    return progress


async def _run_pass(
    context: RunContext, record: PassRecord, progress: PlanProgress, order: Sequence[int], most_steps: int
) -> int:
    """Run these steps and return the number of steps in their subplans; the plan and they have at most so many."""
    record.total_passes += 1
    if record.total_passes > 1:
        context.transition_to(State.EXECUTE, "not_converged")
    subplans = Subplans(progress, order, most_steps - len(progress.plan.steps))
    settings = replace(context.settings, pass_number=record.total_passes)
    await run_steps(context.with_settings(settings), progress, order, subplans.step_patterns)
    context.transition_to(State.VALIDATE, "output_ready")
    return subplans.step_count


async def _refined(
    context: RunContext, task: Task, rules: PlanRules, record: PassRecord, progress: PlanProgress
) -> PlanProgress:
    """Return the progress of the changed plan, in which every step that has run stays as it is."""
    assert record.verdict is not None  # noqa: S101 - a pass ends with a verdict
    refined = await refined_plan(context, task, rules, progress, assessment=record.verdict.as_json)
    if refined is None:
        return progress
    before = context.settings.plan
    assert before is not None  # noqa: S101 - a plan is made before it runs
    plan = replace(before, steps=refined.plan_steps)
    try:
        await record_check(context, plan, parsed=refined, accepted=record.accepted_steps)
    except OrchestrationFailure as refusal:
        if refusal.code not in REFUSALS:
            raise
        return progress
    record.total_refinements += 1
    context.emit(plan_created(plan))
    record.progress = progress.changed(refined)
    return record.progress


async def _updated_profile(
    context: RunContext, task: Task, record: PassRecord, progress: PlanProgress
) -> TaskProfileOutput | None:
    """Return the profile as a model sees it after the pass; as it was if no model can tell."""
    assert record.profile is not None  # noqa: S101 - phase A comes first
    assert record.verdict is not None  # noqa: S101 - a pass ends with a verdict
    prompt = TaskProfileUpdateInput(
        request=task.request,
        profile=record.profile,
        steps=step_states(progress),
        assessment=record.verdict.as_json,
    )
    question = PromptCall(PromptId.TASKPROFILE_UPDATE_USER, prompt, TaskProfileOutput)
    return await _ask_if_possible(context, question) or record.profile


def _runnable(progress: PlanProgress) -> Sequence[int]:
    return runnable_steps(progress.plan, {report.name: report.status for report in progress.report.steps})
