"""The Agents SDK of OpenAI as a client of the MCP server."""

import pytest
from agents.mcp import MCPServerStreamableHttp

from tests.entrypoints.mcp.test_http import served_mcp


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
