"""Tools at the command line: `portico tools list`, and `call` to try one without a model."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any, Final, Protocol

import anyio
import typer
from rich.console import Console
from rich.text import Text

from portico.bootstrap.service import Service
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Category
from portico.domain.journal.outcomes import ToolCallSuspended, ToolEnded
from portico.domain.strict_json import StrictJsonError, loads
from portico.entrypoints.cli.display.live_view import write_text
from portico.entrypoints.cli.display.suspension_prompt import question_text
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.execution import settings_of_command
from portico.entrypoints.cli.exit_codes import EPILOG, EXIT_CODES, SUSPENDED, failures_as_exits, print_failure
from portico.entrypoints.cli.options import ConfigOption
from portico.orchestration.facade import ToolView
from portico.settings import Settings, load_settings

OpenService = Callable[[Settings], AbstractAsyncContextManager[Service]]
_COLUMNS: Final = ("name", "source", "safety", "available", "reason")


class ToolWiring(Protocol):
    """The part of the wiring that these commands use."""

    @property
    def open_service(self) -> OpenService: ...


def tool_commands() -> typer.Typer:
    """Return the commands, which expect a `ToolWiring` as `obj`."""
    tools = typer.Typer(help="List the configured tools, or call one, without a server.", epilog=EPILOG)
    tools.command("list", epilog=EPILOG)(_list)
    tools.command("call", epilog=EPILOG)(_call)
    return tools


def _list(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    config: ConfigOption = None,
) -> None:
    """List every configured tool with its source, its safety, and the reason if it cannot run now."""
    wiring: ToolWiring = context.obj
    with failures_as_exits():
        found = anyio.run(_all, wiring.open_service, load_settings(path=config))
    if as_json:
        sys.stdout.write("".join(view.model_dump_json() + "\n" for view in found))
    else:
        write_table([_COLUMNS, *map(_row, found)])


async def _all(open_service: OpenService, settings: Settings) -> list[ToolView]:
    async with open_service(settings_of_command(settings)) as service:
        return await service.facade.introspection.tools(LOCAL.permissions)


def _row(view: ToolView) -> tuple[str, ...]:
    facts = ("idempotent" if view.idempotent else "", "at most once" if view.at_most_once else "")
    safety = ", ".join(filter(None, (view.side_effects, *facts, "approval" if view.approval else "")))
    return view.name, view.source, safety, "yes" if view.available else "no", view.reason


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments: object = loads(text.encode(errors="replace"))
    except StrictJsonError as error:
        raise typer.BadParameter(f"is not acceptable JSON: {error.reason}") from None
    if not isinstance(arguments, dict):
        raise typer.BadParameter("must be a JSON object")
    return arguments


def _call(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the tool.")],
    *,
    arguments: Annotated[
        dict[str, Any] | None,
        typer.Option("--args", parser=_arguments, metavar="JSON", help="Arguments, as a JSON object. Default: none."),
    ] = None,
    may_act: Annotated[
        bool, typer.Option("--yes", help="Also call a tool that is external, or unsafe to call twice.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Call a tool once and print its result. No model, policy or record is involved.

    A question that the tool asks is shown, and the command ends with 3.
    """
    wiring: ToolWiring = context.obj
    with failures_as_exits():
        settings = load_settings(path=config)
        call = partial(_outcome, wiring.open_service, settings, name, arguments or {}, may_act=may_act)
        outcome = anyio.run(call)
    if outcome is None:
        message = f"is needed, because {name} acts on the world outside or must not run twice"
        raise typer.BadParameter(message, param_hint="--yes")
    _show(name, outcome)


async def _outcome(
    open_service: OpenService, settings: Settings, name: str, arguments: Mapping[str, Any], *, may_act: bool
) -> ToolEnded | ToolCallSuspended | None:
    seconds = settings.limits.timeout
    async with open_service(settings_of_command(settings)) as service:
        return await service.facade.direct_calls.call(name, arguments, seconds=seconds, may_act=may_act)


def _show(name: str, outcome: ToolEnded | ToolCallSuspended) -> None:
    """Write the result to standard output; a failure or a question goes to standard error and sets the exit code."""
    console = Console(stderr=True)
    if isinstance(outcome, ToolCallSuspended):
        console.print(Text(f"suspended: {question_text(name, outcome.value)}"), soft_wrap=True)
        raise typer.Exit(SUSPENDED)
    if outcome.code is not None:
        print_failure(console, outcome.code, outcome.content)
        raise typer.Exit(EXIT_CODES[Category.TOOL])
    write_text(outcome.content, sys.stdout)
