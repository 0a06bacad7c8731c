"""Programs and HTTP APIs of the configuration, called over HTTP by the steps of a plan."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

from portico.domain.access.principal import Permissions
from tests.support.http_server import HttpAnswer, RunningServer, running_server
from tests.support.portico import chat, portico, resume
from tests.support.sandbox import opened_sandbox
from tests.support.upstream import ScriptedUpstream, reply

pytestmark = pytest.mark.usefixtures("real_time")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def grep(directory: Path) -> dict[str, Any]:
    return {
        "description": "Search files for a text.",
        "command": ["grep", "-r", "--regexp={text}", "--", "."],
        "parameters": TEXT,
        "side_effects": "read",
        "idempotent": True,
        "ok_exit_codes": [0, 1],
        "working_dir": str(directory),
    }


def step_of(tool: str, **arguments: Any) -> dict[str, Any]:
    step = {"name": "a", "type": "tool", "input": {"name": tool, "arguments": arguments}}
    return {"mode": "plan", "plan": {"steps": [step]}}


async def call(served: RunningServer, tool: str, **arguments: Any) -> HttpAnswer:
    return await served.post(chat("go", request_id="q", **step_of(tool, **arguments)))


async def test_a_program_of_the_configuration_is_a_tool(tmp_path: Path) -> None:
    tmp_path.joinpath("notes.txt").write_text("one\ntwo -- three\n")
    async with portico(tools={"cli": {"grep_files": grep(tmp_path)}}) as (served, _):
        answer = await call(served, "grep_files", text="two --")
        assert (answer.status, answer.json["content"]) == (200, "./notes.txt:two -- three\n")
        [shown] = [each for each in (await served.get("/v1/tools")).json["data"] if each["name"] == "grep_files"]
    assert (shown["type"], shown["source"], shown["available"]) == ("cli", "cli", True)
    assert (shown["isolation"], shown["network"]) == (opened_sandbox().strongest, "none")
    assert shown["containment"].endswith(".")
    assert str(tmp_path) not in orjson.dumps(shown).decode()


async def test_arguments_of_a_program_are_checked_before_it_starts(tmp_path: Path) -> None:
    async with portico(tools={"cli": {"grep_files": grep(tmp_path)}}) as (served, _):
        answer = await call(served, "grep_files", pattern="x")
    assert answer.status == 422
    assert "steps.0.input.arguments.text" in answer.body.decode()


async def test_an_external_call_waits_for_approval_and_is_then_sent_once() -> None:
    async with ScriptedUpstream(reply({"order": {"id": 7}})) as upstream:
        order = {
            "description": "Order something.",
            "method": "POST",
            "url": f"{upstream.url}/orders/{{text}}",
            "parameters": TEXT,
            "select": "$.order.id",
            "allow_private": True,
        }
        async with portico(tools={"http": {"order": order}}) as (served, _):
            waiting = await call(served, "order", text="tea/2")
            assert (waiting.status, waiting.json["suspensions"][0]["kind"], upstream.requests) == (202, "approval", [])
            answer = await resume(served, tool_id="order", payload={"decision": "approve"})
            assert (answer.status, answer.json["content"]) == (200, "7")
            listed = (await served.get("/v1/tools")).body.decode()
    [request] = upstream.requests
    assert (request.method, request.path) == ("POST", "/orders/tea%2F2")
    assert upstream.url not in listed


async def test_the_tools_of_an_mcp_server_are_called_over_http_with_the_configured_headers(tmp_path: Path) -> None:
    seen: list[str | None] = []
    acting: list[Any] = []
    server = MCPServer("clock")

    @server.tool(name="time.now", annotations=ToolAnnotations(read_only_hint=True))
    def now(context: Context[Any]) -> str:
        """Return the time."""
        headers, meta = context.headers or {}, context.request_context.meta or {}
        seen.append(headers.get("authorization"))
        acting.append(meta.get("portico/caller"))
        return "noon"

    tmp_path.joinpath("headers").write_text("Authorization: Bearer canary")
    async with running_server(server.streamable_http_app(host="127.0.0.1")) as upstream:
        clock = {"url": f"http://127.0.0.1:{upstream.port}/mcp", "trusted": True}
        clock["headers_file"] = str(tmp_path / "headers")
        informed = {**clock, "pass_caller": True}
        async with portico(tools={"mcp": {"clock": clock, "informed": informed}}) as (served, _):
            tools = (await served.get("/v1/tools")).json["data"]
            [shown, other] = [each for each in tools if each["source"] == "mcp"]
            answer = await call(served, shown["name"])
            await served.post(chat("go", request_id="t", metadata={"ticket": "7"}, **step_of(other["name"])))
    assert (shown["original_name"], shown["side_effects"], shown["available"]) == ("time.now", "read", True)
    assert (answer.status, answer.json["content"], seen) == (200, "noon", ["Bearer canary"] * 2)
    known = {"tenant": "local", "user": "local", "request_id": "t", "channel": "api", "step_name": "a"}
    assert acting == [None, {**known, "metadata": {"ticket": "7"}}]


async def test_a_connection_that_is_lost_after_an_order_was_sent_asks_a_person() -> None:
    async with ScriptedUpstream([]) as upstream:
        order = {"description": "Order.", "method": "POST", "url": upstream.url, "side_effects": "write"}
        order |= {"allow_private": True, "timeout": 0.2}
        async with portico(tools={"http": {"order": order}}) as (served, _):
            waiting = await call(served, "order")
            assert (waiting.status, waiting.json["suspensions"][0]["kind"]) == (202, "unknown_outcome")
            payload = {"decision": "happened", "result": "ordered"}
            answer = await resume(served, tool_id=waiting.json["suspensions"][0]["tool_id"], payload=payload)
    assert (answer.status, answer.json["content"], len(upstream.requests)) == (200, "ordered", 1)


async def test_an_mcp_server_that_could_not_be_started_is_one_row_for_those_who_may_use_its_tools() -> None:
    allowing, others = ("tool:away__read", "tool:away__*", "tool:a*", "*"), ("tool:away", "tool:mcp:away", "tool:b*")
    servers = {"away": {"command": ["/no/such/server", "--token=canary"]}}
    async with portico(tools={"mcp": servers}) as (served, service):
        answer = await served.get("/v1/tools")
        refused = await call(served, "mcp:away")
        introspection = service.facade.introspection
        shown = {
            name: "mcp:away" in [tool.name for tool in await introspection.tools(Permissions.of([name]))]
            for name in (*allowing, *others)
        }
    [row] = [each for each in answer.json["data"] if each["source"] == "mcp"]
    assert row == {
        "name": "mcp:away",
        "type": "mcp",
        "source": "mcp",
        "isolation": "",
        "network": "",
        "description": "",
        "parameters": {},
        "side_effects": "external",
        "idempotent": False,
        "at_most_once": True,
        "approval": True,
        "retried": False,
        "requires": [],
        "containment": "",
        "original_name": "",
        "available": False,
        "reason": "not started",
    }
    assert shown == {**dict.fromkeys(allowing, True), **dict.fromkeys(others, False)}
    assert refused.status == 422
