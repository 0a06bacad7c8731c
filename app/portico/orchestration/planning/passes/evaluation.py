"""Evaluation: how far a plan got after a pass, in the words of a model, and our verdict.

The verdict is ours: a pass converged if the model says so, both of its scores and all four of its consistencies bear it
out, and at least one step completed. An assessment that cannot be read is no reason to stop and none to be satisfied.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import JsonValue

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.assessment import (
    REQUIRED_COHERENCE,
    REQUIRED_COMPLETENESS,
    ConvergenceAssessmentInput,
    ConvergenceAssessmentOutput,
)
from portico.capabilities.prompting.prompts.planning import PlanStepState
from portico.domain.contract.response import StepStatus
from portico.domain.failures import ConstraintFailure
from portico.domain.journal.events import PassEnd
from portico.domain.value import value
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.plan_run import PlanProgress
from portico.orchestration.patterns.steps import as_answer
from portico.orchestration.planning.task import Task

MAX_REASONS: Final = 16
SHOWN_CHARACTERS: Final = 32_000
"""Most characters of all outputs together that a model is shown, and of each at least `_LEAST_CHARACTERS`."""
_LEAST_CHARACTERS: Final = 500
_CUT: Final = "… [cut]"
_CODE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@value
class Verdict:
    """The worth of a pass: the assessment, if it could be read, and the reasons why it did not converge."""

    assessment: ConvergenceAssessmentOutput | None
    reasons: tuple[str, ...]

    @property
    def converged(self) -> bool:
        """True if nothing speaks against it."""
        return not self.reasons

    @property
    def as_json(self) -> dict[str, JsonValue]:
        """The assessment with the verdict in the place of the model's."""
        read = {} if self.assessment is None else self.assessment.model_dump(mode="json")
        return {**read, "converged": self.converged, "reason_codes": list(self.reasons)}

    @property
    def issues(self) -> tuple[str, ...]:
        """The issues that the model found."""
        return () if self.assessment is None else self.assessment.detected_issues

    def event(self, pass_number: int, ttl_remaining: int) -> PassEnd:
        """Return the event of the end of the pass."""
        read = self.assessment
        return PassEnd(
            pass_number,
            converged=self.converged,
            completeness=None if read is None else read.completeness_score,
            coherence=None if read is None else read.coherence_score,
            consistent=read is not None and read.is_consistent,
            reasons=self.reasons,
            ttl_remaining=ttl_remaining,
        )


async def evaluate(context: RunContext, task: Task, progress: PlanProgress, earlier_issues: Sequence[str]) -> Verdict:
    """Return the verdict about the plan as it is. Raises: InferenceFailure; OrchestrationFailure at a limit."""
    prompt = ConvergenceAssessmentInput(
        request=task.request,
        history=task.history,
        steps=step_states(progress),
        answer=_shortened(last_output(progress), SHOWN_CHARACTERS),
        earlier_issues=tuple(earlier_issues),
    )
    question = PromptCall(PromptId.CONVERGENCE_ASSESSMENT_USER, prompt, ConvergenceAssessmentOutput)
    try:
        assessment = await context.ask(question)
    except ConstraintFailure:
        assessment = None
    return Verdict(assessment, tuple(dict.fromkeys(_reasons(assessment, progress)))[:MAX_REASONS])


def step_states(progress: PlanProgress) -> tuple[PlanStepState, ...]:
    """Return the steps of the plan as prompts show them, the outputs cut to what a model can be expected to read."""
    limit = max(_LEAST_CHARACTERS, SHOWN_CHARACTERS // max(1, len(progress.plan.steps)))
    texts = progress.output_texts
    return tuple(
        PlanStepState(
            name=step.name,
            type=step.type,
            input=step.input,
            depends_on=None if step.plan_step.depends_on is None else tuple(step.plan_step.depends_on),
            status=report.status,
            output=report.output if len(texts.get(step.name, "")) <= limit else f"{texts[step.name][:limit]}{_CUT}",
            error=None if report.error is None else report.error.message,
        )
        for step, report in zip(progress.plan.steps, progress.report.steps, strict=True)
    )


def last_output(progress: PlanProgress) -> JsonValue:
    """Return the output of the last step that completed, in the order of the plan; None if none did."""
    completed = [report for report in progress.report.steps if report.status is StepStatus.COMPLETED]
    output: JsonValue = completed[-1].output if completed else None
    return output


def _reasons(assessment: ConvergenceAssessmentOutput | None, progress: PlanProgress) -> Iterator[str]:
    """Yield the codes of everything that speaks against convergence, our own first."""
    if all(report.status is not StepStatus.COMPLETED for report in progress.report.steps):
        yield "no_step_completed"
    if assessment is None:
        yield "assessment_unreadable"
        return
    if assessment.completeness_score < REQUIRED_COMPLETENESS:
        yield "incomplete"
    if assessment.coherence_score < REQUIRED_COHERENCE:
        yield "incoherent"
    for part, is_consistent in assessment.consistency_status:
        if not is_consistent:
            yield f"{part}_inconsistent"
    if not assessment.converged:
        yield "not_converged"
        yield from filter(_CODE.fullmatch, assessment.reason_codes)


def _shortened(value: JsonValue, limit: int) -> JsonValue:
    """Return the value, or the beginning of its text if that is longer than the limit."""
    text = as_answer(value).text
    return value if len(text) <= limit else f"{text[:limit]}{_CUT}"
