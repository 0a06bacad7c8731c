"""Commands for the schedules of a server: `portico schedules list`, `put`, `delete`, `run` and `runs`.

Each command imports what it needs itself.
"""

from typing import Annotated

import typer

from portico.entrypoints.cli.exit_codes import failures_as_exits
from portico.entrypoints.cli.options import DEFAULT_SERVER, JsonLinesOption, KeyFileOption, UrlOption

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


def list_schedules(
    *, as_json: JsonLinesOption = False, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None
) -> None:
    """List schedules, by name, with their next time and what became of the last one."""
    from portico.entrypoints.cli.clients.schedules import write_schedules

    with failures_as_exits():
        write_schedules(url, key_file, as_json=as_json)


def put(
    name: NameArgument,
    message: Annotated[str | None, typer.Argument(metavar="[MESSAGE]", help="Message of the user in each run.")] = None,
    *,
    cron: Annotated[
        str | None, typer.Option(help="Minute, hour, day of the month, month, day of the week, as '0 8 * * 1-5'.")
    ] = None,
    timezone: Annotated[str, typer.Option(help="Time zone in which the fields are read, as Europe/Berlin.")] = "UTC",
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(metavar="FILE", help="The whole schedule as JSON instead; - reads standard input."),
    ] = None,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Store a schedule, and print its next time."""
    if file is not None and (cron is not None or message is not None):
        raise typer.BadParameter("stands without --cron and a message", param_hint="--file")
    if file is None and (cron is None or message is None):
        raise typer.BadParameter("--cron and a message are required, or --file")
    from portico.entrypoints.cli.clients.schedules import put_schedule, schedule_of

    with failures_as_exits():
        body = file.read() if file is not None else schedule_of(cron or "", timezone, message or "")
        put_schedule(url, key_file, name, body)


def delete(name: NameArgument, *, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None) -> None:
    """Delete a schedule; its executions stay."""
    from portico.entrypoints.cli.clients.schedules import delete_schedule

    with failures_as_exits():
        delete_schedule(url, key_file, name)


def run(name: NameArgument, *, url: UrlOption = DEFAULT_SERVER, key_file: KeyFileOption = None) -> None:
    """Run a schedule now, and print the id of the execution."""
    from portico.entrypoints.cli.clients.schedules import run_schedule

    with failures_as_exits():
        run_schedule(url, key_file, name)


def list_times(
    name: NameArgument,
    *,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 20,
    as_json: JsonLinesOption = False,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """List what became of the times of a schedule, the latest first."""
    from portico.entrypoints.cli.clients.schedules import write_runs

    with failures_as_exits():
        write_runs(url, key_file, name, limit, as_json=as_json)
