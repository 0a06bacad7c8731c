"""Failures as HTTP responses: status and retry headers of a code, and RFC 9457 problem documents."""

from collections.abc import Mapping
from math import ceil, isfinite
from types import MappingProxyType
from typing import Any

import anyio
import orjson
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from portico.domain.contract.response import SystemError
from portico.domain.failures import TAXONOMY, Code, Failure
from portico.entrypoints.http.correlation import Correlation, Header

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


QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""Problem type of a request over a limit [draft-ietf-httpapi-ratelimit-headers]."""
STATUS = _statuses()
"""HTTP status by code and retryability, the two facts of a variant that a `SystemError` has."""


class Problem(SystemError):  # noqa: N818 - a model, not an exception
    """A request that was refused before an execution existed, as a problem document [RFC 9457]."""

    type: str = Field(description="Reference that names the kind of problem.")
    title: str = Field(description="Kind of problem, for people.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="Explanation for people; never echoes input.")
    instance: str = Field(description="Reference that names this occurrence.")
    request_id: str = Field(description="Id of the request.")
    violated_policies: list[str] | None = Field(
        None, alias="violated-policies", description="Limits that are used up, by their names in `RateLimit-Policy`."
    )


class WholeResponse(Response):
    """A response whose body is complete when it is made. Status 204 has neither body nor length [RFC 9110].

    A response with `CLOSE` is for a client that may still be sending. The rest of the request is discarded for up to
    `LINGER_SECONDS`, because closing on unread bytes resets the connection and the client would lose the response.
    """

    def __init__(self, status: int, body: bytes, headers: tuple[Header, ...] = (JSON,)) -> None:
        length = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [*headers, *length]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lingers = CLOSE in self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": lingers})
        if lingers:
            await _discard_body(receive)
            await send({"type": "http.response.body"})


def status_of(error: SystemError) -> int:
    """Return the HTTP status of a response with this error."""
    return STATUS[error.code, error.retryable]


def retry_headers(error: SystemError) -> tuple[Header, ...]:
    """Return `x-should-retry`, and `Retry-After` in whole seconds if the delay is known."""
    should = (b"x-should-retry", b"true" if error.retryable else b"false")
    seconds = error.details.get("retry_after")
    if not isinstance(seconds, int | float) or not isfinite(seconds) or seconds < 0:
        return (should,)
    return should, (b"retry-after", b"%d" % ceil(seconds))


def problem_response(failure: Failure, correlation: Correlation, *extra: Header) -> WholeResponse:
    """Return the response to a request that was refused before an execution existed [RFC 9457]."""
    error = SystemError.of(failure)
    headers = (PROBLEM, *correlation.headers(), *retry_headers(error), *extra)
    document = problem_document(error, failure.status, correlation.request_id)
    return WholeResponse(failure.status, orjson.dumps(document), headers)


def record_refusal(
    scope: Scope, failure: Failure, correlation: Correlation, *, status: int, principal: str | None = None
) -> None:
    """Count and log a request that was refused with this HTTP status before an execution existed.

    Of its path only the route is logged. `principal` names the caller without a secret, as far as it is known.
    """
    scope["app"].state.service.record_refusal(
        failure,
        status=status,
        method=scope["method"],
        route=getattr(scope.get("route"), "path", None),
        request_id=correlation.request_id,
        trace_id=correlation.trace_id,
        span_id=correlation.span_id,
        principal=principal,
    )


async def _discard_body(receive: Receive) -> None:
    with anyio.move_on_after(LINGER_SECONDS):
        while (await receive()).get("more_body", False):
            pass


def problem_document(error: SystemError, status: int, request_id: str) -> dict[str, Any]:
    """Return the members of a problem document about an error [RFC 9457]."""
    return {
        **_problem_type(error),
        "status": status,
        "detail": error.message,
        "instance": f"/requests/{request_id}",
        "request_id": request_id,
        **error.model_dump(mode="json"),
    }


def _problem_type(error: SystemError) -> dict[str, Any]:
    """Return the kind of problem; that of a request over a limit is registered, and names the limits."""
    title = TAXONOMY[error.code].meaning
    violated = error.details.get("violated_policies")
    if violated is None:
        return {"type": f"/v1/errors#{error.code}", "title": title}
    return {"type": QUOTA_EXCEEDED, "title": title, "violated-policies": violated}
