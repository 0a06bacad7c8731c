"""Reasoning steps: steps of type `infer` that a model planned for several passes, and the prompt that explains them.

It is asked by a prompt with the request, the step's name and task, and the outputs of the steps that it depends on. A
step that a person wrote, one with messages of its own, and one about a message with images are asked as they stand.
"""

from pydantic import JsonValue

from portico.capabilities.prompting.definition import PromptId
from portico.capabilities.prompting.prompt_call import Prompt
from portico.capabilities.prompting.prompts.recursion import ReasoningStepInput
from portico.domain.contract.messages import system_prompt
from portico.domain.plan.parsed_plan import ParsedStep
from portico.domain.plan.steps import InferInput, StepInput
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.plan_run import PlanProgress
from portico.orchestration.patterns.steps import infer_as


class ReasoningSteps:
    """The reasoning steps of one plan."""

    def __init__(self, progress: PlanProgress) -> None:
        self._progress = progress

    async def run(self, context: RunContext, step: ParsedStep, step_input: StepInput) -> JsonValue:
        """Return a model's text, or its value if the step has a schema."""
        settings = context.settings
        if settings.reasoning is None or isinstance(step_input, InferInput) or _has_images(settings):
            return await infer_as(context, step, step_input)
        given = ReasoningStepInput(
            request=settings.last_user_text,
            step=step.name,
            task=step.input if isinstance(step.input, str) else "",
            results=dict(self._progress.inputs_of(self._progress.plan.steps.index(step)) or {}),
        )
        prompt = Prompt(PromptId.REASONING_STEP_USER, given, tuple(system_prompt(settings.messages)))
        return await infer_as(context, step, step_input, prompt)


def _has_images(settings: BranchSettings) -> bool:
    last = next((message for message in reversed(settings.messages) if message.role == "user"), None)
    return last is not None and not isinstance(last.content, str)
