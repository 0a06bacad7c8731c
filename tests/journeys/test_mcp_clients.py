"""The Agents SDK of OpenAI, Pydantic AI, and the SDK of the protocol for TypeScript, as clients of the MCP server."""

import json
import shutil
from pathlib import Path

import anyio
import pytest
from agents.mcp import MCPServerStreamableHttp

from tests.entrypoints.mcp.test_http import APPROVE_DICE, DICE, served_mcp

SERVERS = Path(__file__).parents[2] / ".clients" / "mcp_servers" / "node_modules"
PYDANTIC_AI = Path(__file__).parents[2] / ".clients" / "pydantic_ai" / "bin" / "python"
NO_PROGRAM = "no Pydantic AI with MCP: make clients installs it"
SECONDS = 50.0
needs_sdk = pytest.mark.skipif(
    not SERVERS.exists() or shutil.which("node") is None, reason="no Node packages: make clients installs them"
)


@pytest.mark.timeout(60)
async def test_the_agents_sdk_lists_the_tools_and_calls_them() -> None:
    async with (
        served_mcp() as (served, _),
        MCPServerStreamableHttp(params={"url": f"{served.url}/mcp"}, client_session_timeout_seconds=30) as server,
    ):
        assert {"execute", "agent__roller", "get_execution"} <= {tool.name for tool in await server.list_tools()}
        done = await server.call_tool("execute", {"message": "Hello"})
        assert "Hello" in done.content[0].text
        refused = await server.call_tool("execute", {"message": ""})
    assert "message" in refused.content[0].text


@pytest.mark.skipif(not PYDANTIC_AI.exists(), reason=NO_PROGRAM)
@pytest.mark.timeout(60)
async def test_an_agent_of_pydantic_ai_calls_tools_and_its_user_approves_in_a_form() -> None:
    program = Path(__file__).with_name("pydantic_ai_agent.py")
    async with served_mcp(policy=APPROVE_DICE) as (served, _):
        command = [str(PYDANTIC_AI), str(program), f"{served.url}/mcp", DICE]
        with anyio.fail_after(SECONDS):
            ran = await anyio.run_process(command, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "tools": ["agent__roller", "cancel", "execute", "get_execution", "resume"],
        "results": ["COMPLETE", "COMPLETE"],
        "asked": [True],
        "output": "Done.",
    }


@needs_sdk
@pytest.mark.timeout(60)
async def test_the_sdk_for_typescript_lists_calls_answers_a_form_and_sees_progress(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("mcp_client.mjs"), tmp_path / "client.mjs")
    (tmp_path / "node_modules").symlink_to(SERVERS)
    async with served_mcp() as (served, _):
        with anyio.fail_after(SECONDS):
            ran = await anyio.run_process(["node", str(tmp_path / "client.mjs"), f"{served.url}/mcp"], check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "tools": ["agent__roller", "cancel", "execute", "get_execution", "resume"],
        "said": "COMPLETE",
        "progressed": True,
        "asked": [[True, ["answer"]]],
        "answered": True,
        "refused": True,
    }
