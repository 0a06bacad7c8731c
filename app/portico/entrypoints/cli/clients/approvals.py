"""Approvals at the command line: the calls of a server that wait for a person, and the decisions on them.

These commands are clients of a server, so that its permissions and its audit hold. The key of the caller comes from
the environment.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from typing import Annotated, Final, Literal

import orjson
import typer
from pydantic import JsonValue

from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code, RequestFailure
from portico.entrypoints.cli.clients.approval_client import ApprovalClient, CallKind, OpenCall
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.exit_codes import EPILOG, failures_as_exits, printable
from portico.entrypoints.cli.options import DEFAULT_SERVER, UrlOption
from portico.settings import CLIENT_KEY, client_key

_COLUMNS: Final = ("id", "kind", "user", "asked", "tool", "call")
_KINDS: Sequence[CallKind] = (SuspensionKind.APPROVAL, SuspensionKind.UNKNOWN_OUTCOME)


def approval_commands() -> typer.Typer:
    """Return the commands."""
    approvals = typer.Typer(
        help=f"List the tool calls of a server that wait for a person, and decide. The key is that of {CLIENT_KEY}.",
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
    with _client(url) as client:
        found = [call for kind in _KINDS for call in client.open_calls(kind)]
    if as_json:
        sys.stdout.write("".join(call.model_dump_json() + "\n" for call in found))
    else:
        write_table([_COLUMNS, *map(_row, found)])


def _approve(ids: IdsArgument, *, url: UrlOption = DEFAULT_SERVER) -> None:
    """Let calls run."""
    _decide(url, ids, SuspensionKind.APPROVAL, {"decision": "approve"})


def _deny(
    ids: IdsArgument,
    *,
    reason: Annotated[str | None, typer.Option(help="Reason, which the model sees.", show_default=False)] = None,
    url: UrlOption = DEFAULT_SERVER,
) -> None:
    """Refuse calls; the executions go on without them."""
    _decide(url, ids, SuspensionKind.APPROVAL, {"decision": "deny", **({} if reason is None else {"reason": reason})})


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
    payload: dict[str, JsonValue] = {"decision": decision, **({} if result is None else {"result": result})}
    _decide(url, ids, SuspensionKind.UNKNOWN_OUTCOME, payload)


def _decide(url: str, ids: Sequence[str], kind: CallKind, payload: dict[str, JsonValue]) -> None:
    """Send the decision for every call that the ids name, once all of them are found, and print those calls."""
    with _client(url) as client:
        for call in _named(ids, client.open_calls(kind), kind):
            client.answer(call, payload)
            line = f"{payload['decision']}  {call.name}  {call.tool_id}"
            sys.stdout.write(printable(line) + "\n")


def _named(ids: Sequence[str], calls: Iterable[OpenCall], kind: CallKind) -> list[OpenCall]:
    """Return the calls that the ids name, in the order of the list. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
    found = [call for call in calls if {call.name, call.request_id}.intersection(ids)]
    unknown = set(ids).difference(*({call.name, call.request_id} for call in found))
    if unknown:
        message = f"no open {kind} is or belongs to {', '.join(map(ascii, sorted(unknown)))}"
        raise RequestFailure(Code.REQUEST_NOT_FOUND, message)
    return found


@contextmanager
def _client(url: str) -> Iterator[ApprovalClient]:
    with failures_as_exits(), ApprovalClient.open(url, client_key()) as client:
        yield client


def _row(call: OpenCall) -> tuple[str, ...]:
    return (
        call.name,
        call.kind,
        call.user,
        "-" if call.asked_at is None else f"{call.asked_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        call.tool_id,
        orjson.dumps(call.value).decode(),
    )
