"""Commands for tools: `portico tools list`, and `call` to try one without a model.

Each command imports what it needs itself.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.entrypoints.cli.exit_codes import failures_as_exits
from portico.entrypoints.cli.options import ConfigOption

if TYPE_CHECKING:
    from portico.entrypoints.cli.service_parts import Wiring


def list_tools(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    config: ConfigOption = None,
) -> None:
    """List every configured tool with its source, its safety, and the reason if it cannot run now."""
    import anyio

    from portico.entrypoints.cli.tools import configured_tools, write_tools
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    with failures_as_exits():
        found = anyio.run(configured_tools, wiring.open_service, load_settings(path=config))
    write_tools(found, as_json=as_json)


def _arguments(text: str) -> dict[str, Any]:
    from portico.domain.strict_json import StrictJsonError, loads

    try:
        arguments: object = loads(text.encode(errors="replace"))
    except StrictJsonError as error:
        raise typer.BadParameter(f"is not acceptable JSON: {error.reason}") from None
    if not isinstance(arguments, dict):
        raise typer.BadParameter("must be a JSON object")
    return arguments


def call(
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
    import anyio

    from portico.entrypoints.cli.tools import call_tool, write_outcome
    from portico.settings import load_settings

    wiring: Wiring = context.obj()
    with failures_as_exits():
        settings = load_settings(path=config)
        outcome = anyio.run(partial(call_tool, wiring.open_service, settings, name, arguments or {}, may_act=may_act))
    if outcome is None:
        message = f"is needed, because {name} acts on the world outside or must not run twice"
        raise typer.BadParameter(message, param_hint="--yes")
    write_outcome(name, outcome)
