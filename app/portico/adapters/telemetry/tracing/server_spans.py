"""SERVER spans: the FastAPI instrumentor begins and ends them, and a processor rebuilds them before they are exported.

The instrumentor may be made to record more by variables of the environment: headers with credentials, the query, the
client's address, messages of exceptions. Of a span that it ends, only the attributes that are listed here are exported,
with the ids that were decided for the request. So `OTEL_*` cannot change what leaves the process.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.propagate import set_global_textmap
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Scope

from portico.adapters.telemetry.tracing.provider import Tracing
from portico.domain.ids import SpanId, TraceId
from portico.ports.tracing import TRACE_KEY, CallerTrace, RequestTrace

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

ATTRIBUTES: Final = frozenset(
    {
        "http.request.method",
        "http.route",
        "url.path",
        "url.scheme",
        "server.address",
        "server.port",
        "http.response.status_code",
        "error.type",
        "user_agent.original",
        "network.protocol.version",
    }
)
"""Attributes of a SERVER span; no other one is exported."""
EXCLUDED_URLS: Final = (
    "^https?://[^/]+/(livez|readyz|metrics)$,^https?://[^/]+/v1/executions/[^/]+/events$,^https?://[^/]+/console(/|$)"
)
"""Probes, long reads and the files of the console, which have no span. The patterns are matched with the whole URL,
Host header included."""
_STABLE_NAMES: Final = ("OTEL_SEMCONV_STABILITY_OPT_IN", "http")
"""Variable that the instrumentation reads when it is used first: it gives attributes their stable names."""


class ServerSpans(SpanProcessor):
    """Instrumentation of the HTTP application: decides about each request, and exports its SERVER span."""

    def __init__(self, tracing: Tracing, new_trace_id: Callable[[], TraceId]) -> None:
        self._tracing = tracing
        self._new_trace_id = new_trace_id
        self._begun: dict[int, RequestTrace] = {}
        """The trace of every request whose span has not ended, by the span's id."""
        tracing.provider.add_span_processor(self)

    def decide(self, caller: CallerTrace | None) -> RequestTrace:
        """Return the trace of a request: the caller's, else a new one."""
        if caller is None:
            trace_id = self._new_trace_id()
            return RequestTrace(trace_id, None, self._tracing.is_sampled(trace_id))
        return RequestTrace(
            caller.trace_id, caller.span_id, self._tracing.is_sampled(caller.trace_id, caller_flags=caller.flags)
        )

    @contextmanager
    def instrumented(self, app: FastAPI) -> Iterator[ASGIApp]:
        """Yield the application's stack with the instrumentation around it; that of the application is unchanged."""
        os.environ.update([_STABLE_NAMES])
        # With the propagator `none` of the environment, the instrumentation would fail every request.
        set_global_textmap(TraceContextTextMapPropagator())
        FastAPIInstrumentor.instrument_app(
            app,
            server_request_hook=self._on_begin,
            tracer_provider=self._tracing.provider,
            meter_provider=NoOpMeterProvider(),
            excluded_urls=EXCLUDED_URLS,
            exclude_spans=["receive", "send"],
        )
        try:
            yield app.build_middleware_stack()
        finally:
            FastAPIInstrumentor.uninstrument_app(app)

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span as it may be exported. Spans that no request began are not."""
        context = span.context
        trace = None if context is None else self._begun.pop(context.span_id, None)
        if context is not None and trace is not None:
            self._tracing.queue.put([_rebuilt(span, context.span_id, trace)])

    def _on_begin(self, span: Span, scope: Scope) -> None:
        """Let the request know its span, which it hands on as the parent of its execution."""
        if span.is_recording():
            trace: RequestTrace = scope[TRACE_KEY]
            span_id = span.get_span_context().span_id
            trace.span_id = SpanId(f"{span_id:016x}")
            self._begun[span_id] = trace


def _rebuilt(span: ReadableSpan, span_id: int, trace: RequestTrace) -> ReadableSpan:
    attributes = _attributes(span.attributes or {})
    method, route = attributes.get("http.request.method", "HTTP"), attributes.get("http.route")
    name = "HTTP" if method == "_OTHER" else str(method)
    has_failed = "error.type" in attributes
    return ReadableSpan(
        name=name if route is None else f"{name} {route}",
        context=_context(trace.trace_id, span_id),
        parent=None if trace.parent_span_id is None else _context(trace.trace_id, int(trace.parent_span_id, 16)),
        resource=span.resource,
        attributes=attributes,
        links=[] if trace.link is None else [Link(_context(trace.link.trace_id, int(trace.link.span_id, 16)))],
        kind=SpanKind.SERVER,
        status=Status(StatusCode.ERROR if has_failed else StatusCode.UNSET),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _attributes(given: Mapping[str, Any]) -> "dict[str, AttributeValue]":
    """Return the attributes that may be exported: an address without port, and no path that is no route."""
    attributes = {name: value for name, value in given.items() if name in ATTRIBUTES}
    if "http.route" not in attributes:
        attributes.pop("url.path", None)
    address, port = attributes.get("server.address"), attributes.get("server.port")
    if isinstance(address, str):
        attributes["server.address"] = address.removesuffix(f":{port}")
    return attributes


def _context(trace_id: str, span_id: int) -> SpanContext:
    return SpanContext(int(trace_id, 16), span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
