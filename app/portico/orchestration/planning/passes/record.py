"""Record of passes: what the phases have found so far, from which the final answer is written."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic import JsonValue

from portico.capabilities.prompting.prompts.assessment import SemanticCheckOutput
from portico.capabilities.prompting.prompts.task_profile import TaskProfileOutput
from portico.domain.contract.final_answer import ConvergenceStatus, PhaseEInput
from portico.domain.contract.request import PlanOptions
from portico.domain.contract.response import StepReport, StepStatus
from portico.domain.failures import Failure
from portico.domain.journal.events import WIRE_NAMES
from portico.orchestration.execution.context import RunContext, set_phase_e_input, use_reserve
from portico.orchestration.execution.reserve import LIMIT_CODES
from portico.orchestration.patterns.plan_run import PlanProgress
from portico.orchestration.planning.passes.evaluation import Verdict
from portico.orchestration.planning.plan_check import AcceptedSteps
from portico.orchestration.planning.synthesis import SynthesizedAnswer, answer_in_passes
from portico.orchestration.planning.synthesis_call import synthesis_ask


class PassRecord:
    """The state of the phases of one execution. The pattern writes it; `phase_e_input` shows it as it is."""

    def __init__(self, context: RunContext) -> None:
        start = context.settings.reasoning
        self.ttl_remaining = (context.request.plan or PlanOptions()).passes if start is None else start.ttl
        self.total_passes = 0
        self.total_refinements = 0 if start is None else start.refinements
        self.status: ConvergenceStatus = "not_converged"
        self.profile: TaskProfileOutput | None = None if start is None else start.profile
        self.semantic_check: SemanticCheckOutput | None = None if start is None else start.semantic_check
        self.progress: PlanProgress | None = None
        self.accepted_steps = AcceptedSteps()
        self.verdict: Verdict | None = None
        self._passes: list[dict[str, Any]] = []
        set_phase_e_input(context, partial(self.phase_e_input, context))

    def end_pass(self, verdict: Verdict) -> None:
        """Take the verdict about the pass that ran; one that did not converge costs one of the TTL."""
        self.verdict = verdict
        self.ttl_remaining -= not verdict.converged
        end = vars(verdict.event(self.total_passes, self.ttl_remaining))
        self._passes.append({WIRE_NAMES.get(name, name): value for name, value in end.items()})
        if verdict.converged:
            self.status = "converged"
        elif not self.ttl_remaining:
            self.status = "ttl_expired"

    async def final_answer(self, context: RunContext, failure: Failure | None = None) -> SynthesizedAnswer:
        """Return the final answer; `failure` is what ended the phases, if it did.

        Raises: OrchestrationFailure if a replay diverges, and nothing else.
        """
        use_reserve(context)
        is_salvaged = failure is not None and failure.code in LIMIT_CODES and context.request.on_limit == "salvage"
        limit = failure.code if failure is not None and is_salvaged else None
        return await answer_in_passes(self.phase_e_input(context), synthesis_ask(context), limit=limit)

    def phase_e_input(self, context: RunContext) -> PhaseEInput:
        """Return what was found so far; the parts that were not reached are None."""
        settings = context.settings
        return PhaseEInput(
            request=settings.last_user_text or context.request.messages[-1].text,
            correlation_id=settings.correlation.trace_id,
            execution_start_timestamp=datetime.fromtimestamp(settings.started_at, UTC),
            convergence_status=self.status,
            total_passes=self.total_passes,
            total_refinements=self.total_refinements,
            ttl_remaining=self.ttl_remaining,
            plan_state=self._plan_state(),
            execution_results=self._results(),
            convergence_assessment=None if self.verdict is None else self.verdict.as_json,
            execution_passes=self._passes if self.total_passes else None,
            semantic_validation=_members(self.semantic_check),
            task_profile=_members(self.profile),
        )

    def _plan_state(self) -> dict[str, Any] | None:
        if self.progress is None:
            return None
        pairs = zip(self.progress.plan.steps, self.progress.report.steps, strict=True)
        fields = {"name", "type", "depends_on"}
        steps = [{**step.plan_step.model_dump(include=fields), "status": report.status} for step, report in pairs]
        return {"steps": steps}

    def _results(self) -> dict[str, Any] | None:
        """Return what the steps that ran gave, by name: outputs and errors."""
        if self.progress is None or not self.total_passes:
            return None
        return {report.name: _result(report) for report in self.progress.report.steps if _has_ended(report)}


def _has_ended(report: StepReport) -> bool:
    return report.status is StepStatus.COMPLETED or report.error is not None


def _result(report: StepReport) -> JsonValue:
    if report.error is None:
        output: JsonValue = report.output
        return output
    return {"error": report.error.code, "message": report.error.message}


def _members(found: TaskProfileOutput | SemanticCheckOutput | None) -> dict[str, Any] | None:
    return None if found is None else found.model_dump(mode="json")
