"""Conformance of the tools: the four methods of the `Tool` port."""

import re
from typing import Any

import jsonschema_rs
import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.tools.definition import tool
from portico.capabilities.tools.executor import ToolExecutor
from portico.capabilities.tools.registry import ToolRegistry
from portico.domain.contract.messages import TOOL_NAME_PATTERN, ToolCall
from portico.domain.failures import Code
from portico.domain.journal.outcomes import ToolCallSuspended, ToolEnded
from portico.domain.tools import SideEffects
from portico.ports.tool import Tool
from tests.support.entropy import SeededEntropy
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock


@tool(side_effects=SideEffects.EXTERNAL, idempotent=False, requires=("network",), timeout=10)
async def send_note(to: str, text: str = "") -> str:
    """Send a note."""
    return f"sent {text!r} to {to}"


def _gone() -> FakeTool:
    gone = FakeTool("gone")
    gone.unavailable_reason = "its program is not installed"
    return gone


GOOD: dict[str, dict[str, Any]] = {
    "ask_person": {"question": "Really?"},
    "calculate": {"expression": "1 + 1"},
    "current_time": {},
    "roll_dice": {"count": 1, "sides": 6},
    "send_note": {"to": "ann"},
    "gone": {},
}
TOOLS: tuple[Tool, ...] = (*BUILTIN_TOOLS, send_note, _gone())


@pytest.fixture(params=TOOLS, ids=lambda each: each.info().name)
def each(request: pytest.FixtureRequest) -> Tool:
    return request.param


def test_info_and_definition_agree(each: Tool) -> None:
    info, definition = each.info(), each.definition()
    assert (info.name, info.description) == (definition.name, definition.description)
    assert re.fullmatch(TOOL_NAME_PATTERN, info.name)
    assert info.type
    assert info.description.strip()


def test_the_parameters_are_a_json_schema_of_an_object(each: Tool) -> None:
    parameters = each.definition().parameters
    assert parameters["type"] == "object"
    jsonschema_rs.meta.validate(dict(parameters))


def test_every_parameter_of_a_built_in_tool_is_described(each: Tool) -> None:
    if each in BUILTIN_TOOLS:
        parameters = each.definition().parameters
        assert parameters["additionalProperties"] is False
        assert all(schema["description"] for schema in parameters["properties"].values())


def test_info_and_definition_do_not_change(each: Tool) -> None:
    assert (each.info(), each.definition()) == (each.info(), each.definition())


def test_a_timeout_is_a_positive_number(each: Tool) -> None:
    assert each.info().timeout is None or each.info().timeout > 0


def test_only_an_unavailable_tool_gives_a_reason(each: Tool) -> None:
    found = each.available()
    assert found.available == (not found.reason)


async def test_a_valid_call_returns_a_text_or_suspends_if_the_tool_is_available(
    each: Tool, clock: VirtualClock, entropy: SeededEntropy
) -> None:
    executor = ToolExecutor(ToolRegistry(each), clock, entropy, 262_144)
    name = each.info().name
    ended = await executor.attempt(
        ToolCall(id="c", name=name, arguments=GOOD[name]), key="key", attempt=0, seconds_left=60
    )
    if isinstance(ended, ToolCallSuspended):
        assert ended.value
        return
    assert ended.code is (None if each.available().available else Code.TOOL_UNAVAILABLE)
    assert ended.content


async def test_a_call_with_an_unknown_argument_is_refused(
    each: Tool, clock: VirtualClock, entropy: SeededEntropy
) -> None:
    if "additionalProperties" in each.definition().parameters:
        executor = ToolExecutor(ToolRegistry(each), clock, entropy, 262_144)
        name = each.info().name
        call = ToolCall(id="c", name=name, arguments={**GOOD[name], "invented": 1})
        ended = await executor.attempt(call, key="key", attempt=0, seconds_left=60)
        assert isinstance(ended, ToolEnded)
        assert (ended.code, ended.retry) == (Code.TOOL_EXECUTION_FAILED, False)
        assert "invented" in ended.content
