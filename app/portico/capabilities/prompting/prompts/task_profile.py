"""Prompts about the profile of a task: how much work it needs."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, JsonValue

from portico.capabilities.prompting.definition import EmptyInput, PromptDefinition, PromptId, PromptInput, PromptOutput
from portico.capabilities.prompting.prompts.planning import HistoryMessage, PlanStepState, ToolSummary, lower_case


class ToolUsage(StrEnum):
    """Use of tools by a task."""

    NONE = "none"
    MINIMAL = "minimal"
    MODERATE = "moderate"
    EXTENSIVE = "extensive"


class OutputBreadth(StrEnum):
    """Breadth of the expected answer."""

    NARROW = "narrow"
    MODERATE = "moderate"
    BROAD = "broad"


class ConfidenceRequirement(StrEnum):
    """Confidence that an answer must have."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class TaskProfileInput(PromptInput):
    """A request whose profile is wanted."""

    request: str = Field(description="What is asked.")
    history: tuple[HistoryMessage, ...] = Field((), description="Conversation before the request, oldest first.")
    tools: tuple[ToolSummary, ...] = Field((), description="Tools that steps may call.")


class TaskProfileOutput(PromptOutput):
    """Profile of a task."""

    reasoning_depth: int = Field(ge=1, le=5, strict=True, description="1: a single step; 5: many that build on others.")
    information_sufficiency: float = Field(
        ge=0, le=1, strict=True, description="Share of what is needed that is known already, from 0 to 1."
    )
    expected_tool_usage: Annotated[ToolUsage, BeforeValidator(lower_case)] = Field(description="Expected use of tools.")
    output_breadth: Annotated[OutputBreadth, BeforeValidator(lower_case)] = Field(description="Breadth of the answer.")
    confidence_requirement: Annotated[ConfidenceRequirement, BeforeValidator(lower_case)] = Field(
        description="Confidence that the answer needs."
    )
    raw_inference: str = Field("", description="Reason for this profile, in a sentence or two.")


DEFAULT_PROFILE: Final = TaskProfileOutput(
    reasoning_depth=3,
    information_sufficiency=0.5,
    expected_tool_usage=ToolUsage.MODERATE,
    output_breadth=OutputBreadth.MODERATE,
    confidence_requirement=ConfidenceRequirement.MEDIUM,
)
"""Profile of a task if no model gives one."""


class TaskProfileUpdateInput(PromptInput):
    """A profile, and what a pass showed."""

    request: str = Field(description="What is asked.")
    profile: TaskProfileOutput = Field(description="Profile so far.")
    steps: tuple[PlanStepState, ...] = Field((), description="Steps of the plan, with their results.")
    assessment: JsonValue = Field(None, description="Assessment of the pass; null if there is none.")


PROMPTS: Final = (
    PromptDefinition(
        prompt_id=PromptId.TASKPROFILE_INFERENCE_SYSTEM,
        template="""\
You estimate how much work a request needs. You neither plan nor answer it.

- reasoning_depth: an integer from 1, one look is enough, to 5, many conclusions that rest on each other.
- information_sufficiency: from 0, all has to be found out, to 1, all that is needed is known.
- expected_tool_usage: none, minimal, moderate or extensive. Without a tool that could help it is none.
- output_breadth: narrow is one fact or value, moderate a text on one subject, broad covers several subjects.
- confidence_requirement: low where a guess will do, high where a mistake is costly, else medium.

Judge by what the request asks for, not by what it says about its own difficulty.""",
        input_model=EmptyInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.TASKPROFILE_INFERENCE_USER,
        template="""\
{data_rule}

The tools at hand:
{tools}

What came before the request:
{history}

The request to be estimated:
{request}

Reply with one JSON object and nothing else:
{"reasoning_depth": integer, "information_sufficiency": number, "expected_tool_usage": word, "output_breadth": word,
"confidence_requirement": word, "raw_inference": why, in a sentence or two}""",
        input_model=TaskProfileInput,
        output_model=TaskProfileOutput,
    ),
    PromptDefinition(
        prompt_id=PromptId.TASKPROFILE_UPDATE_SYSTEM,
        template="""\
You correct the estimate of how much work a request needs, after a pass over its plan.

Change a value only for a reason that the results or the assessment give:
- reasoning_depth grows when results were too shallow to build on, and falls when the rest is plain.
- information_sufficiency rises with what the steps found, and falls with what turned out to be missing.
- expected_tool_usage, output_breadth and confidence_requirement change when the rest needs more, or less, than thought.

Values stay in their ranges: 1 to 5; 0 to 1; none, minimal, moderate, extensive; narrow, moderate, broad; low, medium,
high.""",
        input_model=EmptyInput,
        output_model=None,
    ),
    PromptDefinition(
        prompt_id=PromptId.TASKPROFILE_UPDATE_USER,
        template="""\
{data_rule}

The request:
{request}

The estimate so far:
{profile}

The steps, with what they found:
{steps}

The assessment of the pass:
{assessment}

Reply with one JSON object and nothing else, the whole estimate with its changes:
{"reasoning_depth": …, "information_sufficiency": …, "expected_tool_usage": …, "output_breadth": …,
"confidence_requirement": …, "raw_inference": what changed and why, in a sentence or two}""",
        input_model=TaskProfileUpdateInput,
        output_model=TaskProfileOutput,
    ),
)
