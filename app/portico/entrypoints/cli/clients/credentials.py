"""Credentials of a server at the command line; a value is read, and never written."""

import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson
from pydantic import BaseModel

from portico.entrypoints.cli.clients.server_client import ServerClient
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.display.terminal import printable
from portico.settings import client_key

_CREDENTIALS: Final = "/v1/credentials"
_COLUMNS: Final = ("name", "type", "owner", "set_at", "expires_at", "rejected", "description")


class _List(BaseModel):
    data: list[dict[str, Any]]


def write_credentials(url: str, key_file: Path | None, *, as_json: bool) -> None:
    """Write the credentials as a table or one JSON object per line. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        found = client.parsed(_List, client.send("GET", _CREDENTIALS, {}), "a list of credentials").data
    if as_json:
        sys.stdout.write("".join(orjson.dumps(each).decode() + "\n" for each in found))
        return
    rows = [{**each, "rejected": "yes" if each.get("rejected") else ""} for each in found]
    names = [name.replace("_", " ") for name in _COLUMNS]
    write_table([names, *([str(each.get(name) or "-") for name in _COLUMNS] for each in rows)])


def set_credential(url: str, key_file: Path | None, name: str, value: str, *, of_tenant: bool) -> None:
    """Set a value. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        client.send("PUT", _path(name), _query(of_tenant=of_tenant), orjson.dumps({"value": value}))
    sys.stdout.write(printable(f"set  {name}") + "\n")


def delete_credential(url: str, key_file: Path | None, name: str, *, of_tenant: bool) -> None:
    """Delete a value. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        client.send("DELETE", _path(name), _query(of_tenant=of_tenant))
    sys.stdout.write(printable(f"deleted  {name}") + "\n")


def _path(name: str) -> str:
    return f"{_CREDENTIALS}/{quote(name, safe='')}"


def _query(*, of_tenant: bool) -> dict[str, str]:
    return {"owner": "tenant"} if of_tenant else {}
