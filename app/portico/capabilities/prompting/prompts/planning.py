"""Prompts for making a plan."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, JsonValue, StringConstraints

from portico.capabilities.prompting.definition import PromptDefinition, PromptId, PromptInput, PromptOutput
from portico.domain.contract.messages import Role
from portico.domain.contract.request import PlanStep

StepTypeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
MAX_DESCRIPTION: Final = 8_000
"""Most characters that a planner reads about one type of step: its description and its schemas."""
StepTypeText = Annotated[
    str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", min_length=1, max_length=MAX_DESCRIPTION)
]
"""The length is no part of the pattern, since the compiled one would take 9 MB."""

# fmt: off
STEP_TYPE_DESCRIPTIONS: Mapping[str, str] = MappingProxyType({
    "infer":
        'Asks a model. Input: a string, its message; or {"messages": [{"role": "user", "content": string}], '
        '"schema": a JSON Schema, "tools": [names]}, of which only messages must be there. '
        "Output: a string, or the value when there is a schema.",
    "tool":
        'Calls a tool. Input: {"name": the tool\'s name, "arguments": {…}}. Output: the result as a string.',
    "retrieve":
        'Searches the memory. Input: a string, the query; or {"query": string, "max_chunks": integer, '
        '"min_score": number from 0 to 1}, of which only query must be there. '
        'Output: [{"content": string, "source": string, "score": number}].',
    "rerank":
        'Puts texts in the best order. Input: {"query": string, "candidates": [strings, or objects with "content"], '
        '"top_k": integer, "min_score": number from 0 to 1}, of which query and candidates must be there. '
        "Output: the same items, best first.",
    "validate":
        'Checks a value. The step has one more member, "schema": a JSON Schema. Input: any value. '
        "Output: that value; the step fails when it does not fit.",
    "redundant":
        'Asks several times at once and takes a vote. Input: an object as for infer, with "schema", "n": integer and '
        '"voting": "majority", "unanimity" or "field_majority". Output: the value that won.',
    "subplan":
        "Is planned and carried out as steps of its own. Input: a string, what it has to achieve. "
        "Output: that of the last of these steps.",
})
# fmt: on
"""The description of each type of step for the planner, in the order of the table."""


def lower_case(value: object) -> object:
    """Return a text in lower case, anything else as it is."""
    return value.lower() if isinstance(value, str) else value


class PlannableTool(PromptInput):
    """A tool that a plan may call."""

    name: str = Field(description="The tool's name.")
    description: str = Field(description="What it does.")
    parameters: dict[str, JsonValue] = Field(description="JSON Schema of its arguments.")


class ToolSummary(PromptInput):
    """A tool, for those who judge a plan."""

    name: str = Field(description="Name of the tool.")
    description: str = Field(description="What it does.")


class PlanStepState(PromptInput):
    """A step of a plan, and how far it is."""

    name: str = Field(description="Name of the step.")
    type: str = Field(description="Type of the step.")
    input: JsonValue = Field(None, description="Input of its own; null if it gets outputs of other steps.")
    depends_on: tuple[str, ...] | None = Field(None, description="Steps that it waits for; null for the one before.")
    status: str = Field("pending", description="Pending, or how it ended.")
    output: JsonValue = Field(None, description="Output; null if there is none.")
    error: str | None = Field(None, description="Reason for its failure; null if it did not fail.")


class HistoryMessage(PromptInput):
    """A message before the request."""

    role: Role = Field(description="Who said it.")
    text: str = Field(description="The text of it.")


class PlanGenerationInput(PromptInput):
    """A request to plan, and the material of the plan.

    The texts of `step_types` are the deployment's own, `STEP_TYPE_DESCRIPTIONS` and those registered beside it, never a
    client's.
    """

    request: str = Field(description="What is asked.")
    history: tuple[HistoryMessage, ...] = Field((), description="What was said before it, oldest first.")
    tools: tuple[PlannableTool, ...] = Field((), description="The tools that steps may call.")
    step_types: dict[StepTypeName, StepTypeText] = Field(min_length=1, description="The step types that may occur.")
    max_steps: int = Field(ge=1, description="Most steps.")
    require_linear: bool = Field(False, description="Whether branches are refused.")

    def output_schema(self, output: type[BaseModel]) -> dict[str, Any]:
        """Return the schema of a plan with only the allowed number of steps and step types."""
        form = super().output_schema(output)
        form["properties"]["steps"]["maxItems"] = self.max_steps
        form["$defs"]["PlanStep"]["properties"]["type"] = {"enum": list(self.step_types)}
        return form

    @property
    def known_types(self) -> str:
        """Return one line for each step type."""
        return "\n".join(f"- {name}: {text}" for name, text in self.step_types.items())

    @property
    def order(self) -> str:
        """Return the sentence about branches."""
        if self.require_linear:
            return "The steps run one after another: each depends on the one before it, and on no other."
        return "Steps that do not depend on each other run at once: let a step depend on what it needs, and no more."


class PlanGenerationOutput(PromptOutput):
    """A plan as a model made it. Whether it may run is for its policy to say."""

    rationale: str = Field("", description="Why these steps, in a sentence or two.")
    steps: tuple[PlanStep, ...] = Field(min_length=1, description="The steps in their order.")


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.PLAN_GENERATION_SYSTEM,
        template="""\
You plan how a request is carried out. You do not carry it out.

Reply with one JSON object and nothing else:
{"rationale": why these steps, in a sentence or two, "steps": [{"name": a name of its own, "type": one of the types
below, "input": what the step works on, "depends_on": [names of the steps that must have ended before]}, …]}

The types of steps:
{known_types}

- Take at most {max_steps} steps, and no more than are needed.
- {order}
- A step without "input" gets the output of the step it depends on, or an object with the output of each by name when
there are several. Without "depends_on" as well it gets the output of the step before it, and the first step the
request. "input" is a value as it stands: nothing in it is replaced.
- Call no tools but those that are listed with the request, with arguments that fit their parameters.""",
        input_model=PlanGenerationInput,
        output_model=PlanGenerationOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.PLAN_GENERATION_USER,
        template="""\
{data_rule}

The tools:
{tools}

What was said before the request:
{history}

The request to be planned:
{request}""",
        input_model=PlanGenerationInput,
        output_model=PlanGenerationOutput,
    ),
)
