"""What surrounds every answer: its ids, the hosts it is given for, and that a bug of ours says nothing but that."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.failures import Code, Failure, OrchestrationFailure, RequestFailure
from app.entrypoints.http.correlation import correlate, has_header
from app.entrypoints.http.errors import CLOSE, problem_response
from app.entrypoints.http.protocol import is_surplus

_LOG = logging.getLogger(__name__)
LIVENESS = "/livez"
NewId = Callable[[Scope], str]


class CorrelationMiddleware:
    """The outermost layer: adds X-Request-Id and traceparent where they are missing, and turns bugs into 500.

    `new_id` makes an id for a request of the given scope.
    """

    def __init__(self, app: ASGIApp, *, new_id: NewId) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        def named(message: Message) -> Awaitable[None]:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._name(scope, message)
            return send(message)

        try:
            await self._app(scope, receive, named)
        except Exception:  # an entry point: whatever was not foreseen must not reach the client
            if started:
                raise
            _LOG.exception("a request failed unforeseen")
            await self._refuse(scope, receive, named)

    def _name(self, scope: Scope, message: Message) -> None:
        headers = message["headers"]
        if not has_header(headers, b"x-request-id"):
            correlation = correlate(scope, lambda: self._new_id(scope))
            message["headers"] = [*headers, *correlation.headers()]

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        bug = OrchestrationFailure(Code.ORCHESTRATION_INVALID_TRANSITION, "the service has a bug; it has been logged")
        answer = problem_response(bug, correlate(scope, lambda: self._new_id(scope)))
        await answer(scope, receive, send)


class AdmissionMiddleware:
    """Refuses requests for hosts that are not ours, and whatever comes on surplus connections but the liveness probe.

    A pattern is a host, `*.` and a domain, or `*`. The Host header decides nothing else.
    """

    def __init__(self, app: ASGIApp, *, new_id: NewId, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._new_id = new_id
        self._any = "*" in allowed_hosts
        self._hosts = frozenset(host.lower() for host in allowed_hosts if not host.startswith("*"))
        self._domains = tuple(host[1:].lower() for host in allowed_hosts if host.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is None:
            await self._app(scope, receive, send)
            return
        answer = problem_response(refused, correlate(scope, lambda: self._new_id(scope)), CLOSE)
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> Failure | None:
        if is_surplus(scope) and scope["path"] != LIVENESS:
            return RequestFailure(Code.REQUEST_OVERLOADED, "too many connections", retry_after=1)
        if not self._any and not self._is_ours(dict(scope["headers"]).get(b"host", b"")):
            return RequestFailure(Code.REQUEST_INVALID, "the Host header names no host of ours", condition="syntax")
        return None

    def _is_ours(self, host: bytes) -> bool:
        name, _, port = host.decode("latin-1").lower().rpartition(":")
        if not port.isdigit():
            name = host.decode("latin-1").lower()
        return name in self._hosts or name.endswith(self._domains)
