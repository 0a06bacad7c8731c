"""Front of the application while traces are exported: decides about a request before anything is recorded of it.

Theory of operation

1. A request that is not recorded goes to the plain application and costs no more than the decision.
2. Every other one goes to the instrumented application. The instrumentation sees the method, the path, the host, the
   client's program and the accepted traceparent, and nothing else: no credentials, no query, no address of the client,
   neither tracestate nor baggage. `CorrelationMiddleware`, the first layer behind it, goes on with the whole request.
3. A response may name an execution of another trace, as that of a resume does. The request's span then links to the
   root span of that execution.
"""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portico.domain.ids import SpanId, TraceId
from portico.domain.journal.header import SpanLink
from portico.entrypoints.http.correlation import SCOPE_KEY, caller_trace, parse_traceparent
from portico.ports.tracing import TRACE_KEY, CallerTrace, RequestTrace

_SHOWN_HEADERS = frozenset({b"host", b"user-agent"})


class TraceFront:
    """ASGI application that hands requests to the `recorded` application or to the `plain` one, as `decide` says."""

    def __init__(self, plain: ASGIApp, recorded: ASGIApp, decide: Callable[[CallerTrace | None], RequestTrace]) -> None:
        self._plain = plain
        self._recorded = recorded
        self._decide = decide

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = caller_trace(scope)
        trace = scope[TRACE_KEY] = self._decide(caller)
        if trace.sampled:
            await self._recorded(_shown(scope, caller), receive, _linking(send, trace))
        else:
            await self._plain(scope, receive, send)


def _shown(scope: Scope, caller: CallerTrace | None) -> Scope:
    """Return the request as the instrumentation may see it."""
    headers = [(name, value) for name, value in scope["headers"] if name in _SHOWN_HEADERS and value.isascii()]
    if caller is not None:
        traceparent = f"00-{caller.trace_id}-{caller.span_id}-{caller.flags:02x}"
        headers.append((b"traceparent", traceparent.encode()))
    return {**scope, "headers": headers, "query_string": b"", "client": None, SCOPE_KEY: scope}


def _linking(send: Send, trace: RequestTrace) -> Send:
    """Return a `send` that takes the root span of an execution in another trace from the response."""

    def send_and_link(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            named = parse_traceparent(dict(message["headers"]).get(b"traceparent", b""))
            if named is not None and named.trace_id != trace.trace_id and named.flags:
                trace.link = SpanLink(TraceId(named.trace_id), SpanId(named.span_id))
        return send(message)

    return send_and_link
