"""Tools of MCP servers: names, safety and results."""

import re
from pathlib import Path

import mcp_types as types
import pytest

from portico.adapters.tools.mcp.mcp_tool import MAX_NAME, result_text, safety, tool_name
from portico.domain.tools import SideEffects

PAGE = Path(__file__).parents[4] / "docs" / "tools.md"


@pytest.mark.parametrize(
    ("original", "name"),
    [
        ("get_time", "clock__get_time"),
        ("a" * 57, "clock__" + "a" * 57),
        ("files/read", "clock__files_read_14ff55d5"),
        ("files.read", "clock__files_read_57c17671"),
    ],
)
def test_a_name_begins_with_its_server_and_has_only_what_models_take(original: str, name: str) -> None:
    assert tool_name("clock", original) == name


def test_long_names_are_cut_and_stay_different() -> None:
    names = {tool_name("clock", "x" * 100 + end) for end in "abc"}
    assert len(names) == 3
    assert {len(name) for name in names} == {MAX_NAME}


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ({}, (SideEffects.EXTERNAL, False)),
        ({"read_only_hint": True}, (SideEffects.READ, True)),
        ({"read_only_hint": False, "open_world_hint": False}, (SideEffects.WRITE, False)),
        ({"open_world_hint": False, "idempotent_hint": True}, (SideEffects.WRITE, True)),
        ({"open_world_hint": True, "idempotent_hint": True}, (SideEffects.EXTERNAL, True)),
    ],
)
def test_hints_of_a_trusted_server_decide_the_safety(
    hints: dict[str, bool], expected: tuple[SideEffects, bool]
) -> None:
    assert safety(types.ToolAnnotations(**hints)) == expected
    assert safety(None) == (SideEffects.EXTERNAL, False)


def test_the_page_says_which_calls_of_a_trusted_server_are_repeated() -> None:
    rows = re.findall(r"^\| (.+) \| `(\w+)` \| is (repeated once|not repeated) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 5
    for hints, side_effects, repeated in rows:
        given = {name: text == "true" for name, text in re.findall(r"`(\w+Hint): (true|false)`", hints)}
        expected = SideEffects(side_effects), repeated == "repeated once"
        assert safety(types.ToolAnnotations.model_validate(given)) == expected


def test_content_that_is_no_text_is_named() -> None:
    content: list[types.ContentBlock] = [
        types.TextContent(text="one\x1b[31m"),
        types.ImageContent(data="QUJD", mime_type="image/png"),
        types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="two")),
        types.ResourceLink(uri="file:///b", name="b"),
    ]
    expected = "one\n[image image/png, 4 characters of base64]\ntwo\n[resource file:///b]"
    assert result_text(types.CallToolResult(content=content)) == expected
    structured = types.CallToolResult(content=[], structured_content={"a": 1})
    assert result_text(structured) == '{"a":1}'
