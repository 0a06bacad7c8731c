"""Subplans: steps that are planned and run as steps of their own.

All steps of an execution together are at most the policy's `max_steps`, those of subplans included. Subplans of one
plan may run at the same time, so what is left is divided among them before the first one begins: which of them plans
first makes no difference. A subplan divides its own share in the same way.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import PromptCall
from portico.capabilities.prompting.prompts.planning import PlanGenerationOutput
from portico.capabilities.prompting.prompts.recursion import RecursiveSubplanGenerationInput
from portico.domain.journal.outcomes import Plan, PlanningInputs
from portico.domain.plan.parsed_plan import ParsedStep, parse_plan
from portico.domain.plan.plan import plan_refused
from portico.domain.plan.steps import StepInput, StepType
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.plan_run import PlanProgress, initial_report, run_steps
from portico.orchestration.patterns.steps import STEP_PATTERNS, StepPattern
from portico.orchestration.planning.plan_check import PlanRules
from portico.orchestration.planning.planned_step import ReasoningSteps
from portico.orchestration.planning.planner import nothing_to_plan, plan_created, record_check
from portico.orchestration.planning.task import Task, planning_inputs

MAX_DEPTH: Final = 5
"""How many subplans may be nested in each other."""


class Subplans:
    """The subplans of one plan, of which these steps run next. Together they may have `spare` steps."""

    def __init__(self, progress: PlanProgress, order: Sequence[int], spare: int, depth: int = 1) -> None:
        self._progress = progress
        self._depth = depth
        count = sum(progress.plan.steps[index].type == StepType.SUBPLAN for index in order)
        self._share = max(0, spare) // count if count else 0
        self._made: dict[str, tuple[int, Subplans]] = {}

    @property
    def step_patterns(self) -> Mapping[str, StepPattern]:
        """The code that runs a step of each type, subplans included; steps that a model planned are reasoned about."""
        planned = {StepType.INFER: ReasoningSteps(self._progress).run} if self._progress.is_made_by_model else {}
        return MappingProxyType({**STEP_PATTERNS, **planned, StepType.SUBPLAN: self.run})

    @property
    def step_count(self) -> int:
        """The number of steps in all subplans that were made, and in theirs."""
        return sum(count + nested.step_count for count, nested in self._made.values())

    async def run(self, context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
        """Plan the step, run its plan, and return the output of the last step.

        Raises: OrchestrationFailure if no plan of the model may run; the failure of the first step that failed.
        """
        plan = await self._plan(context, step, str(step_input))
        progress = PlanProgress(context, parse_plan(plan.steps), initial_report(plan, 0.0))
        order = progress.plan.order
        nested = Subplans(progress, order, self._share - len(plan.steps), self._depth + 1)
        self._made[step.name] = (len(plan.steps), nested)
        context.emit(plan_created(plan))
        failures = await run_steps(context, progress, order, nested.step_patterns)
        if failures:
            raise failures[min(failures)]
        return progress.result

    async def _plan(self, context: RunContext, step: ParsedStep, task: str) -> Plan:
        if not self._share:
            raise plan_refused([("policy.max_steps", "leave no step to a subplan")])
        inputs = await planning_inputs(context)
        assert isinstance(inputs, PlanningInputs)  # noqa: S101 - there is no static plan
        can_nest = self._depth < MAX_DEPTH and self._share > 1
        rules = PlanRules.of(context, inputs, max_steps=self._share, subplans=can_nest)
        if not rules.step_types:
            raise nothing_to_plan()
        prompt = RecursiveSubplanGenerationInput(
            **Task.of(context.settings.messages, inputs).planning_fields,
            step_types=rules.step_types,
            max_steps=rules.policy.max_steps,
            require_linear=rules.policy.require_linear,
            step=step.name,
            task=task,
            results=self._progress.inputs_of(self._progress.plan.steps.index(step)) or {},
        )
        question = PromptCall(
            PromptId.RECURSIVE_SUBPLAN_GENERATION_USER,
            prompt,
            PlanGenerationOutput,
            lambda made: rules.check(parse_plan(made.steps)),
        )
        made = await context.ask(question)
        plan, _ = await record_check(context, Plan(made.steps, "subplan", made.rationale))
        return plan
