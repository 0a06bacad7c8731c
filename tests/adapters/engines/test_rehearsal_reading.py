"""Which tool a text means, and with which arguments."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.engines.rehearsal.schema_values import match_forced_tool
from app.adapters.engines.rehearsal.text_arguments import MOST_CHARACTERS, match_tool
from app.adapters.tools.builtin import BUILTIN_TOOLS
from tests.support.engine_calls import definition

BUILTIN = [each.definition() for each in BUILTIN_TOOLS]
Properties = dict[str, Any]


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("roll 2 dice with 6 sides", "roll_dice", {"count": 2, "sides": 6}),
        ("Rolling 2d6!", "roll_dice", {"count": 2, "sides": 6}),
        ("dice: 6 sides, 2 of them", "roll_dice", {"count": 2, "sides": 6}),
        ("roll 4 six-shooters, 10-sided dice", "roll_dice", {"count": 4, "sides": 10}),
        ("roll dice, count 3, sides 8", "roll_dice", {"count": 3, "sides": 8}),
        ("roll dice count=3 sides=8", "roll_dice", {"count": 3, "sides": 8}),
        ("roll 1000 dice with 6 sides", "roll_dice", {"count": 1000, "sides": 6}),
        ("What is 12 * (3 + 4)?", "calculate", {"expression": "12 * (3 + 4)"}),
        ("calculate 0.1+0.2.", "calculate", {"expression": "0.1+0.2"}),
        ("10 - 3 is what?", "calculate", {"expression": "10 - 3"}),
        ("calculate 7-5", "calculate", {"expression": "7-5"}),
        ("calculate 1+1 or 2 ** 10 ** 2", "calculate", {"expression": "2 ** 10 ** 2"}),
        ("What is the current time?", "current_time", {}),
        ("What time is it now?", "current_time", {}),
        ("The current time in Europe/Berlin.", "current_time", {"timezone": "Europe/Berlin"}),
        (
            "current time, America/Argentina/Buenos_Aires",
            "current_time",
            {"timezone": "America/Argentina/Buenos_Aires"},
        ),
        ("current time; timezone: Asia/Tokyo", "current_time", {"timezone": "Asia/Tokyo"}),
    ],
)
def test_the_built_in_tools_are_found(text: str, name: str, arguments: Properties) -> None:
    found = match_tool(BUILTIN, text)
    assert found is not None
    assert (found.tool.name, found.arguments) == (name, arguments)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        "roll the dice",
        "roll a 20-sided die",
        "I have 3 cats and 2 dogs",
        "I had a great time",
        "Call 555-1234 on 2024-05-01",
        "roll 99999999999999999999999999 dice with 6 sides",
    ],
)
def test_nothing_is_meant_where_words_or_values_are_missing(text: str) -> None:
    assert match_tool(BUILTIN, text) is None


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "probe 7", 7),
        ({"type": "integer"}, "probe -7", -7),
        ({"type": "integer"}, "probe 7.5 then 8", 8),
        ({"type": "number"}, "probe 7.5", 7.5),
        ({"type": "string"}, 'probe "seven"', "seven"),
        ({"type": "string"}, "probe 'seven', don't ask", "seven"),
        ({"type": "string"}, "probe “seven”", "seven"),
        ({"type": "string"}, "probe with value: seven", "seven"),
        ({"type": "string"}, 'probe with value = "seven eight"', "seven eight"),
        ({"type": "string", "enum": ["low", "high"]}, "probe HIGH", "high"),
        ({"enum": [1, 2]}, "probe 2", 2),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "probe 7", 7),
        ({"type": ["null", "integer"]}, "probe 7", 7),
        ({"type": "boolean"}, "probe value: true.", True),
        ({"type": "array", "items": {"type": "integer"}}, "probe 1, 2 and 3", [1, 2, 3]),
        ({"type": "array", "items": {"type": "string"}}, "probe `a` and `b`", ["a", "b"]),
    ],
)
def test_values_are_found_by_their_type(schema: Properties, text: str, value: object) -> None:
    found = match_tool([definition("probe", "Looks.", {"value": schema}, ["value"])], text)
    assert found is not None
    assert found.arguments == {"value": value}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "probe"),
        ({"type": "integer"}, "probe 7.5"),
        ({"type": "string"}, "probe seven"),
        ({"type": "string", "enum": ["low", "high"]}, "probe highest"),
        ({"type": "string", "enum": ["low", "high"]}, 'probe "other"'),
        ({"type": "boolean"}, "probe it"),
        ({"type": "object"}, "probe {}"),
        ({"type": "array", "items": {"type": "integer"}}, "probe"),
        ({"$ref": "#/$defs/Gone"}, "probe 7"),
        ({"$ref": "#/properties/value"}, "probe 7"),
        (True, "probe 7"),
    ],
)
def test_what_is_not_there_is_not_found(schema: Any, text: str) -> None:
    assert match_tool([definition("probe", "Looks.", {"value": schema}, ["value"])], text) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "number"}, 1),
        ({"type": "string"}, "go"),
        ({"type": "string", "default": "x"}, "x"),
        ({"enum": ["low", "high"]}, "low"),
        ({"type": "boolean"}, False),
        ({"type": "array"}, []),
        ({"type": "object"}, {}),
        ({}, "go"),
    ],
)
def test_what_must_be_there_is_made_up_by_its_type(schema: Properties, value: object) -> None:
    found = match_forced_tool([definition("probe", "Looks.", {"value": schema}, ["value"])], "go")
    assert found is not None
    assert found.arguments == {"value": value}


def test_what_is_optional_is_taken_only_when_it_stands_out() -> None:
    probe = definition("probe", "Looks.", {"depth": {"type": "integer"}, "width": {"type": "integer"}}, ["depth"])
    found = match_tool([probe], "probe 7 and 8")
    assert found is not None
    assert found.arguments == {"depth": 7}
    found = match_tool([probe], "probe 7, width 8")
    assert found is not None
    assert found.arguments == {"depth": 7, "width": 8}


def test_a_tool_that_requires_nothing_needs_its_name_in_the_text() -> None:
    tools = [definition("list_files", "Lists all files of the folder.", {})]
    assert match_tool(tools, "list the files") is not None
    assert match_tool(tools, "files of the folder") is not None
    assert match_tool(tools, "all of the folder") is None
    assert match_tool(tools, "files") is None


def test_the_best_fit_wins_and_the_first_among_equals() -> None:
    one = definition("find_note", "Finds a note.", {"text": {"type": "string"}}, ["text"])
    two = definition("find_mail", "Finds a mail.", {"text": {"type": "string"}}, ["text"])
    for text, name in [('find mail "x"', "find_mail"), ('find note "x"', "find_note"), ('find "x"', "find_note")]:
        found = match_tool([one, two], text)
        assert found is not None
        assert found.tool.name == name


def test_without_tools_nothing_can_be_forced() -> None:
    assert match_forced_tool([], "go") is None


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    found = match_tool(BUILTIN, text)
    assert found is None or set(found.tool.parameters.get("required", ())) <= found.arguments.keys()
    assert match_forced_tool(BUILTIN, text) is not None


@pytest.mark.parametrize("piece", ["(", "“", "'a ", "1", "1 ", "A/", "`a", 'value="', "[[", "- "])
def test_only_the_beginning_of_a_text_is_read(piece: str) -> None:
    text = piece * MOST_CHARACTERS
    assert match_tool(BUILTIN, f"{text} roll 2d6") is None
