"""Prompts by which a supervisor repairs a reply that could not be used.

A repair answers what the repaired prompt asked for. A repaired call or step is put in the place of the old one.
"""

from typing import Any, Final

from pydantic import ConfigDict, Field, JsonValue, model_validator

from portico.capabilities.prompting.definition import EmptyInput, PromptDefinition, PromptId, PromptInput, PromptOutput
from portico.capabilities.prompting.prompts.output_format import QuotedViolation
from portico.capabilities.prompting.prompts.planning import PlanGenerationOutput, PlannableTool
from portico.domain.contract.request import PlanStep


class RepairInput(PromptInput):
    """A task, and what is wrong with the reply to it."""

    task: JsonValue = Field(None, description="What the repaired prompt was given.")
    violations: tuple[QuotedViolation, ...] = Field(min_length=1, description="What is wrong, by place.")


class RepairJsonInput(RepairInput):
    """A reply without JSON, or whose JSON does not fit."""

    json_schema: dict[str, JsonValue] = Field(description="JSON Schema that the reply has to fit.")
    answer: str = Field(description="The reply.")


class RepairJsonOutput(PromptOutput):
    """The repaired value, with the members that the repaired prompt asked for."""

    model_config = ConfigDict(extra="allow")


class RefusedCall(PromptInput):
    """A tool call whose arguments do not fit its tool."""

    step: str = Field(description="Name of the step that makes it.")
    tool: str = Field(description="Name of the tool.")
    arguments: dict[str, JsonValue] = Field(description="Arguments that do not fit.")
    parameters: dict[str, JsonValue] = Field(description="JSON Schema of its arguments.")


class RepairToolCallInput(RepairInput):
    """Tool calls whose arguments do not fit their tools."""

    calls: tuple[RefusedCall, ...] = Field(min_length=1, description="The calls.")


class RepairedCall(PromptOutput):
    """A tool call with other arguments."""

    step: str = Field("", description="Name of the step that makes the call; may be left out if there is only one.")
    arguments: dict[str, JsonValue] = Field(description="Arguments that fit its tool.")


class RepairToolCallOutput(PromptOutput):
    """Repaired tool calls."""

    calls: tuple[RepairedCall, ...] = Field(min_length=1, description="Each repaired call.")

    @model_validator(mode="before")
    @classmethod
    def _accept_one_call(cls, value: Any) -> Any:
        return {"calls": [value]} if isinstance(value, dict) and "arguments" in value else value


class RepairPlanInput(RepairInput):
    """A plan, or changes to one, that cannot run."""

    answer: JsonValue = Field(description="What was refused.")


class RepairMissingToolInput(RepairInput):
    """Steps that call tools which are not offered."""

    steps: tuple[PlanStep, ...] = Field(min_length=1, description="The steps.")
    tools: tuple[PlannableTool, ...] = Field((), description="Tools that are offered.")


class RepairMissingToolOutput(PromptOutput):
    """Repaired steps, under their names."""

    steps: tuple[PlanStep, ...] = Field(min_length=1, description="Each repaired step, whole.")

    @model_validator(mode="before")
    @classmethod
    def _accept_one_step(cls, value: Any) -> Any:
        return {"steps": [value]} if isinstance(value, dict) and "type" in value else value


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.SUPERVISOR_REPAIR_SYSTEM,
        template="""\
You repair a reply that another model gave and that could not be used.

- Keep what the reply meant. Change what is wrong with it, and nothing else.
- Use only what the reply and its task contain. Where a needed value is in neither, take the most cautious one that is
allowed, and never invent a result.
- Do not explain, apologise or comment.""",
        input_model=EmptyInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.SUPERVISOR_REPAIR_JSON_USER,
        template="""\
{data_rule}

The task, as data:
{task}

The JSON Schema of the reply:
{json_schema}

The reply that could not be read:
{answer}

What is wrong, by its place, `$` for all of the reply:
{violations}

Reply with one JSON object and nothing else: the same reply, in a form that fits the schema.""",
        input_model=RepairJsonInput,
        output_model=RepairJsonOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.SUPERVISOR_REPAIR_TOOLCALL_USER,
        template="""\
{data_rule}

The task that the plan is for:
{task}

The calls whose arguments their tools do not take, with the JSON Schema of the arguments:
{calls}

What is wrong with the arguments, by place:
{violations}

Reply with one JSON object and nothing else, with an entry for each of these calls:
{"calls": [{"step": the name of its step, "arguments": all arguments, in a form that fits}, …]}""",
        input_model=RepairToolCallInput,
        output_model=RepairToolCallOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.SUPERVISOR_REPAIR_PLAN_USER,
        template="""\
{data_rule}

The task, with the types of steps, the tools and the limits:
{task}

The reply that was refused:
{answer}

What was refused in it, by place:
{violations}

Reply with one JSON object and nothing else: the whole reply in the same form, with every refusal put right and all
else as it was.""",
        input_model=RepairPlanInput,
        output_model=PlanGenerationOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.SUPERVISOR_REPAIR_MISSINGTOOL_USER,
        template="""\
{data_rule}

The task that the steps are for:
{task}

The tools that are offered, and no others are:
{tools}

The steps that name another tool:
{steps}

Where they name it:
{violations}

Let each of these steps reach its aim with an offered tool, with arguments that fit, or without a tool: as a step of
type "infer" whose input is the question to be answered. Keep its name and what it depends on.

Reply with one JSON object and nothing else, with each of these steps whole:
{"steps": [{"name": …, "type": …, "input": …, "depends_on": […]}, …]}""",
        input_model=RepairMissingToolInput,
        output_model=RepairMissingToolOutput,
    ),
)
