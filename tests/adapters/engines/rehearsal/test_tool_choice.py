"""The tool that a text means, and its arguments."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.engines.rehearsal.text_values import MAX_CHARACTERS
from portico.adapters.engines.rehearsal.tool_choice import match_forced_tool, match_tool
from portico.adapters.tools.builtin import BUILTIN_TOOLS
from tests.support.engine_calls import definition

BUILTIN = [each.definition() for each in BUILTIN_TOOLS]


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("roll 2 dice with 6 sides", "roll_dice", {"count": 2, "sides": 6}),
        ("Rolling 2d6!", "roll_dice", {"count": 2, "sides": 6}),
        ("dice: 6 sides, 2 of them", "roll_dice", {"count": 2, "sides": 6}),
        ("roll dice, count: 3, sides=8", "roll_dice", {"count": 3, "sides": 8}),
        ("What is 12 * (3 + 4)?", "calculate", {"expression": "12 * (3 + 4)"}),
        ("calculate 0.1+0.2.", "calculate", {"expression": "0.1+0.2"}),
        ("10 - 3 is what?", "calculate", {"expression": "10 - 3"}),
        ("What time is it now?", "current_time", {}),
        ("The current time in Europe/Berlin.", "current_time", {"timezone": "Europe/Berlin"}),
        ("current time; timezone: Asia/Tokyo", "current_time", {"timezone": "Asia/Tokyo"}),
    ],
)
def test_the_built_in_tools_are_found(text: str, name: str, arguments: dict[str, Any]):
    match = match_tool(BUILTIN, text)
    assert match is not None
    assert (match.tool.name, match.arguments) == (name, arguments)


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
def test_no_tool_is_meant_where_words_or_values_are_missing(text: str):
    assert match_tool(BUILTIN, text) is None


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "probe -7", -7),
        ({"type": "string"}, "probe 'seven', don't ask", "seven"),
        ({"type": "string"}, 'probe with value = "seven eight"', "seven eight"),
        ({"type": "string", "enum": ["low", "high"]}, "probe HIGH", "high"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "probe 7", 7),
        ({"type": "boolean"}, "probe value: true.", True),
        ({"type": "array", "items": {"type": "integer"}}, "probe 1, 2 and 3", [1, 2, 3]),
        ({"type": "integer"}, "probe", None),
        ({"type": "integer"}, "probe 7.5", None),
        ({"type": "string"}, "probe seven", None),
        ({"enum": ["low", "high"]}, "probe highest", None),
        ({"$ref": "#/properties/value"}, "probe 7", None),
        (True, "probe 7", None),
    ],
)
def test_a_required_value_is_found_by_its_type_or_the_tool_is_not_meant(schema: Any, text: str, value: Any):
    match = match_tool([definition("probe", "Looks.", {"value": schema}, ["value"])], text)
    assert (match and match.arguments["value"]) == value


def test_a_forced_tool_gets_invented_values_for_what_the_text_lacks():
    probe = definition("probe", "Looks.", {"a": {"type": "integer"}, "b": {"type": "string"}}, ["a", "b"])
    match = match_forced_tool([probe], "a: 7")
    assert match is not None
    assert match.arguments == {"a": 7, "b": "rehearsal"}
    assert match_forced_tool([], "go") is None


def test_an_optional_value_is_taken_only_beside_its_name():
    probe = definition("probe", "Looks.", {"depth": {"type": "integer"}, "width": {"type": "integer"}}, ["depth"])
    for text, arguments in (("probe 7 and 8", {"depth": 7}), ("probe 7, width: 8", {"depth": 7, "width": 8})):
        match = match_tool([probe], text)
        assert match is not None
        assert match.arguments == arguments


def test_a_tool_that_requires_nothing_needs_its_name_in_the_text():
    tools = [definition("list_files", "Lists all files of the folder.", {})]
    assert match_tool(tools, "list the files") is not None
    assert match_tool(tools, "files of the folder") is not None
    assert match_tool(tools, "all of the folder") is None
    assert match_tool(tools, "files") is None


def test_the_best_match_wins_and_the_first_among_equals():
    note = definition("find_note", "Finds a note.", {"text": {"type": "string"}}, ["text"])
    mail = definition("find_mail", "Finds a mail.", {"text": {"type": "string"}}, ["text"])
    for text, name in [('find mail "x"', "find_mail"), ('find note "x"', "find_note"), ('find "x"', "find_note")]:
        match = match_tool([note, mail], text)
        assert match is not None
        assert match.tool.name == name


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str):
    match = match_tool(BUILTIN, text)
    assert match is None or set(match.tool.parameters.get("required", ())) <= match.arguments.keys()
    assert match_forced_tool(BUILTIN, text) is not None


@pytest.mark.parametrize("piece", ["(", "“", "'a ", "1", "1 ", "A/", "`a", 'value="', "[[", "- "])
def test_only_the_beginning_of_a_text_is_read(piece: str):
    assert match_tool(BUILTIN, f"{piece * MAX_CHARACTERS} roll 2d6") is None
