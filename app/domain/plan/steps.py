"""The types of a plan's steps: a row each that says which keys a step has, what it works on and what it puts out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, field_validator

from app.domain.contract.constrained_types import ToolName, UnitInterval
from app.domain.contract.messages import Message, conversation_errors
from app.domain.contract.request import PlanStep
from app.domain.contract.rules import MAX_RULES, Rule, RuleName


class StepType(StrEnum):
    """What a step can do."""

    INFER = "infer"
    TOOL = "tool"
    RETRIEVE = "retrieve"
    RERANK = "rerank"
    VALIDATE = "validate"
    REDUNDANT = "redundant"


class _Read(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


Count = Annotated[int, Field(ge=1)]
Voting = Literal["majority", "unanimity", "field_majority"]


class StepOptions(_Read):
    """What a step may say beside its name, type, input and `depends_on`; each description is what the value must be."""

    schema_: dict[str, JsonValue] | None = Field(None, alias="schema", description="a JSON Schema, which is an object")
    rules: list[RuleName | Rule] = Field(
        default_factory=list,
        max_length=MAX_RULES,
        description=f"a list of at most {MAX_RULES} rules, by name or inline",
    )
    attempts: Count | None = Field(None, description="an integer from 1")
    timeout: Annotated[float, Field(gt=0)] | None = Field(None, description="seconds above 0")
    tools: Annotated[list[ToolName], Field(fail_fast=True)] | None = Field(None, description="a list of names of tools")
    n: Count | None = Field(None, description="an integer from 1")
    voting: Voting | None = Field(None, description="majority, unanimity or field_majority")
    quorum: Count | None = Field(None, description="an integer from 1")
    min_confidence: UnitInterval | None = Field(None, description="a number from 0 to 1")
    top_k: Count | None = Field(None, description="an integer from 1")
    min_score: UnitInterval | None = Field(None, description="a number from 0 to 1")


class InferInput(_Read):
    """What an `infer` step asks where that is more than one message."""

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1)
    schema_: dict[str, JsonValue] | None = Field(None, alias="schema")
    tools: Annotated[list[ToolName], Field(fail_fast=True)] | None = None

    @field_validator("messages")
    @classmethod
    def _is_whole(cls, messages: list[Message]) -> list[Message]:
        if conversation_errors(messages):
            raise ValueError("must answer every call, and no other")
        return messages


class RedundantInput(InferInput):
    """What a `redundant` step asks where that is more than one message."""

    n: Count | None = None
    voting: Voting | None = None
    quorum: Count | None = None
    min_confidence: UnitInterval | None = None


class ToolInput(_Read):
    """What a `tool` step calls."""

    name: ToolName
    arguments: dict[str, JsonValue]


class Chunk(BaseModel):
    """A text among others, with whatever else is known of it."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    content: str


class RerankInput(_Read):
    """What a `rerank` step puts in order: texts, or objects that have a `content`."""

    query: str
    candidates: Annotated[list[str | Chunk], Field(fail_fast=True)]
    top_k: Count | None = None
    min_score: UnitInterval | None = None


StepInput: TypeAlias = "str | InferInput | RedundantInput | ToolInput | RerankInput | JsonValue"
"""What a step works on, as its type reads it."""
InputType: TypeAlias = "Literal['text', 'items', 'value'] | Mapping[str, InputType]"
"""What is known of an output beforehand: a text, a list of chunks, any JSON value, or an object with these members."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """Everything that is true of one type of step.

    `expected` says in words what `work` reads. `takes` says whether a value of which so much is known may fit, `gives`
    what is known of the step's output when it is given that. One of `needs` must be there. A type that `asks` a model
    may find keys in its input too, and is told an object that is no conversation as text.
    """

    options: frozenset[str]
    input_adapter: TypeAdapter[StepInput]
    expected: str
    accepts: Callable[[InputType], bool]
    output_type: Callable[[PlanStep, InputType], InputType]
    required_options: frozenset[str] = frozenset()
    calls_model: bool = False


def _is_asked(kind: InputType) -> bool:
    return kind != "items"


def _is_called(kind: InputType) -> bool:
    if not isinstance(kind, Mapping):
        return kind == "value"
    known = kind.keys() == {"name", "arguments"}
    return known and kind["name"] in ("text", "value") and kind["arguments"] not in ("text", "items")


def _is_ranked(kind: InputType) -> bool:
    if not isinstance(kind, Mapping):
        return kind == "value"
    known = {"query", "candidates"} <= kind.keys() <= {"query", "candidates", "top_k", "min_score"}
    return known and kind["query"] in ("text", "value") and kind["candidates"] in ("items", "value")


def _answer(step: PlanStep, given: InputType) -> InputType:
    may_bring_schema = given == "value" or (isinstance(given, Mapping) and "schema" in given)
    return "value" if has_schema(step) or may_bring_schema else "text"


def step_options(step: PlanStep) -> Mapping[str, JsonValue]:
    """The keys of its type that the step has; null is as good as absent."""
    return {key: value for key, value in (step.model_extra or {}).items() if value is not None}


def has_schema(step: PlanStep) -> bool:
    """Whether the answer of a step that asks has a form, by its key or its own input."""
    inner = step.input.get("schema") if isinstance(step.input, dict) else None
    return "schema" in step_options(step) or inner is not None


_FORM: Final = frozenset({"timeout", "schema", "rules"})
_VOTE: Final = frozenset({"n", "voting", "quorum", "min_confidence"})
_ASKED: Final = "a string, or an object with messages and, where wanted, schema and tools"
# fmt: off
STEP_SPECS: Mapping[str, StepSpec] = MappingProxyType({
    StepType.INFER: StepSpec(
        options=_FORM | {"attempts", "tools"}, input_adapter=TypeAdapter(str | InferInput), expected=_ASKED,
        accepts=_is_asked, output_type=_answer, calls_model=True),
    StepType.TOOL: StepSpec(
        options=frozenset({"timeout"}), input_adapter=TypeAdapter(ToolInput),
        expected="an object with name and arguments", accepts=_is_called, output_type=lambda step, given: "text"),
    StepType.RERANK: StepSpec(
        options=frozenset({"timeout", "top_k", "min_score"}), input_adapter=TypeAdapter(RerankInput),
        expected="an object with query, candidates and, where wanted, top_k and min_score",
        accepts=_is_ranked, output_type=lambda step, given: "items"),
    StepType.VALIDATE: StepSpec(
        options=_FORM, input_adapter=TypeAdapter(JsonValue), expected="any value",
        accepts=lambda kind: True, output_type=lambda step, given: given,
        required_options=frozenset({"schema", "rules"})),
    StepType.REDUNDANT: StepSpec(
        options=_FORM | _VOTE | {"tools"}, input_adapter=TypeAdapter(str | RedundantInput),
        expected=f"{_ASKED}, n and voting", accepts=_is_asked, output_type=_answer,
        required_options=frozenset({"schema"}), calls_model=True),
})
# fmt: on
"""The types of steps that run in this version."""
