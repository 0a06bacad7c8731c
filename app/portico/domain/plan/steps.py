"""Types of plan steps: one row per built-in type with its options, its input and its output.

A type of a module has none: any value may be its input, and its definition, a JSON Schema, says what fits.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, field_validator

from portico.domain.contract.constrained_types import ToolReference, UnitInterval
from portico.domain.contract.messages import Message, conversation_errors
from portico.domain.contract.rules import MAX_RULES, Rule, RuleName
from portico.domain.memory import MAX_CHUNKS
from portico.domain.value import value


class StepType(StrEnum):
    """Type of a plan step."""

    INFER = "infer"
    TOOL = "tool"
    RETRIEVE = "retrieve"
    RERANK = "rerank"
    VALIDATE = "validate"
    REDUNDANT = "redundant"
    SUBPLAN = "subplan"


class _StrictModel(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True, defer_build=True
    )


Count = Annotated[int, Field(ge=1)]
ChunkCount = Annotated[int, Field(ge=1, le=MAX_CHUNKS)]
Voting = Literal["majority", "unanimity", "field_majority"]


class StepOptions(_StrictModel):
    """Options of a step; each description is the condition that a value must satisfy."""

    schema_: dict[str, JsonValue] | None = Field(None, alias="schema", description="a JSON Schema, which is an object")
    rules: list[RuleName | Rule] = Field(
        default_factory=list,
        max_length=MAX_RULES,
        description=f"a list of at most {MAX_RULES} rules, by name or inline",
    )
    attempts: Count | None = Field(None, description="an integer from 1")
    timeout: Annotated[float, Field(gt=0)] | None = Field(None, description="seconds above 0")
    tools: Annotated[list[ToolReference], Field(fail_fast=True)] | None = Field(
        None, description="a list of names of tools"
    )
    n: Count | None = Field(None, description="an integer from 1")
    voting: Voting | None = Field(None, description="majority, unanimity or field_majority")
    quorum: Count | None = Field(None, description="an integer from 1")
    min_confidence: UnitInterval | None = Field(None, description="a number from 0 to 1")
    top_k: Count | None = Field(None, description="an integer from 1")
    max_chunks: ChunkCount | None = Field(None, description=f"an integer from 1 to {MAX_CHUNKS}")
    min_score: UnitInterval | None = Field(None, description="a number from 0 to 1")


class InferInput(_StrictModel):
    """Input of an `infer` step that is more than one message."""

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1)
    schema_: dict[str, JsonValue] | None = Field(None, alias="schema")
    tools: Annotated[list[ToolReference], Field(fail_fast=True)] | None = None

    @field_validator("messages")
    @classmethod
    def _reject_conversation_errors(cls, messages: list[Message]) -> list[Message]:
        if conversation_errors(messages):
            raise ValueError("must answer every call, and no other")
        return messages


class RedundantInput(InferInput):
    """Input of a `redundant` step that is more than one message."""

    n: Count | None = None
    voting: Voting | None = None
    quorum: Count | None = None
    min_confidence: UnitInterval | None = None


class ToolInput(_StrictModel):
    """Input of a `tool` step: the tool call."""

    name: ToolReference
    arguments: dict[str, JsonValue]


class RetrieveInput(_StrictModel):
    """Input of a `retrieve` step that is more than the query."""

    query: str
    max_chunks: ChunkCount | None = None
    min_score: UnitInterval | None = None


class Chunk(BaseModel):
    """Text with additional facts about it."""

    model_config = ConfigDict(
        extra="allow", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True, defer_build=True
    )

    content: str


class RerankInput(_StrictModel):
    """Input of a `rerank` step: texts to be ordered, or objects with a `content`."""

    query: str
    candidates: Annotated[list[str | Chunk], Field(fail_fast=True)]
    top_k: Count | None = None
    min_score: UnitInterval | None = None


StepInput: TypeAlias = "str | InferInput | RedundantInput | ToolInput | RetrieveInput | RerankInput | JsonValue"
"""Input of a step, parsed by its type."""
InputType: TypeAlias = "Literal['text', 'items', 'chunks', 'value'] | Mapping[str, InputType]"
"""Known type of an output: a text, a list of items, one of chunks that a search found, any JSON value, or an object
with these members.
"""


@value
class StepSpec:
    """Facts about one type of step.

    `expected` describes the input that `input_adapter` accepts. `accepts` tells whether an input of that type may
    match, and `output_type` returns the type of the output for it, of a step without a schema. At least one of
    `required_options` must be set. A type that `calls_model` also finds options in its input, receives an object that
    is not a conversation as text, and returns a value if it has a schema. A type of a module `has_own_options` beside
    these, which its definition describes.
    """

    options: frozenset[str]
    input_adapter: TypeAdapter[StepInput]
    expected: str
    accepts: Callable[[InputType], bool]
    output_type: Callable[[InputType], InputType]
    required_options: frozenset[str] = frozenset()
    calls_model: bool = False
    has_own_options: bool = False


def _takes_question(kind: InputType) -> bool:
    return kind not in ("items", "chunks")


def _takes_tool_call(kind: InputType) -> bool:
    if not isinstance(kind, Mapping):
        return kind == "value"
    known = kind.keys() == {"name", "arguments"}
    return known and kind["name"] in ("text", "value") and kind["arguments"] not in ("text", "items", "chunks")


def _takes_query(kind: InputType) -> bool:
    if not isinstance(kind, Mapping):
        return kind in ("text", "value")
    known = {"query"} <= kind.keys() <= {"query", "max_chunks", "min_score"}
    return known and kind["query"] in ("text", "value")


def _takes_ranking(kind: InputType) -> bool:
    if not isinstance(kind, Mapping):
        return kind in ("value", "chunks")
    known = {"query", "candidates"} <= kind.keys() <= {"query", "candidates", "top_k", "min_score"}
    return known and kind["query"] in ("text", "value") and kind["candidates"] in ("items", "chunks", "value")


def _answer_type(given: InputType) -> InputType:
    may_bring_schema = given == "value" or (isinstance(given, Mapping) and "schema" in given)
    return "value" if may_bring_schema else "text"


_FORMAT: Final = frozenset({"timeout", "schema", "rules"})
_VOTE: Final = frozenset({"n", "voting", "quorum", "min_confidence"})
_QUESTION: Final = "a string, or an object with messages and, where wanted, schema and tools"


def _input(kind: Any) -> TypeAdapter[Any]:
    """Return the adapter of an input that may be a text or a model; it is built when the first one is read."""
    return TypeAdapter(kind, config=ConfigDict(defer_build=True))


# fmt: off
STEP_SPECS: Mapping[str, StepSpec] = MappingProxyType({
    StepType.INFER: StepSpec(
        options=_FORMAT | {"attempts", "tools"}, input_adapter=_input(str | InferInput), expected=_QUESTION,
        accepts=_takes_question, output_type=_answer_type, calls_model=True),
    StepType.TOOL: StepSpec(
        options=frozenset({"timeout"}), input_adapter=TypeAdapter(ToolInput),
        expected="an object with name and arguments", accepts=_takes_tool_call, output_type=lambda given: "text"),
    StepType.RETRIEVE: StepSpec(
        options=frozenset({"timeout", "max_chunks", "min_score"}), input_adapter=_input(str | RetrieveInput),
        expected="a string, or an object with query and, where wanted, max_chunks and min_score",
        accepts=_takes_query, output_type=lambda given: "chunks"),
    StepType.RERANK: StepSpec(
        options=frozenset({"timeout", "top_k", "min_score"}), input_adapter=TypeAdapter(RerankInput),
        expected="an object with query, candidates and, where wanted, top_k and min_score",
        accepts=_takes_ranking, output_type=lambda given: "items"),
    StepType.VALIDATE: StepSpec(
        options=_FORMAT, input_adapter=TypeAdapter(JsonValue), expected="any value",
        accepts=lambda kind: True, output_type=lambda given: given,
        required_options=frozenset({"schema", "rules"})),
    StepType.REDUNDANT: StepSpec(
        options=_FORMAT | _VOTE | {"tools"}, input_adapter=_input(str | RedundantInput),
        expected=f"{_QUESTION}, n and voting", accepts=_takes_question, output_type=_answer_type,
        required_options=frozenset({"schema"}), calls_model=True),
    StepType.SUBPLAN: StepSpec(
        options=frozenset({"timeout"}), input_adapter=TypeAdapter(str), expected="a string, the task of its plan",
        accepts=_takes_question, output_type=lambda given: "value", calls_model=True),
})
# fmt: on
"""The built-in types of steps."""
_MODULE_SPEC: Final = StepSpec(
    options=frozenset({"timeout"}),
    input_adapter=TypeAdapter(JsonValue),
    expected="what its type describes",
    accepts=lambda kind: True,
    output_type=lambda given: "value",
    has_own_options=True,
)


def spec_of(step_type: str) -> StepSpec:
    """Return the facts about a type; all types of modules have the same."""
    return STEP_SPECS.get(step_type, _MODULE_SPEC)
