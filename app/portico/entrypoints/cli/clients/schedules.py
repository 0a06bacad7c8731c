"""Schedules of a server at the command line."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson
from pydantic import BaseModel

from portico.entrypoints.cli.clients.server_client import ServerClient
from portico.entrypoints.cli.display.table import write_table
from portico.entrypoints.cli.display.terminal import printable
from portico.settings import client_key

_PAGE_SIZE: Final = 100
_SCHEDULES: Final = "/v1/schedules"
_COLUMNS: Final = ("name", "cron", "timezone", "user", "next_at", "last", "paused_because")
_RUN_COLUMNS: Final = ("at", "outcome", "code", "state", "request_id")


class _Page(BaseModel):
    data: list[dict[str, Any]]
    next: str | None


class _Stored(BaseModel):
    next_at: str | None


class _Started(BaseModel):
    request_id: str


def write_schedules(url: str, key_file: Path | None, *, as_json: bool) -> None:
    """Write the schedules as a table or one JSON object per line. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        found = [*_pages(client, _SCHEDULES)]
    rows = [{**each, "last": (each.get("last") or {}).get("outcome")} for each in found]
    _write(_COLUMNS, found if as_json else rows, as_json=as_json)


def schedule_of(cron: str, timezone: str, message: str) -> bytes:
    """Return the JSON of a schedule whose runs have this message of the user."""
    request = {"messages": [{"role": "user", "content": message}]}
    return orjson.dumps({"cron": cron, "timezone": timezone, "request": request})


def put_schedule(url: str, key_file: Path | None, name: str, body: bytes) -> None:
    """Store a schedule and write its next time. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        stored = client.parsed(_Stored, client.send("PUT", _path(name), {}, body), "a schedule")
    _say(f"{name}  {stored.next_at or 'paused'}")


def delete_schedule(url: str, key_file: Path | None, name: str) -> None:
    """Delete a schedule. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        client.send("DELETE", _path(name), {})
    _say(f"deleted  {name}")


def run_schedule(url: str, key_file: Path | None, name: str) -> None:
    """Run a schedule now and write the id of the execution. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        started = client.parsed(_Started, client.send("POST", f"{_path(name)}/runs", {}), "a run")
    _say(started.request_id)


def write_runs(url: str, key_file: Path | None, name: str, limit: int, *, as_json: bool) -> None:
    """Write what became of the times of a schedule. Raises: Failure."""
    with ServerClient.open(url, client_key(key_file)) as client:
        found = [*islice(_pages(client, f"{_path(name)}/runs"), limit)]
    _write(_RUN_COLUMNS, found, as_json=as_json)


def _pages(client: ServerClient, path: str) -> Iterator[dict[str, Any]]:
    after: dict[str, str] = {}
    while True:
        page = client.parsed(_Page, client.send("GET", path, {"limit": str(_PAGE_SIZE), **after}), "a list")
        yield from page.data
        if page.next is None:
            return
        after = {"after": page.next}


def _path(name: str) -> str:
    return f"{_SCHEDULES}/{quote(name, safe='')}"


def _write(columns: Sequence[str], found: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write("".join(orjson.dumps(each).decode() + "\n" for each in found))
    else:
        names = [name.replace("_", " ") for name in columns]
        write_table([names, *([str(each.get(name) or "-") for name in columns] for each in found)])


def _say(line: str) -> None:
    sys.stdout.write(printable(line) + "\n")
