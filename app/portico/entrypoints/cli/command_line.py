"""Command line of `portico`, made of the table of commands; the module of a command is loaded when it is called."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer._completion_classes import completion_init
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group
from typer.models import CommandInfo

from portico.entrypoints.cli.exit_codes import EPILOG
from portico.entrypoints.cli.table import COMMANDS, Command, CommandTable

if TYPE_CHECKING:
    from portico.entrypoints.cli.service_parts import Wiring

_WITHOUT_EPILOG = frozenset({"health", "openapi", "bash", "zsh", "fish"})
"""Commands that do not end with the exit codes of failures."""


def main(load_wiring: "Callable[[], Wiring]") -> None:
    """Run the command that the process was started with; one that needs the service calls `load_wiring`."""
    command_line()(obj=load_wiring, prog_name="portico")


def command_line() -> typer.Typer:
    """Return the commands, which expect a function that returns the `Wiring` as `obj`.

    Texts are plain: Rich alone takes as long to load as everything else that prints a help.
    """
    portico = _group("One typed request in, one typed response out, every step visible.", COMMANDS)
    portico.callback()(_common_options)
    completion_init()
    return portico


class _TableGroup(TyperGroup):
    """A group whose commands stand in a table."""

    table: ClassVar[CommandTable]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = dict.fromkeys(self.table)  # the names, of which Typer suggests one for a misspelt name

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.table]

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        row = self.table.get(cmd_name)
        if isinstance(row, Command):
            function = getattr(import_module(row.module), row.function)
            epilog = None if cmd_name in _WITHOUT_EPILOG else EPILOG
            command = get_command_from_info(
                CommandInfo(name=cmd_name, callback=function, epilog=epilog),
                pretty_exceptions_short=False,
                rich_markup_mode=None,
            )
            return command if isinstance(command, TyperCommand) else None
        if row is None:
            return None
        group = get_group(_group(row.help, row.commands))
        group.name = cmd_name
        return group

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in self.table.items()])


def _group(text: str, table: CommandTable) -> typer.Typer:
    return typer.Typer(
        cls=type("_Group", (_TableGroup,), {"table": table}),
        help=text,
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def _print_version(*, is_asked: bool | None) -> None:
    if is_asked:
        from importlib.metadata import distribution  # noqa: PLC0415 - only this option needs it

        package = distribution("portico")
        revision = (package.read_text("REVISION") or "").strip()  # an image has one
        typer.echo(f"portico {package.version} ({revision})" if revision else f"portico {package.version}")
        raise typer.Exit


def _common_options(
    *,
    _version: Annotated[
        bool | None,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = None,  # no value, since Typer loads pydantic for one
) -> None:
    """Take the options that stand before the command."""
