"""Taking a `SystemRequest` off the wire, for whatever is then done with it; what is none is refused."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope

from app.bootstrap import Service
from app.domain.boundary import SystemRequest
from app.domain.failures import Code, Failure, RequestFailure
from app.entrypoints.http.body import claimed_id, parse, read_body
from app.entrypoints.http.correlation import correlate
from app.entrypoints.http.errors import CLOSE, problem

LATER_HEADERS = (b"prefer", b"idempotency-key")
_UNREAD = frozenset({Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA})
"""Refusals that leave the rest of the body unread, so that the connection is of no further use."""


async def taken(
    scope: Scope, receive: Receive, answer: Callable[[SystemRequest], Awaitable[ASGIApp]]
) -> ASGIApp | None:
    """What answers the request; None when the client left. Nothing of the body is held while it does.

    A Failure of `answer` refuses the request, as one of its own does.
    """
    service: Service = scope["app"].state.service
    headers: dict[bytes, bytes] = dict(scope["headers"])
    body: bytes | None = None
    try:
        _refuse_later_headers(headers)
        body = await read_body(headers, receive, service.settings.limits.body_bytes)
        if body is None:
            return None
        return await answer(await parse(body, service.settings.limits.json_depth))
    except Failure as failure:
        service.refused(failure.code)
        ids = correlate(scope, service.facade.new_id, claimed_id(body) if body else None)
        return problem(failure, ids, *((CLOSE,) if failure.code in _UNREAD else ()))


def _refuse_later_headers(headers: Mapping[bytes, bytes]) -> None:
    for name in LATER_HEADERS:
        if name in headers:
            shown = name.decode().title()
            errors = [{"field": shown, "message": "is not in this version"}]
            raise RequestFailure(Code.REQUEST_INVALID, f"{shown} is not in this version", {"errors": errors})
