"""Commands of `portico` that have no group: serve, check, health, execute, replay, backup and so on.

Each command imports what it needs itself, so that a description of the commands is printed at once.
"""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portico.domain.access.principal import LOCAL
from portico.domain.failures import Category
from portico.domain.ids import RequestId, TenantId
from portico.domain.lifecycle import Mode
from portico.domain.value import value
from portico.entrypoints.cli.exit_codes import EXIT_CODES, failures_as_exits
from portico.entrypoints.cli.options import (
    DEFAULT_SERVER,
    ConfigOption,
    KeyFileOption,
    QuietOption,
    RemoteOption,
    UrlOption,
)

if TYPE_CHECKING:
    from portico.domain.contract.request import SystemRequest
    from portico.entrypoints.cli.service_parts import Wiring


def verify_audit(
    files: Annotated[list[Path], typer.Argument(help="Files of the log, oldest first.", metavar="FILE...")],
) -> None:
    """Print the number of lines, or name the first that was changed, removed or moved. Exit with 14 then."""
    from portico.bootstrap.audit_files import verify

    with failures_as_exits():
        typer.echo(f"{verify(files)} lines")


def serve(
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


def check(
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


def health(
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


def execute(  # noqa: PLR0913 - Typer reads one parameter per option
    context: typer.Context,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The user message, - for standard input.", show_default=False)
    ] = None,
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
    run_at: Annotated[
        str | None,
        typer.Option(help="Time of RFC 3339 at which a server starts it; prints its id.", metavar="TIME"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="File of a whole request as JSON, - for standard input, instead of TEXT.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Show the answer while it is generated.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole SystemResponse as JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no events: the answer alone, or what stands in its way.")
    ] = False,
    url: RemoteOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
) -> None:
    """Run one request, in this process or on a server.

    Events go to standard error, the answer to standard output. A question to a person is asked at the terminal; without
    one the command ends with 3.
    """
    if (text is None) == (file is None) or (
        file is not None and any((mode, tool, model, agent, system, schema, passes, run_at))
    ):
        raise typer.BadParameter("give TEXT with its options, or --file alone", param_hint="TEXT or --file")
    from portico.entrypoints.cli.request import ExecuteOptions, read_request, read_text

    with failures_as_exits():
        if text == "-":
            text = read_text()
            if not text.strip():
                raise typer.BadParameter("standard input is empty", param_hint="TEXT")
        request = (
            ExecuteOptions(text or "", system, model, mode, tool, schema, agent, passes, run_at).request()
            if file is None
            else read_request(file)
        )
    _run(context, request, _Run(stream, as_json, quiet, url, key_file, config))


@value
class _Run:
    """Options of a command that runs a request, here or on the server of the URL."""

    stream: bool
    as_json: bool
    quiet: bool
    url: str | None
    key_file: Path | None
    config: Path | None


def _run(context: typer.Context, request: "SystemRequest", run: _Run) -> None:
    from portico.entrypoints.cli.output import OutputOptions, exit_unless_complete

    if request.run_at is not None and run.url is not None:
        from portico.entrypoints.cli.clients.remote_execution import start_later

        with failures_as_exits():
            typer.echo(start_later(run.url, run.key_file, request))
        return
    ask = partial(typer.prompt, err=True) if sys.stdin.isatty() and not run.as_json else None
    output = OutputOptions(stream=run.stream, as_json=run.as_json, quiet=run.quiet, ask=ask)
    with failures_as_exits():
        if run.url is not None:
            from portico.entrypoints.cli.clients.remote_execution import execute_remotely

            response = execute_remotely(run.url, run.key_file, request, output)
        else:
            import anyio

            from portico.entrypoints.cli.execution import run_once
            from portico.settings import load_settings

            wiring: Wiring = context.obj()
            response = anyio.run(run_once, wiring.open_service, load_settings(path=run.config), request, output)
    exit_unless_complete(response)


def replay(
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


def run_flow(  # noqa: PLR0913 - Typer reads one parameter per option
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the flow.")],
    *,
    input_file: Annotated[Path, typer.Option("--input", help="File of the input as JSON, - for standard input.")],
    stream: Annotated[bool, typer.Option("--stream", help="Show what agents write while it is generated.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole SystemResponse as JSON.")] = False,
    quiet: QuietOption = False,
    url: RemoteOption = None,
    key_file: KeyFileOption = None,
    config: ConfigOption = None,
) -> None:
    """Run a flow, in this process or on a server.

    Events go to standard error, the result to standard output. A question to a person is asked at the terminal; without
    one the command ends with 3.
    """
    from portico.entrypoints.cli.request import read_flow_request

    with failures_as_exits():
        request = read_flow_request(name, input_file)
    _run(context, request, _Run(stream, as_json, quiet, url, key_file, config))


def print_flow(
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


def check_flows(
    context: typer.Context,
    *,
    tenant: Annotated[str, typer.Option(help="Tenant of the executions.")] = LOCAL.tenant,
    config: ConfigOption = None,
) -> None:
    """Say which suspended flows would not resume with today's graphs, and why. Exit with 19 if there are any."""
    import anyio

    from portico.entrypoints.cli.flows import check_suspended_flows
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    with failures_as_exits():
        settings = load_settings(path=config)
        obstacles = anyio.run(check_suspended_flows, wiring.open_history_reader, settings, TenantId(tenant))
    if obstacles:
        raise typer.Exit(EXIT_CODES[Category.STORAGE])


def prompts(
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


def backup(
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


def restore(
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


def explain(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="Id of the request.")],
    *,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the contexts as one JSON object.")] = False,
) -> None:
    """Print what each inference of an execution has read, in tokens.

    Behind the table stands a line for everything that was cut, redacted, chosen or retrieved.
    """
    from portico.entrypoints.cli.clients.explain import print_contexts

    with failures_as_exits():
        print_contexts(request_id, url, key_file, as_json=as_json)


def openapi(context: typer.Context) -> None:
    """Print the description of the HTTP API as JSON, with the default limits."""
    import json

    from portico.settings import Settings

    wiring: Wiring = context.obj()
    json.dump(wiring.create_app(Settings()).openapi(), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
