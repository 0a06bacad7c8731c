"""Prompts of reasoning in passes: the plan for a task, its sub-plans, its steps, and its refinement."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, model_validator

from portico.capabilities.prompting.definition import EmptyInput, PromptDefinition, PromptId, PromptInput, PromptOutput
from portico.capabilities.prompting.prompts.assessment import SemanticIssue
from portico.capabilities.prompting.prompts.planning import PlanGenerationInput, PlanGenerationOutput, PlanStepState
from portico.capabilities.prompting.prompts.task_profile import TaskProfileOutput
from portico.domain.contract.request import PlanStep
from portico.domain.plan.refinement import RefinementAction

MAX_REFINEMENTS: Final = 50
"""Most changes of one refinement."""


class ReasoningStepInput(PromptInput):
    """One step of a plan that a model carries out by thinking."""

    request: str = Field(description="What is asked.")
    step: str = Field(description="Name of the step.")
    task: str = Field(description="What the step has to achieve.")
    results: dict[str, JsonValue] = Field({}, description="Outputs of the steps that it depends on, by name.")


class RecursivePlanGenerationInput(PlanGenerationInput):
    """A request to plan for several passes, with the profile of its task."""

    profile: TaskProfileOutput = Field(description="Profile of the task.")
    passes: int = Field(ge=1, description="Most passes over the plan.")


class RecursiveSubplanGenerationInput(PlanGenerationInput):
    """One step of a plan that is planned as steps of its own."""

    step: str = Field(description="Name of the step.")
    task: str = Field(description="What the step has to achieve.")
    results: dict[str, JsonValue] = Field({}, description="Outputs of the steps that it depends on, by name.")


class RecursiveRefinementInput(PlanGenerationInput):
    """A plan to change, and the reasons. `max_steps` is the most that may be added."""

    max_steps: int = Field(ge=0, description="Most steps that may be added.")
    steps: tuple[PlanStepState, ...] = Field(description="Steps of the plan, with their results.")
    assessment: JsonValue = Field(None, description="Assessment of the last pass; null before the first one.")
    issues: tuple[SemanticIssue, ...] = Field((), description="Faults that a check of the plan found.")

    def output_schema(self, output: type[BaseModel]) -> dict[str, Any]:
        """Return the schema of refinements whose new steps have only the allowed types."""
        form = PromptInput.output_schema(self, output)
        form["$defs"]["PlanStep"]["properties"]["type"] = {"enum": list(self.step_types)}
        return form


def _upper_case(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


class Refinement(PromptOutput):
    """One change to a plan. All but ADD name a `target_step`; all but REMOVE bring a `new_step`."""

    action: Annotated[RefinementAction, BeforeValidator(_upper_case)] = Field(description="Kind of the change.")
    target_step: str | None = Field(
        None, description="Name of the step that is changed; for ADD, of the step that the new one comes after, if any."
    )
    new_step: PlanStep | None = Field(None, description="The new step; none for REMOVE.")
    reason: str = Field("", description="Reason for the change, in a sentence.")

    @model_validator(mode="after")
    def _reject_missing_part(self) -> "Refinement":
        if self.action is not RefinementAction.ADD and not self.target_step:
            raise ValueError(f"{self.action} needs a target_step")
        if self.action is not RefinementAction.REMOVE and self.new_step is None:
            raise ValueError(f"{self.action} needs a new_step")
        return self


class RecursiveRefinementOutput(PromptOutput):
    """Changes to a plan, in the order in which they are made."""

    refinements: tuple[Refinement, ...] = Field(
        max_length=MAX_REFINEMENTS, description="Each change; none if nothing should change."
    )


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.REASONING_STEP_SYSTEM,
        template="""\
You carry out one step of a plan. Others carry out the rest.

- Do what the step has to achieve, all of it, and no other step's work.
- Build on the results you are given. Do not repeat them, and do not contradict them without saying why.
- Where something is missing, say what, and go on as far as it allows. Invent neither facts nor sources.
- Answer with the result alone: another step reads it.""",
        input_model=EmptyInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.REASONING_STEP_USER,
        template="""\
{data_rule}

The request that the whole plan serves:
{request}

The results of the steps before:
{results}

The name of your step:
{step}

What your step has to achieve:
{task}""",
        input_model=ReasoningStepInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.RECURSIVE_PLAN_GENERATION_USER,
        template="""\
{data_rule}

The tools that steps may call:
{tools}

The conversation so far:
{history}

The profile of the task, as it was estimated:
{profile}

The request to be planned:
{request}

The plan runs in at most {passes} passes. After each one the results are assessed, and steps may be added or changed.
So plan what is known to be needed now, and leave to later passes what depends on results. Let the depth of the plan
follow the profile: few steps for a shallow task, more for a deep or broad one. Where much information is missing, find
it out first. The last step gives the whole answer.""",
        input_model=RecursivePlanGenerationInput,
        output_model=PlanGenerationOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.RECURSIVE_SUBPLAN_GENERATION_USER,
        template="""\
{data_rule}

The tools which steps may call:
{tools}

What was said before:
{history}

The request that the outer plan serves, as the background:
{request}

The results that the outer plan has for this step:
{results}

The step of the outer plan that is to be planned:
{step}

What that step has to achieve:
{task}

Plan this one step as steps of its own. Plan nothing else of the request: the outer plan does that. The last step gives
the output of the whole step.""",
        input_model=RecursiveSubplanGenerationInput,
        output_model=PlanGenerationOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.RECURSIVE_REFINEMENT_SYSTEM,
        template="""\
You change a plan so that the rest of it closes the gaps that were found. You do not carry it out.

Reply with one JSON object and nothing else:
{"refinements": [{"action": "ADD", "MODIFY", "REMOVE" or "REPLACE", "target_step": the name of a step, "new_step":
{"name": …, "type": …, "input": …, "depends_on": […]}, "reason": why, in a sentence}, …]}

- Only steps whose status is "pending" or "skipped" may be modified, removed or replaced. What has run stays as it is:
to do better, add a step with a new name that uses or corrects its result.
- ADD takes a new step, with a name that no step has, after "target_step" or at the end.
- MODIFY keeps the name of its target; REPLACE may rename it; REMOVE has no "new_step".
- A new step names in "depends_on" each step whose output it needs; steps that failed have none.
- Change no more than the issues ask for. When nothing would help, "refinements" is empty.""",
        input_model=EmptyInput,
        output_model=RecursiveRefinementOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.RECURSIVE_REFINEMENT_USER,
        template="""\
{data_rule}

The request that the plan serves:
{request}

The conversation before it:
{history}

The tools that a step may call:
{tools}

The steps, their status and their results:
{steps}

The assessment of the last pass:
{assessment}

The faults that a check found:
{issues}

The types that a new step may have:
{known_types}

At most {max_steps} steps may be added. {order}""",
        input_model=RecursiveRefinementInput,
        output_model=RecursiveRefinementOutput,
    ),
)
