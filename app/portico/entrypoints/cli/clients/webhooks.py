"""Webhooks at the command line: the endpoints of a server that hear of a tenant, and the deliveries to them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson
from pydantic import BaseModel, ConfigDict

from portico.entrypoints.cli.clients.server_client import ServerClient
from portico.entrypoints.cli.display.table import write_table
from portico.settings import client_key

_PATH: Final = "/v1/webhooks"
_ENDPOINT_COLUMNS: Final = ("name", "source", "url", "events", "always", "content", "state")
_DELIVERY_COLUMNS: Final = (
    "id",
    "endpoint",
    "type",
    "execution",
    "state",
    "attempts",
    "status",
    "error",
    "created",
    "next",
)
_PAGE_SIZE: Final = 1_000


class _Item(BaseModel):
    """Item of a list, with every other field that the server has sent."""

    model_config = ConfigDict(extra="allow")


class _Endpoint(_Item):
    name: str
    source: str
    url: str
    events: list[str]
    always: bool
    content: bool
    disabled_because: str | None = None
    failing_since: str | None = None


class _NewEndpoint(_Endpoint):
    secret: str | None = None


class _Endpoints(BaseModel):
    data: list[_Endpoint]


class _Delivery(_Item):
    delivery_id: str
    endpoint: str
    type: str
    request_id: str | None
    state: str
    attempts: int
    last_status: int | None
    last_error: str | None
    created_at: str
    next_at: str | None


class _Deliveries(BaseModel):
    data: list[_Delivery]


class _Accepted(BaseModel):
    delivery_id: str


class WebhookClient(ServerClient):
    """Client of the webhooks of one server. Raises: Failure."""

    @classmethod
    @contextmanager
    def of(cls, url: str, key_file: Path | None) -> "Iterator[WebhookClient]":
        """Yield the client of the server at that URL, with the key of the caller."""
        with cls.open(url, client_key(key_file)) as client:
            yield client

    def write_endpoints(self, *, as_json: bool) -> None:
        """Write the endpoints to standard output, as a table or one JSON object per line."""
        found = self.parsed(_Endpoints, self.send("GET", _PATH, {}), "webhooks").data
        if as_json:
            sys.stdout.write("".join(each.model_dump_json() + "\n" for each in found))
        else:
            write_table([_ENDPOINT_COLUMNS, *map(_endpoint_row, found)])

    def put(self, name: str, body: dict[str, Any]) -> None:
        """Make or change an endpoint; the secret of a new one is written to standard output, once."""
        answer = self.send("PUT", _endpoint(name), {}, orjson.dumps(body))
        self._write_secret(self.parsed(_NewEndpoint, answer, "an endpoint").secret)

    def delete(self, name: str) -> None:
        """Delete an endpoint."""
        self.send("DELETE", _endpoint(name), {})

    def rotate(self, name: str) -> None:
        """Give an endpoint a new secret, which is written to standard output, once."""
        answer = self.send("POST", f"{_endpoint(name)}/rotate", {})
        self._write_secret(self.parsed(_NewEndpoint, answer, "an endpoint").secret)

    def test(self, name: str) -> None:
        """Send an endpoint a test, and write the id of the delivery."""
        answer = self.send("POST", f"{_endpoint(name)}/test", {})
        sys.stdout.write(self.parsed(_Accepted, answer, "a delivery").delivery_id + "\n")

    def write_deliveries(self, query: dict[str, str], *, as_json: bool) -> None:
        """Write the newest deliveries to standard output, as a table or one JSON object per line."""
        answer = self.send("GET", f"{_PATH}/deliveries", {**query, "limit": str(_PAGE_SIZE)})
        found = self.parsed(_Deliveries, answer, "deliveries").data
        if as_json:
            sys.stdout.write("".join(each.model_dump_json() + "\n" for each in found))
        else:
            write_table([_DELIVERY_COLUMNS, *map(_delivery_row, found)])

    def retry(self, delivery_id: str) -> None:
        """Have a delivery sent again, and write its id."""
        answer = self.send("POST", f"{_PATH}/deliveries/{quote(delivery_id, safe='')}/retry", {})
        sys.stdout.write(self.parsed(_Accepted, answer, "a delivery").delivery_id + "\n")

    def _write_secret(self, secret: str | None) -> None:
        if secret is not None:
            sys.stdout.write(secret + "\n")


def _endpoint(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"


def _endpoint_row(each: _Endpoint) -> tuple[str, ...]:
    state = "on" if each.failing_since is None else "failing"
    state = state if each.disabled_because is None else f"off: {each.disabled_because}"
    flags = "yes" if each.always else "no", "yes" if each.content else "no"
    return each.name, each.source, each.url, " ".join(each.events), *flags, state


def _delivery_row(each: _Delivery) -> tuple[str, ...]:
    status = "-" if each.last_status is None else str(each.last_status)
    about = each.delivery_id, each.endpoint, each.type, each.request_id or "-", each.state
    return *about, str(each.attempts), status, each.last_error or "-", each.created_at, each.next_at or "-"
