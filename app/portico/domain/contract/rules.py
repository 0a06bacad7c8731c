"""Rules for answers beyond their format, as data: `output.rules` holds them inline or by name."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from portico.domain import json_path


def _path(text: str) -> str:
    json_path.parse(text)
    return text


RulePath = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_path)]
"""Path in the structured output, such as `$.items[*].price`."""
MAX_RULES: Final = 64
"""Maximum number of rules in one contract."""
RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Operator = Literal["eq", "ne", "lt", "le", "gt", "ge"]


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    path: RulePath | None = Field(None, description="Path in the structured output; absent: the answer's text.")
    severity: Literal["error", "warning"] = Field("error", description="Severity of a violation.")


class NotEmpty(_Rule):
    """Rule: the value is not blank, not an empty list or object, and not null."""

    type: Literal["not_empty"] = Field(description="Type of the rule.")


class Length(_Rule):
    """Rule: a text has that many characters, a list that many elements, an object that many members."""

    type: Literal["length"] = Field(description="Type of the rule.")
    min: int | None = Field(None, ge=0, description="Minimum.")
    max: int | None = Field(None, ge=0, description="Maximum.")

    @model_validator(mode="after")
    def _bounds_are_some(self) -> "Length":
        if self.min is None and self.max is None:
            raise ValueError("must have min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min must not be above max")
        return self


class Regex(_Rule):
    """Rule: a text contains a match of a pattern, or with `negate` none.

    It is searched for in linear time: no look-around, no back references.
    """

    type: Literal["regex"] = Field(description="Type of the rule.")
    pattern: str = Field(min_length=1, max_length=4096, description="Pattern; ^ and $ anchor it to the ends.")
    # Rules without it are stored, compared and measured as before there was one.
    negate: bool = Field(False, description="True if the text must not match.", exclude_if=lambda negate: not negate)


class Compare(_Rule):
    """Rule: a value compares with another one: numbers with numbers, texts with texts, other values only for
    equality.
    """

    type: Literal["compare"] = Field(description="Type of the rule.")
    path: RulePath = Field(description="Path in the structured output.")
    operator: Operator = Field(description="Comparison of the value at `path` with the other one.")
    value: JsonValue = Field(None, description="Value to compare with.")
    other: RulePath | None = Field(None, description="Path of the value to compare with, instead of `value`.")


class OneOf(_Rule):
    """Rule: a value is one of a list; whitespace around a text is ignored."""

    type: Literal["one_of"] = Field(description="Type of the rule.")
    values: list[JsonValue] = Field(min_length=1, max_length=1000, description="Allowed values.")


class Custom(_Rule):
    """Rule written in Python and registered under a name."""

    type: Literal["custom"] = Field(description="Type of the rule.")
    name: RuleName = Field(description="Registered name of the rule.")
    options: dict[str, JsonValue] = Field(default_factory=dict, description="Options of the rule.")


Rule = Annotated[NotEmpty | Length | Regex | Compare | OneOf | Custom, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class AnswerContent:
    """The content of an answer: its text, and its value if it has one."""

    text: str
    value: Any = None
