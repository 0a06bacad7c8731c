"""Commands for approvals: the calls of a server that wait for a person, and the decisions on them.

These commands are clients of a server, so that its permissions and its audit hold. The key of the caller comes from
the environment. Each command imports what it needs itself.
"""

from typing import Annotated, Literal

import typer

from portico.entrypoints.cli.exit_codes import EPILOG, failures_as_exits
from portico.entrypoints.cli.options import DEFAULT_SERVER, UrlOption


def approval_commands() -> typer.Typer:
    """Return the commands."""
    approvals = typer.Typer(
        help="List the tool calls of a server that wait for a person, and decide. The key is that of PORTICO_KEY.",
        epilog=EPILOG,
    )
    approvals.command("list", epilog=EPILOG)(_list)
    approvals.command("approve", epilog=EPILOG)(_approve)
    approvals.command("deny", epilog=EPILOG)(_deny)
    approvals.command("settle", epilog=EPILOG)(_settle)
    return approvals


IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of the list; a request id stands for all of its calls.")
]


def _list(
    *,
    url: UrlOption = DEFAULT_SERVER,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the calls that wait for an approval, then those whose outcome is not known."""
    from portico.entrypoints.cli.clients.approvals import write_open_calls

    with failures_as_exits():
        write_open_calls(url, as_json=as_json)


def _approve(ids: IdsArgument, *, url: UrlOption = DEFAULT_SERVER) -> None:
    """Let calls run."""
    from portico.entrypoints.cli.clients.approvals import decide_approvals

    with failures_as_exits():
        decide_approvals(url, ids, {"decision": "approve"})


def _deny(
    ids: IdsArgument,
    *,
    reason: Annotated[str | None, typer.Option(help="Reason, which the model sees.", show_default=False)] = None,
    url: UrlOption = DEFAULT_SERVER,
) -> None:
    """Refuse calls; the executions go on without them."""
    from portico.entrypoints.cli.clients.approvals import decide_approvals

    with failures_as_exits():
        decide_approvals(url, ids, {"decision": "deny", **({} if reason is None else {"reason": reason})})


def _settle(
    ids: IdsArgument,
    *,
    decision: Annotated[
        Literal["happened", "run", "give_up"],
        typer.Option(help="happened: it has run; run: it has not, and may now; give_up: that stays unknown."),
    ],
    result: Annotated[
        str | None, typer.Option(help="Result of a call that has happened, which the model sees.", show_default=False)
    ] = None,
    url: UrlOption = DEFAULT_SERVER,
) -> None:
    """Say what has become of calls whose outcome is not known."""
    if (decision == "happened") != (result is not None):
        raise typer.BadParameter("goes with --decision happened, which needs it", param_hint="--result")
    from portico.entrypoints.cli.clients.approvals import settle_outcomes

    with failures_as_exits():
        settle_outcomes(url, ids, {"decision": decision, **({} if result is None else {"result": result})})
