"""Tools made of typed functions."""

from dataclasses import replace
from enum import Enum
from threading import current_thread
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, Field

from portico.adapters.tools.threads import DaemonThreads
from portico.capabilities.tools.definition import ToolArgumentError, tool
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolContext, ToolError
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


@tool(side_effects=SideEffects.WRITE, idempotent=False, requires=("network",), timeout=3)
async def paint(
    colour: Colour,
    coats: Annotated[int, Field(ge=1, le=5, description="How many coats")],
    context: ToolContext,
    finish: Literal["matt", "gloss"] = "matt",
) -> str:
    """Paint a wall
    in one colour.

    What follows is for people.
    """
    return f"{colour!r} {coats} {finish} {context.tool_call_id}"


@tool(side_effects=SideEffects.NONE, idempotent=True)
def halve(value: Annotated[int, AfterValidator(_even)]) -> str:
    """Halve an even number."""
    return str(value // 2)


@pytest.fixture
def context(clock: VirtualClock, entropy: SeededEntropy) -> ToolContext:
    return ToolContext("call_1", 10, clock, entropy, "key")


def test_the_definition_is_read_from_name_docstring_and_annotations() -> None:
    definition = paint.definition()
    assert (definition.name, definition.description) == ("paint", "Paint a wall in one colour.")
    assert definition.parameters == {
        "type": "object",
        "properties": {
            "colour": {"$ref": "#/$defs/Colour"},
            "coats": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many coats"},
            "finish": {"type": "string", "enum": ["matt", "gloss"], "default": "matt"},
        },
        "required": ["colour", "coats"],
        "additionalProperties": False,
        "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"], "title": "Colour"}},
    }


def test_the_decorator_sets_the_tool_info() -> None:
    info = paint.info()
    assert (info.name, info.type, info.description) == ("paint", "python", "Paint a wall in one colour.")
    assert (info.side_effects, info.idempotent, info.unsafe) == (SideEffects.WRITE, False, True)
    assert (info.requires, info.timeout) == (("network",), 3)


async def test_the_function_gets_typed_values_and_the_context(context: ToolContext) -> None:
    result = await paint.execute({"colour": "red", "coats": 2.0}, context)
    assert result == "<Colour.RED: 'red'> 2 matt call_1"


async def test_a_pure_function_need_not_be_async(context: ToolContext) -> None:
    assert await halve.execute({"value": 8}, context) == "4"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"colour": "green", "coats": 1}, "colour"),
        ({"colour": "red"}, "coats"),
        ({"colour": "red", "coats": 1, "brush": 1}, "brush"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(
    arguments: dict[str, object], named: str, context: ToolContext
) -> None:
    with pytest.raises(ToolArgumentError, match=f"^arguments.{named}: "):
        await paint.execute(arguments, context)


async def test_a_check_that_no_schema_can_express_is_an_argument_error_too(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="value: Value error, must be even"):
        await halve.execute({"value": 3}, context)


def test_without_parameters_the_schema_is_an_empty_object() -> None:
    @tool(side_effects=SideEffects.NONE, idempotent=True)
    def ping() -> str:
        """Answer."""
        return "pong"

    assert ping.definition().parameters == {"type": "object", "properties": {}, "additionalProperties": False}


async def test_a_blocking_function_runs_on_a_thread(context: ToolContext) -> None:
    @tool(side_effects=SideEffects.WRITE, idempotent=False)
    def write(text: str) -> str:
        """Write."""
        return f"{text} on {current_thread().name}"

    on_loop = current_thread().name
    assert write.is_blocking
    assert await write.execute({"text": "done"}, context) == f"done on {on_loop}"
    elsewhere = await write.execute({"text": "done"}, replace(context, threads=DaemonThreads(1)))
    assert elsewhere.startswith("done on ")
    assert elsewhere != f"done on {on_loop}"


def _undocumented(text: str) -> str:
    return text


def _unannotated(text) -> str:
    """Echo."""
    return text


def _many(*texts: str) -> str:
    """Echo."""
    return " ".join(texts)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_undocumented, "needs a docstring"),
        (_unannotated, "text must be annotated"),
        (_many, "texts must be annotated and passed by name"),
    ],
)
def test_a_function_without_docstring_or_annotations_is_refused(function, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        tool(side_effects=SideEffects.NONE, idempotent=True)(function)
