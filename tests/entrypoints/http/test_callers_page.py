"""The examples of docs/callers.md: each tool is called, and knows for whom it acts."""

import re
import sys
import tomllib
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from portico.settings import Settings
from tests.support.http_server import HttpAnswer, RunningServer, running_server
from tests.support.portico import chat, portico
from tests.support.upstream import ScriptedUpstream, reply

pytestmark = pytest.mark.usefixtures("real_time")
PAGE = (Path(__file__).parents[3] / "docs" / "callers.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
TABLES: dict[str, Any] = tomllib.loads("\n".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)))


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
