"""`portico mcp`: the MCP server over standard input and output."""

import typer

from portico.entrypoints.cli.exit_codes import failures_as_exits
from portico.entrypoints.cli.options import ConfigOption, KeyFileOption, RemoteOption


def serve_mcp(
    context: typer.Context, *, url: RemoteOption = None, key_file: KeyFileOption = None, config: ConfigOption = None
) -> None:
    """Serve MCP on standard input and output, in this process or in front of a server.

    In this process the store is in memory. With --url the calls run on that server, with its [mcp] enabled.
    """
    import anyio

    from portico.entrypoints.cli.mcp_server import run_bridge, run_here
    from portico.settings import load_settings

    with failures_as_exits():
        if url is None:
            anyio.run(run_here, context.obj().open_service, load_settings(path=config))
        else:
            anyio.run(run_bridge, url, key_file)
