"""Failures as HTTP: the status of a code, its headers, and RFC 9457 problem documents for refused requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, isfinite
from types import MappingProxyType
from typing import Any

import anyio
import orjson
from starlette.types import Receive, Scope, Send

from app.domain.contract import response
from app.domain.failures import TAXONOMY, Code, Failure
from app.entrypoints.http.correlation import Correlation, Header

JSON: Header = (b"content-type", b"application/json")
PROBLEM: Header = (b"content-type", b"application/problem+json")
CLOSE: Header = (b"connection", b"close")
LINGER_SECONDS = 5.0


def _statuses() -> Mapping[tuple[Code, bool], int]:
    table: dict[tuple[Code, bool], int] = {}
    for row in TAXONOMY.values():
        for variant in row.variants:
            table.setdefault((row.code, variant.retryable), variant.status)
    return MappingProxyType(table)


STATUS = _statuses()
"""The HTTP status by code and retryability: what a `SystemError` tells of its variant."""


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """A whole answer, as an ASGI application; one of 204 has no body, nor the length of one [RFC 9110].

    With `CLOSE` it is for a client that may still be sending. What comes is thrown away for `LINGER_SECONDS` at most,
    because closing on unread bytes resets the connection, and the client would lose the answer.
    """

    status: int
    body: bytes
    headers: tuple[Header, ...] = field(default=(JSON,))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = [] if self.status == 204 else [(b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": [*self.headers, *length]})
        lingers = CLOSE in self.headers
        await send({"type": "http.response.body", "body": self.body, "more_body": lingers})
        if lingers:
            await _throw_away(receive)
            await send({"type": "http.response.body"})


def status_of(error: response.SystemError) -> int:
    """The HTTP status an execution's failure is answered with."""
    return STATUS[error.code, error.retryable]


def retry_headers(error: response.SystemError) -> tuple[Header, ...]:
    """What a client's retry logic reads: `x-should-retry`, and `Retry-After` in whole seconds where it is known."""
    should = (b"x-should-retry", b"true" if error.retryable else b"false")
    seconds = error.details.get("retry_after")
    if not isinstance(seconds, int | float) or not isfinite(seconds) or seconds < 0:
        return (should,)
    return should, (b"retry-after", b"%d" % ceil(seconds))


def problem_response(failure: Failure, correlation: Correlation, *extra: Header) -> WholeResponse:
    """The answer to a request that was refused before an execution existed [RFC 9457]."""
    error = response.SystemError.of(failure)
    headers = (PROBLEM, *correlation.headers(), *retry_headers(error), *extra)
    return WholeResponse(failure.status, orjson.dumps(_document(failure, error, correlation.request_id)), headers)


async def _throw_away(receive: Receive) -> None:
    with anyio.move_on_after(LINGER_SECONDS):
        while (await receive()).get("more_body", False):
            pass


def _document(failure: Failure, error: response.SystemError, request_id: str) -> dict[str, Any]:
    return {
        "type": f"/v1/errors#{failure.code}",
        "title": TAXONOMY[failure.code].meaning,
        "status": failure.status,
        "detail": failure.message,
        "instance": f"/requests/{request_id}",
        "request_id": request_id,
        **error.model_dump(mode="json"),
    }
