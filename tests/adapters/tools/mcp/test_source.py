"""Connections to MCP servers: programs that answer, change, hang and die."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.adapters.tools.mcp.server_config import McpServerConfig
from portico.adapters.tools.mcp.source import McpSource
from portico.adapters.tools.sandbox.box import Box
from portico.adapters.tools.sandbox.levels import IsolatedProgram
from portico.adapters.tools.sandbox.process_table import MARK, processes_of
from portico.domain.ids import IdempotencyKey, ToolCallId
from portico.domain.tools import IsolationLevel, ServerFault, SideEffects, ToolServerStatus
from portico.ports.tool import (
    Tool,
    ToolContext,
    ToolContinuation,
    ToolError,
    ToolOutcomeUnknown,
    ToolSuspended,
)
from tests.support import mcp_server
from tests.support.entropy import SeededEntropy
from tests.support.sandbox import opened_sandbox, require_level
from tests.support.upstream import ScriptedUpstream, reply
from tests.support.virtual_time import VirtualClock

SERVER = str(mcp_server.__file__)


class Log:
    """Log of MCP servers in memory."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures: list[str] = []

    def log_server_line(self, server: str, line: str) -> None:
        self.lines.append(line)

    def log_server_failure(self, server: str, reason: str) -> None:
        self.failures.append(reason)


def config(behaviour: str, **changes: Any) -> McpServerConfig:
    found = McpServerConfig(
        name="shop",
        command=(f"./{Path(sys.executable).name}", "-I", "-S", SERVER, behaviour),
        base=Path(sys.executable).parent,
        url=None,
        environment={"PATH": "/bin", "TOKEN": "hunter2"},
        isolated=IsolatedProgram(opened_sandbox(), Box(readable=(Path(SERVER),)), 1 << 20),
        headers=dict,
        secrets=("hunter2",),
        trusted=False,
        allow=None,
        timeout=5,
    )
    return replace(found, **changes)


def at(level: IsolationLevel) -> IsolatedProgram:
    require_level(opened_sandbox(), level)
    return IsolatedProgram(opened_sandbox(), Box(readable=(Path(SERVER),)), 1 << 20, level)


@asynccontextmanager
async def connected(behaviour: str = "older", **changes: Any) -> AsyncIterator[tuple[McpSource, Log]]:
    log = Log()
    source = McpSource([config(behaviour, **changes)], log)
    async with anyio.create_task_group() as group:
        group.start_soon(source.run)
        for _ in range(6):  # a loaded machine takes longer to start a program than a service waits
            await source.wait_for_servers()
        yield source, log
        group.cancel_scope.cancel()


def tool(source: McpSource, name: str) -> Tool:
    [found] = [each for each in source.tools if each.info().name == name]
    return found


async def call(source: McpSource, name: str, **arguments: Any) -> str:
    context = ToolContext(ToolCallId("call_1"), 5, VirtualClock(), SeededEntropy(1), IdempotencyKey("key"))
    return await tool(source, name).execute(arguments, context)


@pytest.mark.parametrize("behaviour", ["older", "modern"])
async def test_a_server_says_how_far_a_call_is(behaviour: str) -> None:
    reports: list[tuple[float, str]] = []
    context = ToolContext(
        ToolCallId("call_1"),
        5,
        VirtualClock(),
        SeededEntropy(1),
        IdempotencyKey("key"),
        on_progress=lambda progress, message: reports.append((progress, message)),
    )
    async with connected(behaviour) as (source, _):
        assert await tool(source, "shop__work").execute({}, context) == "work"
    assert reports == [(0.75, "page 3 of 4")]


@pytest.mark.parametrize("behaviour", ["older", "modern"])
async def test_tools_of_a_server_are_listed_and_called(behaviour: str) -> None:
    async with connected(behaviour) as (source, _):
        assert await call(source, "shop__echo", text="hi") == "hi"
        with pytest.raises(ToolError, match=r"^there is no such order$"):
            await call(source, "shop__refuse")
        assert source.tools is source.tools


async def test_hints_of_a_server_that_is_not_trusted_mean_nothing() -> None:
    async with connected() as (source, _):
        info = tool(source, "shop__echo").info()
        assert (info.side_effects, info.idempotent, info.original_name) == (SideEffects.EXTERNAL, False, "echo")
    async with connected(trusted=True) as (source, _):
        assert tool(source, "shop__echo").info().side_effects is SideEffects.READ


async def test_names_and_descriptions_are_made_harmless() -> None:
    async with connected() as (source, _):
        [poisoned] = [each for each in source.tools if each.info().original_name == "bad.name/é"]
        assert poisoned.info().name.startswith("shop__bad_name__")
        assert poisoned.definition().description == "Poisoned text."


@pytest.mark.parametrize("level", IsolationLevel)
async def test_a_child_has_a_clean_environment_and_an_empty_home_that_is_removed(level: IsolationLevel) -> None:
    async with connected(isolated=at(level)) as (source, log):
        seen = json.loads(await call(source, "shop__environment"))
        assert (seen["home"], seen["PATH"], seen["TOKEN"]) == ([], "/bin", "hunter2")
        assert seen.keys() - {"PWD"} <= {"HOME", "TMPDIR", "PATH", "TOKEN", "LC_CTYPE", "home", "PID", MARK}
        is_on_disk = level is not IsolationLevel.BUBBLEWRAP
        assert await anyio.Path(seen["HOME"]).is_dir() == is_on_disk
    assert not await anyio.Path(seen["HOME"]).exists()
    assert log.lines == ["starting with [secret]"]


async def test_only_allowed_tools_are_taken_and_at_most_128() -> None:
    async with connected(allow=frozenset({"echo"})) as (source, _):
        assert [each.info().name for each in source.tools] == ["shop__echo"]
    async with connected("many") as (source, log):
        assert len(source.tools) == 128
        assert log.failures == ["it lists more than 128 tools"]


async def test_a_list_that_changes_is_seen_and_unchanged_tools_stay_the_same() -> None:
    async with connected() as (source, _):
        echo, before = tool(source, "shop__echo"), source.tools
        await call(source, "shop__grow")
        with anyio.fail_after(5):
            while source.tools is before:
                await VirtualClock().sleep(0.1)
        assert await call(source, "shop__late") == "late"
        assert tool(source, "shop__echo") is echo


@pytest.mark.parametrize("behaviour", ["older", "modern"])
async def test_a_call_in_flight_when_the_server_dies_has_an_unknown_outcome(behaviour: str) -> None:
    async with connected(behaviour) as (source, _):
        with pytest.raises(ToolOutcomeUnknown, match=r"^the connection to the MCP server was lost$"):
            await call(source, "shop__die")
        status = tool(source, "shop__echo").available()
        assert (status.available, status.reason) == (False, "the connection to its MCP server was lost")
        with pytest.raises(ToolError, match=r"^the connection to its MCP server was lost$") as refused:
            await call(source, "shop__echo", text="x")
        assert not isinstance(refused.value, ToolOutcomeUnknown)
        with anyio.fail_after(10):
            while not tool(source, "shop__echo").available().available:
                await VirtualClock().sleep(0.1)
        assert await call(source, "shop__echo", text="again") == "again"


async def test_a_message_that_is_too_large_ends_the_connection() -> None:
    async with connected() as (source, _):
        with pytest.raises(ToolOutcomeUnknown, match=r"^the connection to the MCP server was lost$"):
            await call(source, "shop__flood")
        with anyio.fail_after(10):
            while not tool(source, "shop__echo").available().available:
                await VirtualClock().sleep(0.1)
        assert await call(source, "shop__echo", text="again") == "again"


async def test_a_call_that_never_returns_can_be_given_up_and_others_go_on() -> None:
    async with connected() as (source, _):
        with anyio.move_on_after(0.2) as limit:
            await call(source, "shop__hang")
        assert limit.cancelled_caught
        assert await call(source, "shop__echo", text="next") == "next"


async def test_a_question_that_holds_the_connection_is_declined() -> None:
    async with connected() as (source, _):
        assert json.loads(await call(source, "shop__ask")) == {"action": "decline"}


async def test_questions_of_a_server_are_asked_one_after_the_other_and_their_answers_go_back() -> None:
    async with connected("modern") as (source, _):
        asked: list[Any] = []
        continuation = None
        for answer in ("large", {"value": "red"}):
            with pytest.raises(ToolSuspended) as suspended:
                await go_on(source, continuation)
            assert suspended.value.state is not None
            asked.append(suspended.value.value)
            continuation = ToolContinuation(suspended.value.state, answer)
        text = await go_on(source, continuation)
    schema = {"type": "object", "properties": {"value": {"type": "string"}}}
    questions = ("Which size?", "Which colour?")
    assert asked == [{"server": "shop", "question": each, "schema": schema} for each in questions]
    state, _, last = text.removeprefix("state-2:").partition("} {")
    assert json.loads(state + "}") == {"first": {"action": "accept", "content": {"value": "large"}}}
    assert json.loads("{" + last) == {"second": {"action": "accept", "content": {"value": "red"}}}


async def go_on(source: McpSource, continuation: ToolContinuation | None) -> str:
    clock = VirtualClock()
    context = ToolContext(
        ToolCallId("call_1"), 5, clock, SeededEntropy(1), IdempotencyKey("key"), continuation=continuation
    )
    return await tool(source, "shop__ask").execute({}, context)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/program",), "its MCP server cannot be used: No such file or directory"),
        (("/bin/false",), "its MCP server cannot be used: Connection closed"),
    ],
)
async def test_a_server_that_does_not_start_has_no_tools_and_is_logged(command: tuple[str, ...], reason: str) -> None:
    async with connected(command=command) as (source, log):
        assert (source.tools, log.failures) == ([], [reason])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"command": ("/no/such/program",)}, ServerFault.NOT_STARTED),
        ({"command": ("/bin/false",)}, ServerFault.NO_ANSWER),
        ({"command": ("/bin/cat",)}, ServerFault.WRONG_PROTOCOL),
    ],
)
async def test_the_fault_of_a_server_has_fixed_words_and_a_detail_for_operators(
    changes: dict[str, Any], fault: ServerFault
) -> None:
    async with connected(**changes) as (source, _):
        [status] = source.servers
    assert (status.name, status.tools, status.fault) == ("shop", 0, fault)
    assert status.detail.startswith(f"{fault}: ")
    assert status.detail.endswith(f"({changes['command'][0]})")


@pytest.mark.parametrize(
    ("status", "fault"),
    [(401, ServerFault.REFUSED), (404, ServerFault.WRONG_PROTOCOL), (200, ServerFault.WRONG_PROTOCOL)],
)
async def test_a_page_that_is_no_mcp_server_differs_from_one_that_refuses(status: int, fault: ServerFault) -> None:
    page = reply(b"<html>", status=status, content_type="text/html")
    async with ScriptedUpstream(page, page) as upstream, connected(command=(), url=upstream.url) as (source, _):
        assert [server.fault for server in source.servers] == [fault]


async def test_a_server_that_answers_has_no_fault() -> None:
    async with connected(allow=frozenset({"echo", "write"})) as (source, _):
        assert source.servers == [ToolServerStatus("shop", 2)]


@pytest.mark.parametrize("level", IsolationLevel)
@pytest.mark.parametrize("behaviour", ["older", "stubborn"])
async def test_no_process_is_left(behaviour: str, level: IsolationLevel) -> None:
    async with connected(behaviour, isolated=at(level)) as (source, _):
        mark = json.loads(await call(source, "shop__environment"))[MARK]
        assert processes_of(mark, 0)
    assert processes_of(mark, 0) == []
