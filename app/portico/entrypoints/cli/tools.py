"""Tools at the command line: the list of them, and a call of one."""

import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer
from rich.console import Console
from rich.text import Text

from portico.domain.access.principal import LOCAL
from portico.domain.failures import Category
from portico.domain.journal.outcomes import ToolCallSuspended, ToolEnded
from portico.domain.raised_exception import RaisedException
from portico.entrypoints.cli.display.live_view import write_text
from portico.entrypoints.cli.display.suspension_prompt import question_text
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.display.terminal import print_failure, printable
from portico.entrypoints.cli.execution import settings_of_command
from portico.entrypoints.cli.exit_codes import EXIT_CODES, SUSPENDED
from portico.entrypoints.cli.service_parts import OpenService
from portico.orchestration.facade import ToolView
from portico.settings import Settings

_COLUMNS: Final = ("name", "source", "safety", "available", "reason")


async def configured_tools(open_service: OpenService, settings: Settings) -> list[ToolView]:
    """Return every configured tool."""
    async with open_service(settings_of_command(settings)) as service:
        return await service.facade.introspection.tools(LOCAL.permissions)


def write_tools(found: Sequence[ToolView], *, as_json: bool) -> None:
    """Write the tools to standard output, as a table or as one JSON object per line."""
    if as_json:
        sys.stdout.write("".join(view.model_dump_json() + "\n" for view in found))
    else:
        write_table([_COLUMNS, *map(_row, found)])


def _row(view: ToolView) -> tuple[str, ...]:
    facts = ("idempotent" if view.idempotent else "", "at most once" if view.at_most_once else "")
    safety = ", ".join(filter(None, (view.side_effects, *facts, "approval" if view.approval else "")))
    return view.name, view.source, safety, "yes" if view.available else "no", view.reason


async def call_tool(
    open_service: OpenService, settings: Settings, name: str, arguments: Mapping[str, Any], *, may_act: bool
) -> ToolEnded | ToolCallSuspended | None:
    """Call the tool and return its outcome, None if it acts and may not. What it raises is shown with its traceback."""
    seconds = settings.limits.timeout
    async with open_service(settings_of_command(settings)) as service:
        return await service.direct_calls.call(
            name, arguments, seconds=seconds, may_act=may_act, on_exception=_write_traceback
        )


def _write_traceback(error: BaseException | RaisedException) -> None:
    """Write the traceback; of an exception of a call that used credentials the places alone, with its masked text."""
    if isinstance(error, RaisedException):
        lines = [error.frames, f"{error.type}: {error.text}"]
    else:
        lines = "".join(traceback.format_exception(error)).splitlines()
    sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))


def write_outcome(name: str, outcome: ToolEnded | ToolCallSuspended) -> None:
    """Write the result to standard output; a failure or a question goes to standard error and sets the exit code."""
    console = Console(stderr=True)
    if isinstance(outcome, ToolCallSuspended):
        console.print(Text(f"suspended: {question_text(name, outcome.value)}"), soft_wrap=True)
        raise typer.Exit(SUSPENDED)
    if outcome.code is not None:
        print_failure(console, outcome.code, outcome.content)
        raise typer.Exit(EXIT_CODES[Category.TOOL])
    write_text(outcome.content, sys.stdout)
