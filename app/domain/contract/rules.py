"""Rules that an answer must keep beyond its form, as data: what `output.rules` holds inline or by name."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

from app.domain import json_path


def _path(text: str) -> str:
    json_path.parse(text)
    return text


RulePath = Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(_path)]
"""A place in the structured output, such as `$.items[*].price`."""
MAX_RULES: Final = 64
"""Rules of one contract."""
RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Operator = Literal["eq", "ne", "lt", "le", "gt", "ge"]


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    path: RulePath | None = Field(None, description="Place in the structured output; absent: the answer's text.")
    severity: Literal["error", "warning"] = Field("error", description="What it means when the rule is broken.")


class NotEmpty(_Rule):
    """There is something else than blanks, an empty list, an empty object or null."""

    type: Literal["not_empty"] = Field(description="Says which kind of rule this is.")


class Length(_Rule):
    """A text has so many characters, a list so many elements, an object so many members."""

    type: Literal["length"] = Field(description="Says which kind of rule this is.")
    min: int | None = Field(None, ge=0, description="Fewest.")
    max: int | None = Field(None, ge=0, description="Most.")

    @model_validator(mode="after")
    def _bounds_are_some(self) -> "Length":
        if self.min is None and self.max is None:
            raise ValueError("must have min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min must not be above max")
        return self


class Regex(_Rule):
    """A text holds a match of a pattern, which is searched for in linear time: no look-around, no back references."""

    type: Literal["regex"] = Field(description="Says which kind of rule this is.")
    pattern: str = Field(min_length=1, max_length=4096, description="The pattern; ^ and $ tie it to the ends.")


class Compare(_Rule):
    """A value compares with another; numbers with numbers and texts with texts, anything only for equality."""

    type: Literal["compare"] = Field(description="Says which kind of rule this is.")
    path: RulePath = Field(description="Place in the structured output.")
    operator: Operator = Field(description="How the value at `path` compares with the other.")
    value: JsonValue = Field(None, description="What it is compared with.")
    other: RulePath | None = Field(None, description="Place of what it is compared with, instead of `value`.")


class OneOf(_Rule):
    """A value is one of some; a text is taken without the blanks around it."""

    type: Literal["one_of"] = Field(description="Says which kind of rule this is.")
    values: list[JsonValue] = Field(min_length=1, max_length=1000, description="The values allowed.")


class Custom(_Rule):
    """A rule written in Python and registered under a name."""

    type: Literal["custom"] = Field(description="Says which kind of rule this is.")
    name: RuleName = Field(description="The registered name.")
    options: dict[str, JsonValue] = Field(default_factory=dict, description="What the rule is told.")


Rule = Annotated[NotEmpty | Length | Regex | Compare | OneOf | Custom, Field(discriminator="type")]
