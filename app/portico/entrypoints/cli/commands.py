"""Commands of `portico`: serve, check, execute, replay, explain, flow, keys, tools, approvals, prompts, openapi."""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from socket import socket
from types import MappingProxyType
from typing import Annotated

import anyio
import typer
from fastapi import FastAPI
from rich.console import Console
from rich.text import Text

from portico.domain.access.principal import LOCAL
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Category
from portico.domain.ids import RequestId, TenantId
from portico.domain.lifecycle import Mode, State
from portico.domain.value import value
from portico.entrypoints.cli.check import CheckStorage, OpenService, run_checks
from portico.entrypoints.cli.clients.approvals import approval_commands
from portico.entrypoints.cli.clients.explain import explain
from portico.entrypoints.cli.display.suspension_prompt import describe_suspension
from portico.entrypoints.cli.execution import ExecuteOptions, OutputOptions, read_request, run_once
from portico.entrypoints.cli.exit_codes import EPILOG, EXIT_CODES, SUSPENDED, failures_as_exits, print_failure
from portico.entrypoints.cli.flows import check_suspended_flows, flow_diagram, read_flow_request
from portico.entrypoints.cli.keys import OpenKeys, key_commands
from portico.entrypoints.cli.options import ConfigOption
from portico.entrypoints.cli.prompts import prompt_list, prompt_text
from portico.entrypoints.cli.replay import OpenHistoryReader, ReplayPrinter, ReplaySelection, exit_code, replay_stored
from portico.entrypoints.cli.server import bind_listener, serve
from portico.entrypoints.cli.tools import tool_commands
from portico.settings import Settings, load_settings


@value
class Wiring:
    """The parts that the commands use; passed in, because the command line and HTTP do not import each other."""

    create_app: Callable[[Settings], FastAPI]
    protocol: type[asyncio.Protocol]
    open_service: OpenService
    open_history_reader: OpenHistoryReader
    check_storage: CheckStorage
    open_keys: OpenKeys


def main(wiring: Wiring) -> None:
    """Run the command that the process was started with."""
    command_line()(obj=wiring, prog_name="portico")


def command_line() -> typer.Typer:
    """Return the commands, which expect the `Wiring` as `obj`."""
    portico = typer.Typer(
        help="One typed request in, one typed response out, every step visible.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    portico.callback()(_common_options)
    portico.command("serve", epilog=EPILOG)(_serve)
    portico.command("check", epilog=EPILOG)(_check)
    portico.command("execute", epilog=EPILOG)(_execute)
    portico.command("replay", epilog=EPILOG)(_replay)
    portico.add_typer(_flow_commands(), name="flow")
    portico.command("prompts", epilog=EPILOG)(_prompts)
    portico.add_typer(key_commands(), name="keys")
    portico.add_typer(tool_commands(), name="tools")
    portico.add_typer(approval_commands(), name="approvals")
    portico.command("explain", epilog=EPILOG)(explain)
    portico.command("openapi")(_openapi)
    return portico


def _print_version(*, is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"portico {version('portico')}")
        raise typer.Exit


def _common_options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def _flow_commands() -> typer.Typer:
    flows = typer.Typer(help="Run a flow, print its graph, or check suspended flows before a deploy.", epilog=EPILOG)
    flows.command("run", epilog=EPILOG)(_run_flow)
    flows.command("graph", epilog=EPILOG)(_print_flow)
    flows.command("check", epilog=EPILOG)(_check_flows)
    return flows


def _serve(
    context: typer.Context,
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: server.host.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, 0 for any. Default: server.port.")] = None,
    config: ConfigOption = None,
) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C. A second signal ends the process at once."""
    wiring: Wiring = context.obj
    options = {"server.host": host, "server.port": port}
    with failures_as_exits():
        overrides = {key: value for key, value in options.items() if value is not None}
        settings = load_settings(path=config, overrides=overrides)
        listener = bind_listener(settings.server.host, settings.server.port)
        address, number = listener.getsockname()[:2]
        announce = partial(_announce, settings, f"[{address}]:{number}" if ":" in address else f"{address}:{number}")
        listeners = [listener, *_metrics_listeners(settings)]
        application = wiring.create_app(settings)
        anyio.run(partial(serve, application, listeners, settings.server, protocol=wiring.protocol, announce=announce))


def _metrics_listeners(settings: Settings) -> list[socket]:
    """Return the listener of the metrics, if they have one of their own. Raises: ConfigurationFailure."""
    host, port = settings.server.metrics_host, settings.server.metrics_port
    return [] if port is None else [bind_listener(host, port, name="server.metrics_port")]


_ACCESS: Mapping[str, str] = MappingProxyType(
    {
        "none": "only this machine has access, without restrictions.",
        "keys": "every request needs a key; `portico keys create` makes one.",
        "jwt": "every request needs a token of the issuer, or a key; `portico keys create` makes one.",
    }
)


def _announce(settings: Settings, address: str) -> None:
    console = Console(highlight=False)
    console.print(
        f"Portico listens on [bold]http://{address}[/bold], with its API description at /docs.", soft_wrap=True
    )
    console.print(f'auth.mode is "{settings.auth.mode}": {_ACCESS[settings.auth.mode]}')
    if settings.is_rehearsal:
        console.print("No engine is configured: the built-in rehearsal engine answers. It is not a model.")


def _check(context: typer.Context, *, config: ConfigOption = None) -> None:
    """Check the configuration and its grammars, the database, the tools, and that each engine can be reached."""
    wiring: Wiring = context.obj
    with failures_as_exits():
        settings = load_settings(path=config)
        failures = anyio.run(run_checks, wiring.open_service, wiring.check_storage, settings)
    for category in failures[:1]:
        raise typer.Exit(EXIT_CODES[category])


def _execute(  # noqa: PLR0913 - Typer reads one parameter per option
    context: typer.Context,
    text: Annotated[str | None, typer.Argument(help="The user message.", show_default=False)] = None,
    *,
    mode: Annotated[
        Mode | None, typer.Option(help="Mode of the execution. Default: chat, with --schema structured.")
    ] = None,
    tool: Annotated[list[str] | None, typer.Option(help="Tool to offer; repeat for several. Default: all.")] = None,
    model: Annotated[str | None, typer.Option(help="Name of a route or an engine.")] = None,
    agent: Annotated[str | None, typer.Option(help="Name of a configured agent.")] = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    schema: Annotated[Path | None, typer.Option(help="File of a JSON Schema that the answer follows.")] = None,
    passes: Annotated[
        int | None, typer.Option(min=1, help="Most passes over the plan, in mode plan, which is then the default.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="File of a whole request as JSON, - for standard input, instead of TEXT.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the answer while it is generated.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole SystemResponse as JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """Run one request in this process. Events go to standard error, the answer to standard output.

    A question to a person is asked at the terminal; without one the command ends with 3.
    """
    wiring: Wiring = context.obj
    if (text is None) == (file is None) or (
        file is not None and any((mode, tool, model, agent, system, schema, passes))
    ):
        raise typer.BadParameter("give TEXT with its options, or --file alone", param_hint="TEXT or --file")
    ask = partial(typer.prompt, err=True) if sys.stdin.isatty() and not as_json else None
    output = OutputOptions(stream=stream, as_json=as_json, ask=ask)
    with failures_as_exits():
        settings = load_settings(path=config)
        request = (
            ExecuteOptions(text or "", system, model, mode, tool, schema, agent, passes).request()
            if file is None
            else read_request(file)
        )
        response = anyio.run(run_once, wiring.open_service, settings, request, output)
    _exit_unless_complete(response)


def _exit_unless_complete(response: SystemResponse) -> None:
    if response.error is not None:
        print_failure(Console(stderr=True), response.error.code, response.error.message)
        raise typer.Exit(EXIT_CODES[response.error.category])
    if response.state is State.SUSPENDED:
        for suspension in response.suspensions:
            Console(stderr=True).print(Text(f"suspended: {describe_suspension(suspension)}"), soft_wrap=True)
        raise typer.Exit(SUSPENDED)


def _replay(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Request ids.", metavar="[ID]...", show_default=False)] = None,
    *,
    last: Annotated[int | None, typer.Option(min=1, help="Number of newest executions to replay instead.")] = None,
    fail_on_difference: Annotated[
        bool,
        typer.Option("--fail-on-difference", help="Exit with 14 if a replay differs or nothing was replayed, for CI."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    tenant: Annotated[str, typer.Option(help="Tenant of the executions.")] = LOCAL.tenant,
    config: ConfigOption = None,
) -> None:
    """Replay stored executions offline, also beside a running server, and compare every step with the record."""
    wiring: Wiring = context.obj
    if bool(ids) == (last is not None):
        raise typer.BadParameter("give request ids, or --last with a number", param_hint="ID or --last")
    with failures_as_exits():
        settings = load_settings(path=config)
        selection = ReplaySelection(TenantId(tenant), [RequestId(each) for each in ids or ()], last)
        printer = ReplayPrinter(as_json=as_json)
        outcomes = anyio.run(replay_stored, wiring.open_history_reader, settings, selection, printer)
    code = exit_code(outcomes, selection, fail_on_difference=fail_on_difference)
    if code:
        raise typer.Exit(code)


def _run_flow(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the flow.")],
    *,
    input_file: Annotated[Path, typer.Option("--input", help="File of the input as JSON, - for standard input.")],
    stream: Annotated[bool, typer.Option("--stream", help="Show what agents write while it is generated.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole SystemResponse as JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """Run a flow in this process. Events go to standard error, the result to standard output.

    A question to a person is asked at the terminal; without one the command ends with 3.
    """
    wiring: Wiring = context.obj
    ask = partial(typer.prompt, err=True) if sys.stdin.isatty() and not as_json else None
    output = OutputOptions(stream=stream, as_json=as_json, ask=ask)
    with failures_as_exits():
        settings = load_settings(path=config)
        request = read_flow_request(name, input_file)
        response = anyio.run(run_once, wiring.open_service, settings, request, output)
    _exit_unless_complete(response)


def _print_flow(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the flow.")],
    *,
    config: ConfigOption = None,
) -> None:
    """Print the graph of a flow as a Mermaid flowchart."""
    wiring: Wiring = context.obj
    with failures_as_exits():
        diagram = anyio.run(flow_diagram, wiring.open_service, load_settings(path=config), name)
    sys.stdout.write(diagram + "\n")


def _check_flows(
    context: typer.Context,
    *,
    tenant: Annotated[str, typer.Option(help="Tenant of the executions.")] = LOCAL.tenant,
    config: ConfigOption = None,
) -> None:
    """Say which suspended flows would not resume with today's graphs, and why; exit with 19 if there are any."""
    wiring: Wiring = context.obj
    with failures_as_exits():
        settings = load_settings(path=config)
        obstacles = anyio.run(check_suspended_flows, wiring.open_history_reader, settings, TenantId(tenant))
    if obstacles:
        raise typer.Exit(EXIT_CODES[Category.STORAGE])


def _prompts(
    context: typer.Context,
    prompt_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Prompt whose text is printed.", show_default=False)
    ] = None,
    *,
    config: ConfigOption = None,
) -> None:
    """List the service's own prompts, or print the text of one; prompts.directory replaces texts."""
    wiring: Wiring = context.obj
    with failures_as_exits():
        settings = load_settings(path=config)
        if prompt_id is None:
            text = anyio.run(prompt_list, wiring.open_service, settings)
        else:
            text = anyio.run(prompt_text, wiring.open_service, settings, prompt_id)
    sys.stdout.write(f"{text}\n")


def _openapi(context: typer.Context) -> None:
    """Print the description of the HTTP API as JSON, with the default limits."""
    wiring: Wiring = context.obj
    json.dump(wiring.create_app(Settings()).openapi(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
