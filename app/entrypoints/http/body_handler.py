"""Taking a body off the wire, as a `SystemRequest` or whatever else a route is sent; what is none is refused."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope

from app.bootstrap.service import Service
from app.domain.failures import Code, Failure
from app.entrypoints.http.body import claimed_request_id, parse_body, read_body
from app.entrypoints.http.correlation import Header, correlate
from app.entrypoints.http.errors import CLOSE, WholeResponse, problem_response

M = TypeVar("M", bound=BaseModel)
_UNREAD = frozenset({Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA})
"""Refusals that leave the rest of the body unread, so that the connection is of no further use."""


async def with_json_body(
    scope: Scope,
    receive: Receive,
    *,
    model: type[M],
    answer: Callable[[M], Awaitable[ASGIApp]],
    request_id: str | None = None,
) -> ASGIApp | None:
    """What answers the request; None when the client left. Nothing of the body is held while it does.

    A Failure of `answer` refuses the request, as one of its own does. It is refused under the `request_id` that the
    path names, else under the one that the body claims.
    """
    service: Service = scope["app"].state.service
    body: bytes | None = None
    try:
        body = await read_body(dict(scope["headers"]), receive, service.settings.limits.body_bytes)
        if body is None:
            return None
        return await answer(await parse_body(body, service.settings.limits.json_depth, model))
    except Failure as failure:
        named = request_id or (claimed_request_id(body) if body else None)
        return refusal(scope, failure, named, *((CLOSE,) if failure.code in _UNREAD else ()))


def refusal(scope: Scope, failure: Failure, request_id: str | None, *extra: Header) -> WholeResponse:
    """The refusal as a problem document, counted. It says where the execution is that it speaks of."""
    service: Service = scope["app"].state.service
    service.count_refusal(failure.code)
    where = failure.details.get("request_id")
    located = () if where is None else (location_header(where),)
    return problem_response(failure, correlate(scope, service.facade.new_id, request_id), *located, *extra)


def location_header(request_id: str) -> Header:
    """Where an execution is."""
    return b"location", b"/v1/executions/%b" % request_id.encode()
