"""The MCP server of `portico mcp`: a service in this process, or the server at a URL."""

from pathlib import Path

from portico.domain.access.channels import MCP, Entrance
from portico.domain.access.principal import LOCAL
from portico.entrypoints.cli.execution import settings_of_command
from portico.entrypoints.cli.service_parts import OpenService
from portico.entrypoints.mcp.stdio import bridge_stdio, serve_stdio
from portico.settings import Settings, client_key


async def run_here(open_service: OpenService, settings: Settings) -> None:
    """Serve the local user from a service of this process, with a store in memory."""
    async with open_service(settings_of_command(settings)) as service:
        await serve_stdio(service.facade, settings, service.channels.enter(LOCAL, Entrance(MCP)))


async def run_bridge(url: str, key_file: Path | None) -> None:
    """Pass the protocol on to the server at that URL, with the key of its caller."""
    key = client_key(key_file)
    headers = {} if key is None else {"authorization": f"Bearer {key.read()}"}
    await bridge_stdio(f"{url.rstrip('/')}/mcp", headers)
