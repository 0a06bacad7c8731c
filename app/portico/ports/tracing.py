"""Traces of requests: what the instrumentation of a server and the routes behind it share."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from portico.domain.ids import SpanId, TraceId
from portico.domain.journal.header import SpanLink

TRACE_KEY: Final = "portico.trace"
"""Key of the trace of a request in its ASGI scope."""


class CallerTrace(NamedTuple):
    """Trace of a caller: its id, the caller's span, and the trace flags [W3C Trace Context]."""

    trace_id: TraceId
    span_id: SpanId
    flags: int


@dataclass(slots=True)
class RequestTrace:
    """Trace of a request, about which is decided before the request is looked at.

    `parent_span_id` is the caller's span, `span_id` the recorded SERVER span of the request, once there is one. `link`
    is the root span of an execution in another trace, which the response names.
    """

    trace_id: TraceId
    parent_span_id: SpanId | None
    sampled: bool
    span_id: SpanId | None = None
    link: SpanLink | None = None
