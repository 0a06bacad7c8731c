"""Commands for approvals: the calls of a server that wait for a person, and the decisions on them.

These commands are clients of a server, so that its permissions and its audit hold. The key of the caller comes from
the environment or of a file. Each command imports what it needs itself.
"""

from typing import Annotated, Literal

import typer

from portico.entrypoints.cli.clients.approval_options import (
    ArgumentsOption,
    GrantMatchOption,
    GrantOption,
    GrantSecondsOption,
    approval_payload,
)
from portico.entrypoints.cli.exit_codes import failures_as_exits
from portico.entrypoints.cli.options import DEFAULT_SERVER, KeyFileOption, UrlOption

IdsArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of the list; a request id stands for all of its calls.")
]


def list_calls(
    *,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the calls that wait for a person.

    Those that wait for an approval come first, then those whose outcome is not known.
    """
    from portico.entrypoints.cli.clients.approvals import write_open_calls

    with failures_as_exits():
        write_open_calls(url, key_file, as_json=as_json)


def approve(  # noqa: PLR0913 - Typer reads one parameter per option
    ids: IdsArgument,
    *,
    reason: Annotated[str | None, typer.Option(help="Comment, which is recorded.", show_default=False)] = None,
    arguments: ArgumentsOption = None,
    grant: GrantOption = None,
    seconds: GrantSecondsOption = 3_600,
    match: GrantMatchOption = "tool",
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Let calls run, on request with other arguments; let later calls of the tool run, too."""
    from portico.entrypoints.cli.clients.approvals import approve_one, decide_approvals

    payload = approval_payload(reason, arguments, grant, seconds, match)
    with failures_as_exits():
        (decide_approvals if arguments is None else approve_one)(url, key_file, ids, payload)


def grants(
    *,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the grants by which calls run unasked."""
    from portico.entrypoints.cli.clients.approvals import write_grants

    with failures_as_exits():
        write_grants(url, key_file, as_json=as_json)


def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of grants.")],
    *,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Revoke grants: later calls wait for a person again."""
    from portico.entrypoints.cli.clients.approvals import revoke_grants

    with failures_as_exits():
        revoke_grants(url, key_file, ids)


def deny(
    ids: IdsArgument,
    *,
    reason: Annotated[str | None, typer.Option(help="Reason, which the model sees.", show_default=False)] = None,
    url: UrlOption = DEFAULT_SERVER,
    key_file: KeyFileOption = None,
) -> None:
    """Refuse calls; the executions go on without them."""
    from portico.entrypoints.cli.clients.approvals import decide_approvals

    with failures_as_exits():
        decide_approvals(url, key_file, ids, {"decision": "deny", **({} if reason is None else {"reason": reason})})


def settle(
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
    key_file: KeyFileOption = None,
) -> None:
    """Say what has become of calls whose outcome is not known."""
    if (decision == "happened") != (result is not None):
        raise typer.BadParameter("goes with --decision happened, which needs it", param_hint="--result")
    from portico.entrypoints.cli.clients.approvals import settle_outcomes

    with failures_as_exits():
        settle_outcomes(url, key_file, ids, {"decision": decision, **({} if result is None else {"result": result})})
