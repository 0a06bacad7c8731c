"""Errors of fields in plain words."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_core._pydantic_core import list_all_errors

from portico.domain.contract.request import SystemRequest
from portico.domain.field_errors import invalid_fields, path_within

SCHEMA = SystemRequest.model_json_schema()
HELLO = {"role": "user", "content": "x"}


def errors_of(request: dict[str, Any]) -> list[str]:
    """Return the errors of a request."""
    with pytest.raises(ValidationError) as caught:
        SystemRequest.model_validate(request, strict=True)
    return [str(each) for each in invalid_fields(caught.value.errors(), path_of=path_within(request), schema=SCHEMA)]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"mesages": [HELLO]}, ['mesages: is not a known field; did you mean "messages"?']),
        ({"messages": [HELLO], "zork": 1}, ["zork: is not a known field"]),
        (
            {"messages": [HELLO], "hints": {"temprature": 1}},
            ['hints.temprature: is not a known field; did you mean "temperature"?'],
        ),
        (
            {"messages": [HELLO], "plan": {"policy": {"max_stps": 1}}},
            ['plan.policy.max_stps: is not a known field; did you mean "max_steps"?'],
        ),
        (
            {"messages": [HELLO], "output": {"shema": {}}},
            ['output.shema: is not a known field; did you mean "schema"?'],
        ),
        ({"messages": [HELLO | {"rolle": "x"}]}, ['messages.0.rolle: is not a known field; did you mean "role"?']),
        ({"messages": "Hello"}, ["messages: must be a list"]),
        ({"messages": [HELLO], "hints": {"stop": []}}, ["hints.stop: must have at least 1 item"]),
        ({"messages": [{"role": "usr", "content": "x"}]}, [
            "messages.0.role: must be 'system', 'user', 'assistant' or 'tool'"
        ]),
        ({"messages": [HELLO], "hints": {"temperature": 3}}, ["hints.temperature: must be at most 2"]),
        ({"messages": [HELLO], "hints": {"max_tokens": 1.5}}, ["hints.max_tokens: must be a whole number"]),
        ({"messages": [HELLO], "background": "yes"}, ["background: must be true or false"]),
        ({"messages": [HELLO], "request_id": "a b"}, ["request_id: must match the pattern ^[A-Za-z0-9._:-]{1,128}$"]),
        ({"messages": [HELLO], "trace_id": "0" * 32}, ["trace_id: must not be all zeros"]),
        ({"messages": [HELLO], "metadata": {"a": 1}}, ["metadata.a: must be a string"]),
    ],
)  # fmt: skip
def test_an_error_names_the_field_and_the_expectation(request_: dict[str, Any], expected: list[str]) -> None:
    assert errors_of(request_) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (5, "content: must be a string or a list"),
        ([{"type": "text"}], "content.0.text: is required"),
        ([{"type": "text", "text": 5}], "content.0.text: must be a string"),
        ([{"type": "sound"}], "content.0: must have a 'type' of 'text', 'image', 'document', 'audio'"),
        ([{"txt": "x"}], "content.0: must have the field 'type'"),
    ],
)
def test_a_union_has_the_error_of_the_branch_that_was_meant(content: object, expected: str) -> None:
    assert errors_of({"messages": [{"role": "user", "content": content}]}) == [f"messages.0.{expected}"]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ({"tool_choice": "some"}, "tool_choice: must be 'auto', 'none' or 'required', or an object"),
        ({"tool_choice": {"nme": "x"}}, "tool_choice.name: is required; tool_choice.nme: is not a known field; did"),
        ({"stop": ""}, "stop: must have at least 1 character"),
        ({"stop": [5]}, "stop.0: must be a string"),
    ],
)
def test_a_choice_of_types_is_one_error(hint: dict[str, Any], expected: str) -> None:
    found = errors_of({"messages": [HELLO], "hints": hint})
    assert "; ".join(found).replace("hints.", "").startswith(expected)


class Dependent(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first: int
    second: int = Field(default_factory=lambda known: known["first"])


def test_a_default_that_needs_an_invalid_field_is_no_error_of_its_own() -> None:
    with pytest.raises(ValidationError) as caught:
        Dependent.model_validate({"frist": 1})
    assert [".".join(each.path) for each in invalid_fields(caught.value.errors())] == ["first", "frist"]


def test_no_sentence_of_pydantic_is_left() -> None:
    for known in list_all_errors():
        details = ErrorDetails(
            type=known["type"], loc=("field",), msg=known["example_message_python"], input=None,
            ctx=known["example_context"] or {},
        )  # fmt: skip
        for field in invalid_fields([details]):
            assert field.message != details["msg"]
            own_text = known["type"] in {"value_error", "assertion_error"}
            assert own_text or field.message.split()[0] in {"is", "must"}, field


def test_an_error_of_a_validator_is_its_own_text() -> None:
    class Checked(BaseModel):
        value: Annotated[int, Field()]

        @field_validator("value")
        @classmethod
        def _refuse(cls, value: int) -> int:
            raise ValueError("must be even")

    with pytest.raises(ValidationError) as caught:
        Checked(value=1)
    assert [str(each) for each in invalid_fields(caught.value.errors())] == ["value: must be even"]


def test_an_error_of_the_whole_value_has_no_path() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Literal["a"]).validate_python("b")
    assert [str(each) for each in invalid_fields(caught.value.errors())] == ["must be 'a'"]
