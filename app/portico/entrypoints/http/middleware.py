"""Middleware, as pure ASGI: correlation headers, the generic 500, the host check and the connection limit."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.domain.failures import Code, Failure, OrchestrationFailure, RequestFailure
from portico.domain.value import value
from portico.entrypoints.http.client_errors import refusal_response
from portico.entrypoints.http.context import CONTEXT_KEY, RequestContext
from portico.entrypoints.http.correlation import SCOPE_KEY, correlate, gateway_request_id
from portico.entrypoints.http.errors import CLOSE, problem_response, record_refusal
from portico.entrypoints.http.negotiation import request_headers
from portico.entrypoints.http.protocol import is_surplus
from portico.entrypoints.http.rate_limits import client_rate_limit_headers, rate_limit_headers

_LOG = logging.getLogger(__name__)
LIVENESS = "/livez"
METRICS = "/metrics"
_READING_METHODS = frozenset({"GET", "HEAD"})
_BUG = OrchestrationFailure(Code.ORCHESTRATION_INVALID_TRANSITION, "internal error; the service has logged it")
NewId = Callable[[Scope], str]


class CorrelationMiddleware:
    """The outermost layer: adds missing X-Request-Id and traceparent headers and turns unexpected errors into 500.

    If a gateway has given another X-Request-Id to a request that may change something, both ids are logged together.
    `new_id` makes an id for a request of the given scope. Of a request that is recorded, the instrumentation in front
    sees a part; from here on it is whole.
    """

    def __init__(self, app: ASGIApp, *, new_id: NewId) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = scope.get(SCOPE_KEY, scope)
        started = False

        def send_correlated(message: Message) -> Awaitable[None]:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._add_headers(scope, message)
            return send(message)

        try:
            await self._app(scope, receive, send_correlated)
        except Exception:  # an entry point: no unexpected error may reach the client
            if started:
                raise
            correlation = correlate(scope, lambda: self._new_id(scope))
            ids = {"trace_id": correlation.trace_id, "span_id": correlation.span_id}
            _LOG.exception("unexpected error in a request", extra=ids)
            context: RequestContext | None = scope.get(CONTEXT_KEY)
            shape = None if context is None else context.error_shape
            await refusal_response(shape, _BUG, correlation)(scope, receive, send_correlated)
        finally:
            # The scope and its context name each other, so only a collection would free them.
            scope.pop(CONTEXT_KEY, None)

    def _add_headers(self, scope: Scope, message: Message) -> None:
        context: RequestContext | None = scope.get(CONTEXT_KEY)
        if context is not None and context.shows_limits:
            limits = context.facade.limits_of(context.principal)
            if limits:
                message["headers"] = [*message["headers"], *rate_limit_headers(limits, context.refusal)]
                if context.error_shape is not None:
                    message["headers"] += client_rate_limit_headers(limits, context.refusal)
        headers = message["headers"]
        found = dict(headers)
        request_id: bytes | None = found.get(b"x-request-id")
        if request_id is None:
            correlation = correlate(scope, lambda: self._new_id(scope))
            message["headers"] = [*headers, *correlation.headers()]
        elif scope["method"] not in _READING_METHODS and request_headers(scope).request_id:
            given = gateway_request_id(scope)
            if given is not None and given != request_id.decode():
                _, trace_id, span_id, _ = found[b"traceparent"].decode().split("-")
                ids = {"request_id": request_id.decode(), "trace_id": trace_id, "span_id": span_id}
                scope["app"].state.service.link_request(given, **ids)


@value
class Listeners:
    """The hosts for which requests are accepted, and the port that has the metrics and nothing else, if there is one.

    A host pattern is a host, `*.` and a domain, or `*`. `is_public` tells that others reach the metrics port by any
    host.
    """

    allowed_hosts: Sequence[str]
    metrics_port: int | None = None
    is_public: bool = False


class AdmissionMiddleware:
    """Refusal of requests for foreign hosts, of all requests on surplus connections but the liveness probe, and of
    requests on the wrong port. The Host header decides nothing else.
    """

    def __init__(self, app: ASGIApp, *, new_id: NewId, listeners: Listeners) -> None:
        self._app = app
        self._new_id = new_id
        self._listeners = listeners
        allowed_hosts = listeners.allowed_hosts
        self._allows_any = "*" in allowed_hosts
        self._hosts = frozenset(host.lower() for host in allowed_hosts if not host.startswith("*"))
        self._domains = tuple(host[1:].lower() for host in allowed_hosts if host.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure = self._failure(scope) if scope["type"] == "http" else None
        if failure is None:
            await self._app(scope, receive, send)
            return
        correlation = correlate(scope, lambda: self._new_id(scope))
        record_refusal(scope, failure, correlation, status=failure.status)
        await problem_response(failure, correlation, CLOSE)(scope, receive, send)

    def _failure(self, scope: Scope) -> Failure | None:
        if is_surplus(scope) and scope["path"] != LIVENESS:
            return RequestFailure(Code.REQUEST_OVERLOADED, "too many connections", retry_after=1)
        is_for_metrics = self._listeners.metrics_port is not None and scope["server"][1] == self._listeners.metrics_port
        if self._listeners.metrics_port is not None and is_for_metrics != (scope["path"] == METRICS):
            return RequestFailure(Code.REQUEST_NOT_FOUND, "there is nothing at this path", condition="path")
        if is_for_metrics and self._listeners.is_public:
            return None
        if not self._allows_any and not self._is_allowed(dict(scope["headers"]).get(b"host", b"")):
            message = "the Host header is none of server.allowed_hosts"
            return RequestFailure(Code.REQUEST_INVALID, message, condition="syntax")
        return None

    def _is_allowed(self, host: bytes) -> bool:
        name, _, port = host.decode("latin-1").lower().rpartition(":")
        if not port.isdigit():
            name = host.decode("latin-1").lower()
        return name in self._hosts or name.endswith(self._domains)
