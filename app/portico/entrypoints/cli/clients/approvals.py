"""Approvals at the command line: the calls of a server that wait for a person, and the decisions on them."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Final

import orjson
from pydantic import JsonValue

from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code, RequestFailure
from portico.entrypoints.cli.clients.approval_client import ApprovalClient, CallKind, OpenCall, OpenGrant
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.display.terminal import printable
from portico.settings import client_key

_COLUMNS: Final = ("id", "kind", "because", "user", "agent", "asked", "tool", "call")
_GRANT_COLUMNS: Final = ("id", "tool", "for", "match", "request", "agent", "user", "by", "expires", "uses")
_KINDS: Sequence[CallKind] = (SuspensionKind.APPROVAL, SuspensionKind.UNKNOWN_OUTCOME)


def write_open_calls(url: str, key_file: Path | None, *, as_json: bool) -> None:
    """Write the calls that wait for a person to standard output, as a table or one JSON object per line.

    Raises: Failure.
    """
    with ApprovalClient.open(url, client_key(key_file)) as client:
        found = [call for kind in _KINDS for call in client.open_calls(kind)]
    if as_json:
        sys.stdout.write("".join(call.model_dump_json() + "\n" for call in found))
    else:
        write_table([_COLUMNS, *map(_row, found)])


def decide_approvals(url: str, key_file: Path | None, ids: Sequence[str], payload: dict[str, JsonValue]) -> None:
    """Send the decision on calls that wait for an approval. Raises: Failure."""
    _decide(url, key_file, ids, SuspensionKind.APPROVAL, payload)


def approve_one(url: str, key_file: Path | None, ids: Sequence[str], payload: dict[str, JsonValue]) -> None:
    """Approve a call with other arguments, which are for one call only. Raises: Failure."""
    with ApprovalClient.open(url, client_key(key_file)) as client:
        named = _named(ids, client.open_calls(SuspensionKind.APPROVAL), SuspensionKind.APPROVAL)
        if len(named) != 1:
            message = f"--arguments is for one call, and {len(named)} are named"
            raise RequestFailure(Code.REQUEST_RESUME_MISMATCH, message)
        _answer(client, named[0], payload)


def write_grants(url: str, key_file: Path | None, *, as_json: bool) -> None:
    """Write the grants that cover calls yet, as a table or one JSON object per line. Raises: Failure."""
    with ApprovalClient.open(url, client_key(key_file)) as client:
        found = client.grants()
    if as_json:
        sys.stdout.write("".join(grant.model_dump_json(by_alias=True) + "\n" for grant in found))
    else:
        write_table([_GRANT_COLUMNS, *map(_grant_row, found)])


def revoke_grants(url: str, key_file: Path | None, ids: Sequence[str]) -> None:
    """Revoke grants one by one, and print their ids. Raises: Failure."""
    with ApprovalClient.open(url, client_key(key_file)) as client:
        for grant_id in ids:
            client.revoke(grant_id)
            sys.stdout.write(printable(f"revoked  {grant_id}") + "\n")


def settle_outcomes(url: str, key_file: Path | None, ids: Sequence[str], payload: dict[str, JsonValue]) -> None:
    """Send the decision on calls whose outcome is not known. Raises: Failure."""
    _decide(url, key_file, ids, SuspensionKind.UNKNOWN_OUTCOME, payload)


def _decide(url: str, key_file: Path | None, ids: Sequence[str], kind: CallKind, payload: dict[str, JsonValue]) -> None:
    """Send the decision for every call that the ids name, once all of them are found, and print those calls."""
    with ApprovalClient.open(url, client_key(key_file)) as client:
        for call in _named(ids, client.open_calls(kind), kind):
            _answer(client, call, payload)


def _answer(client: ApprovalClient, call: OpenCall, payload: dict[str, JsonValue]) -> None:
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


def _row(call: OpenCall) -> tuple[str, ...]:
    return (
        call.name,
        call.kind,
        call.asked_because or "-",
        call.user,
        call.agent or "-",
        "-" if call.asked_at is None else f"{call.asked_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        call.tool_id,
        _shown_call(call),
    )


def _shown_call(call: OpenCall) -> str:
    """Return the call, and who has approved it so far, if more than one user must."""
    text, given = orjson.dumps(call.value).decode(), call.approvals
    if given is None:
        return text
    users = ", ".join(each.user for each in given.given) or "none yet"
    changed = "" if given.arguments is None else f" with {orjson.dumps(given.arguments).decode()}"
    return f"{text} [{len(given.given)} of {given.needed}: {users}{changed}]"


def _grant_row(grant: OpenGrant) -> tuple[str, ...]:
    expires = f"{grant.expires_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    names = (grant.grant_id, grant.tool, grant.scope, grant.match, grant.request_id, grant.agent or "-")
    return (*names, grant.user, grant.granted_by, expires, str(grant.uses))
