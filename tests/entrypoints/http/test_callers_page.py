"""The examples of docs/callers.md: each tool is called, and knows for whom it acts."""

import re
import sys
import tomllib
from pathlib import Path
from runpy import run_path
from typing import Any

import orjson
import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

from portico.settings import Settings
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes, running_server
from tests.support.portico import chat, portico
from tests.support.server_state import wait_for_idle
from tests.support.tracker import Tracker
from tests.support.upstream import ScriptedUpstream, reply

pytestmark = pytest.mark.usefixtures("real_time")
PAGE = (Path(__file__).parents[3] / "docs" / "callers.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
BLOCKS: list[str] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
TRACKERS: dict[str, Any] = tomllib.loads(next(block for block in BLOCKS if block.startswith("# trackers.toml")))
TABLES: dict[str, Any] = tomllib.loads("\n".join(block for block in BLOCKS if not block.startswith("# trackers.toml")))


async def call(served: RunningServer, tool: str) -> HttpAnswer:
    step = {"name": "a", "type": "tool", "input": {"name": tool, "arguments": {}}}
    return await served.post(chat("go", mode="plan", plan={"steps": [step]}, metadata={"ticket": "7"}))


async def test_the_tables_of_the_page_are_a_configuration() -> None:
    slack = TABLES["channels"]["slack"] | {"models": []}
    settings = Settings.model_validate({**TABLES, "channels": {"slack": slack}})
    assert list(settings.tools.http) == ["my_issues"]


async def test_the_http_tool_sends_the_caller() -> None:
    async with ScriptedUpstream(reply("none")) as upstream:
        tool = TABLES["tools"]["http"]["my_issues"]
        tool = tool | {"url": tool["url"].replace("https://tracker.example", upstream.url), "allow_private": True}
        async with portico(tools={"http": {"my_issues": tool}}) as (served, _):
            answer = await call(served, "my_issues")
    [request] = upstream.requests
    assert answer.status == 200
    assert (request.path, request.headers["x-tenant"], request.headers["x-ticket"]) == (
        "/users/local/issues",
        "local",
        "7",
    )


async def test_the_program_reads_the_notes_of_the_caller(tmp_path: Path) -> None:
    tmp_path.joinpath("local").mkdir()
    tmp_path.joinpath("local", "local.txt").write_text("mine")
    tool = TABLES["tools"]["cli"]["my_notes"]
    command = [word.replace("/srv/notes", str(tmp_path)) for word in tool["command"]]
    tool = tool | {"command": command, "read_paths": [str(tmp_path)]}
    async with portico(tools={"cli": {"my_notes": tool}}) as (served, _):
        assert (await call(served, "my_notes")).json["content"] == "mine"


async def test_the_mcp_server_learns_of_the_caller(tmp_path: Path) -> None:
    tmp_path.joinpath("tickets.py").write_text(FILES["tickets"])
    found = run_path(str(tmp_path / "tickets.py"))
    async with running_server(found["server"].streamable_http_app(host="127.0.0.1")) as upstream:
        table = TABLES["tools"]["mcp"]["tickets"] | {"url": f"http://127.0.0.1:{upstream.port}/mcp", "trusted": True}
        policy = {"pre_authorise": [{"tool": "tickets__my_tickets"}]}
        async with portico(tools={"mcp": {"tickets": table}}, policy=policy) as (served, _):
            answer = await call(served, "tickets__my_tickets")
    assert answer.json["content"] == "tickets of local in local"


async def test_the_python_tool_finds_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("my_orders.py").write_text(FILES["my_orders"])
    monkeypatch.syspath_prepend(tmp_path)
    async with portico(tools={"modules": ["my_orders"]}) as (served, _):
        answer = await call(served, "my_orders")
    sys.modules.pop("my_orders")
    assert answer.json["content"] == "an order of local"


async def test_the_tools_with_credentials_send_those_of_their_caller_and_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("own_issues.py").write_text(FILES["own_issues"])
    tmp_path.joinpath("client-secret").write_text("the-secret-of-the-client")
    monkeypatch.syspath_prepend(tmp_path)
    tracker, seen = Tracker({"a-token-of-ours": "mine"}), list[str]()
    server = MCPServer("clock")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def now(context: Context[Any]) -> str:
        """Return the time."""
        seen.append((context.headers or {}).get("authorization", ""))
        return f"noon, says {seen[-1]}"

    async with (
        running_server(tracker.app) as upstream,
        running_server(server.streamable_http_app(host="127.0.0.1")) as clock,
    ):
        text = orjson.dumps(TRACKERS).decode()
        for port, served_at in ((9000, upstream), (9001, clock)):
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{served_at.port}")
        tables = orjson.loads(text.replace('"client-secret"', f'"{tmp_path}/client-secret"'))
        async with portico(**tables) as (served, service):
            assert (await call(served, "issues")).json["suspensions"][0]["kind"] == "authorization"
            body = orjson.dumps({"value": "a-token-of-ours"})
            put = request_bytes("PUT", "/v1/credentials/tracker", {"Content-Type": "application/json"}, body)
            assert (await served.ask(put)).status == 204
            await wait_for_idle(service)
            assert "those of mine" in (await call(served, "issues")).json["content"]
            assert (await call(served, "count_issues")).json["content"] == "asked with a token of 15 characters"
            text_shown = (await call(served, "clock__now")).json["content"]
    sys.modules.pop("own_issues")
    assert set(seen) == {"Bearer issued-token-0"}
    assert text_shown == "noon, says Bearer [credential clock]"
