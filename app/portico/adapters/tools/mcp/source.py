"""The MCP servers of the configuration as one source of tools."""

from collections.abc import Sequence
from typing import Final

import anyio

from portico.adapters.tools.mcp.server import McpLog, McpServer
from portico.adapters.tools.mcp.server_config import McpServerConfig
from portico.domain.tools import ToolServerStatus
from portico.ports.tool import Tool

START_SECONDS: Final = 5.0
"""Time at the start of the service in which servers may connect before the first request."""


class McpSource:
    """The tools of all MCP servers, in the order of their tables. Implements the `ToolSource` port."""

    name = "mcp"

    def __init__(self, configs: Sequence[McpServerConfig], log: McpLog) -> None:
        self._servers = [McpServer(config, log) for config in configs]
        self._seen: list[Sequence[Tool]] = []
        self._tools: Sequence[Tool] = ()

    @property
    def tools(self) -> Sequence[Tool]:
        """Return the tools that the servers list now: the same object until they change."""
        current = [server.tools for server in self._servers]
        if len(current) != len(self._seen) or any(a is not b for a, b in zip(current, self._seen, strict=True)):
            self._seen = current
            self._tools = [tool for tools in current for tool in tools]
        return self._tools

    @property
    def servers(self) -> Sequence[ToolServerStatus]:
        """Return the state of each server, in the order of their tables."""
        return [server.status() for server in self._servers]

    async def run(self) -> None:
        """Keep all servers connected until the task is cancelled."""
        async with anyio.create_task_group() as group:
            for server in self._servers:
                group.start_soon(server.run)

    async def wait_for_servers(self) -> None:
        """Return when every server has connected or failed once, and after five seconds in any case."""
        with anyio.move_on_after(START_SECONDS):
            for server in self._servers:
                await server.was_tried.wait()
