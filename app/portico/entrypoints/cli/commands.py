"""Commands of `portico`: serve, check, health, execute, replay, explain, flow, keys, tools, approvals and so on.

Each command imports what it needs itself, so that a description of the commands is printed at once.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portico.domain.access.principal import LOCAL
from portico.domain.failures import Category
from portico.domain.ids import RequestId, TenantId
from portico.domain.lifecycle import Mode
from portico.entrypoints.cli.clients.approval_commands import approval_commands
from portico.entrypoints.cli.exit_codes import EPILOG, EXIT_CODES, failures_as_exits
from portico.entrypoints.cli.key_commands import key_commands
from portico.entrypoints.cli.options import DEFAULT_SERVER, ConfigOption, UrlOption
from portico.entrypoints.cli.tool_commands import tool_commands

if TYPE_CHECKING:
    from portico.entrypoints.cli.service_parts import Wiring


def main(load_wiring: "Callable[[], Wiring]") -> None:
    """Run the command that the process was started with; one that needs the service calls `load_wiring`."""
    command_line()(obj=load_wiring, prog_name="portico")


def command_line() -> typer.Typer:
    """Return the commands, which expect a function that returns the `Wiring` as `obj`."""
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
    portico.command("health")(_health)
    portico.command("execute", epilog=EPILOG)(_execute)
    portico.command("replay", epilog=EPILOG)(_replay)
    portico.add_typer(_flow_commands(), name="flow")
    portico.command("prompts", epilog=EPILOG)(_prompts)
    portico.add_typer(key_commands(), name="keys")
    portico.add_typer(tool_commands(), name="tools")
    portico.add_typer(approval_commands(), name="approvals")
    portico.command("backup", epilog=EPILOG)(_backup)
    portico.command("restore", epilog=EPILOG)(_restore)
    portico.add_typer(_audit_commands(), name="audit")
    portico.command("explain", epilog=EPILOG)(_explain)
    portico.command("openapi")(_openapi)
    return portico


def _print_version(*, is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

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


def _audit_commands() -> typer.Typer:
    audit = typer.Typer(help="Verify the audit log.", epilog=EPILOG)
    audit.callback()(_audit_options)
    audit.command("verify", epilog=EPILOG)(_verify_audit)
    return audit


def _audit_options() -> None:
    """Take no options; with a callback `verify` keeps its name."""


def _verify_audit(
    files: Annotated[list[Path], typer.Argument(help="Files of the log, oldest first.", metavar="FILE...")],
) -> None:
    """Print the number of lines, or name the first line that was changed, removed or moved, and exit with 14."""
    from portico.bootstrap.audit_files import verify

    with failures_as_exits():
        typer.echo(f"{verify(files)} lines")


def _serve(
    context: typer.Context,
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: server.host.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, 0 for any. Default: server.port.")] = None,
    config: ConfigOption = None,
) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C. A second signal ends the process at once."""
    from portico.entrypoints.cli.server import run_server
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    options = {"server.host": host, "server.port": port}
    with failures_as_exits():
        overrides = {key: value for key, value in options.items() if value is not None}
        run_server(wiring, load_settings(path=config, overrides=overrides))


def _check(
    context: typer.Context,
    *,
    offline: Annotated[bool, typer.Option("--offline", help="Skip what needs the network.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    config: ConfigOption = None,
) -> None:
    """Try everything that is configured, one line each. The exit code is that of the first line that failed."""
    import anyio

    from portico.entrypoints.cli.check import CheckOptions, run_checks
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    with failures_as_exits():
        settings = load_settings(path=config)
        failures = anyio.run(partial(run_checks, wiring, settings, CheckOptions(is_offline=offline, as_json=as_json)))
    for category in failures[:1]:
        raise typer.Exit(EXIT_CODES[category])


def _health(
    *,
    url: Annotated[
        str | None, typer.Option(help="URL of the server. Default: that of server.host and server.port.")
    ] = None,
) -> None:
    """Ask the server whether it lives. Exit with 0 if it answers within 2 seconds, else with 1 and one line."""
    from portico.entrypoints.cli.health import check_health

    raise typer.Exit(check_health(url))


def _require_mode(mode: str | None) -> str | None:
    """Return the mode. Raises: BadParameter, in the words of a request, for one that there is not."""
    if mode is not None and mode not in set(Mode):
        *others, last = (f"'{each}'" for each in Mode)
        raise typer.BadParameter(f"must be {', '.join(others)} or {last}")
    return mode


def _execute(  # noqa: PLR0913 - Typer reads one parameter per option
    context: typer.Context,
    text: Annotated[str | None, typer.Argument(help="The user message.", show_default=False)] = None,
    *,
    mode: Annotated[
        str | None,
        typer.Option(
            help="Mode of the execution. Default: chat, with --schema structured.",
            metavar=f"[{'|'.join(Mode)}]",
            callback=_require_mode,
        ),
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
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no events: the answer alone, or what stands in its way.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Run one request in this process. Events go to standard error, the answer to standard output.

    A question to a person is asked at the terminal; without one the command ends with 3.
    """
    if (text is None) == (file is None) or (
        file is not None and any((mode, tool, model, agent, system, schema, passes))
    ):
        raise typer.BadParameter("give TEXT with its options, or --file alone", param_hint="TEXT or --file")
    import anyio

    from portico.entrypoints.cli.execution import (
        ExecuteOptions,
        OutputOptions,
        exit_unless_complete,
        read_request,
        run_once,
    )
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    ask = partial(typer.prompt, err=True) if sys.stdin.isatty() and not as_json else None
    output = OutputOptions(stream=stream, as_json=as_json, quiet=quiet, ask=ask)
    with failures_as_exits():
        settings = load_settings(path=config)
        request = (
            ExecuteOptions(text or "", system, model, mode, tool, schema, agent, passes).request()
            if file is None
            else read_request(file)
        )
        response = anyio.run(run_once, wiring.open_service, settings, request, output)
    exit_unless_complete(response)


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
    if bool(ids) == (last is not None):
        raise typer.BadParameter("give request ids, or --last with a number", param_hint="ID or --last")
    import anyio

    from portico.entrypoints.cli.replay import ReplayPrinter, ReplaySelection, exit_code, replay_stored
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
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
    import anyio

    from portico.entrypoints.cli.execution import OutputOptions, exit_unless_complete, run_once
    from portico.entrypoints.cli.flows import read_flow_request
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    ask = partial(typer.prompt, err=True) if sys.stdin.isatty() and not as_json else None
    output = OutputOptions(stream=stream, as_json=as_json, ask=ask)
    with failures_as_exits():
        settings = load_settings(path=config)
        request = read_flow_request(name, input_file)
        response = anyio.run(run_once, wiring.open_service, settings, request, output)
    exit_unless_complete(response)


def _print_flow(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the flow.")],
    *,
    config: ConfigOption = None,
) -> None:
    """Print the graph of a flow as a Mermaid flowchart."""
    import anyio

    from portico.entrypoints.cli.flows import flow_diagram
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
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
    import anyio

    from portico.entrypoints.cli.flows import check_suspended_flows
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
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
    import anyio

    from portico.entrypoints.cli.prompts import prompt_list, prompt_text
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    with failures_as_exits():
        settings = load_settings(path=config)
        if prompt_id is None:
            text = anyio.run(prompt_list, wiring.open_service, settings)
        else:
            text = anyio.run(prompt_text, wiring.open_service, settings, prompt_id)
    sys.stdout.write(f"{text}\n")


def _backup(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(help="New file that the backup is written to.")],
    *,
    verify: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of newest executions of the backup to replay.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Copy the SQLite database into a new file, also beside a running server. Exit with 14 if a replay differs."""
    import anyio

    from portico.entrypoints.cli.backup import print_backup, verify_backup
    from portico.settings import load_settings

    with failures_as_exits():
        settings = load_settings(path=config)
        print_backup(settings, target)
        if verify is None:
            return
        wiring: Wiring = context.obj()
        code = anyio.run(verify_backup, wiring.open_history_reader, settings, target, verify)
    raise typer.Exit(code)


def _restore(
    backup: Annotated[Path, typer.Argument(help="File that `portico backup` wrote.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing database, which is kept as FILE.replaced.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--continue", help="Let what ran at the time of the backup go on; calls could happen twice."),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Put a backup in the place of the SQLite database, while no server runs on it.

    Executions that ran or were queued at the time of the backup are cancelled, since what they did afterwards is not
    known.
    """
    from portico.entrypoints.cli.backup import print_restored
    from portico.settings import load_settings

    with failures_as_exits():
        print_restored(load_settings(path=config), backup, replace=replace, resume=resume)


def _explain(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="Id of the request.")],
    *,
    url: UrlOption = DEFAULT_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="Print the contexts as one JSON object.")] = False,
) -> None:
    """Print what each inference of an execution has read, in tokens, and what was cut, redacted, chosen, retrieved."""
    from portico.entrypoints.cli.clients.explain import explain

    with failures_as_exits():
        explain(request_id, url, as_json=as_json)


def _openapi(context: typer.Context) -> None:
    """Print the description of the HTTP API as JSON, with the default limits."""
    import json

    from portico.settings import Settings

    wiring: Wiring = context.obj()
    json.dump(wiring.create_app(Settings()).openapi(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
