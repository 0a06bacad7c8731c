"""Correlation of responses with requests and traces: X-Request-Id and the W3C traceparent."""

import re
from collections.abc import Callable
from typing import Final

from starlette.types import Scope

from portico.domain.ids import SpanId, TraceId
from portico.domain.value import value
from portico.entrypoints.http.negotiation import request_headers
from portico.ports.tracing import TRACE_KEY, CallerTrace, RequestTrace

Header = tuple[bytes, bytes]
SCOPE_KEY: Final = "portico.scope"
"""Key of the whole scope in that of which the instrumentation sees a part."""

SAMPLED: Final = 0x01
"""Bit of the trace flags; others may be set beside it."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@value
class Correlation:
    """The ids that every response carries. `trace_id` is 32 hex digits, `span_id` 16.

    The span is exported if it is `sampled`.
    """

    request_id: str
    trace_id: str
    span_id: str
    sampled: bool = False

    def headers(self) -> tuple[Header, Header]:
        """Return both headers."""
        traceparent = f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"
        return (b"x-request-id", self.request_id.encode()), (b"traceparent", traceparent.encode())


def caller_trace(scope: Scope) -> CallerTrace | None:
    """Return the caller's trace; None unless there is exactly one valid traceparent."""
    given = request_headers(scope).traceparent
    return parse_traceparent(given[0]) if len(given) == 1 else None


def parse_traceparent(header: bytes) -> CallerTrace | None:
    """Return what a traceparent says; None for a malformed one [W3C Trace Context]."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None or not _is_valid(match):
        return None
    return CallerTrace(TraceId(match[2].decode()), SpanId(match[3].decode()), int(match[4], 16))


def request_trace(scope: Scope) -> RequestTrace | None:
    """Return the trace of a request; without an export of traces, that of the caller, if there is one."""
    decided: RequestTrace | None = scope.get(TRACE_KEY)
    if decided is not None:
        return decided
    caller = caller_trace(scope)
    return None if caller is None else RequestTrace(caller.trace_id, caller.span_id, bool(caller.flags & SAMPLED))


def gateway_request_id(scope: Scope) -> str | None:
    """Return the X-Request-Id that a gateway or the client has given; None unless there is exactly one valid one.

    It is no `request_id` of an execution: a gateway gives the same one to each attempt at a request.
    """
    given = request_headers(scope).request_id
    return given[0].decode() if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]) else None


def correlate(scope: Scope, new_id: Callable[[], str], request_id: str | None = None) -> Correlation:
    """Return the ids of a response without an execution; they continue the caller's trace if there is one."""
    fresh = new_id()
    digits = fresh.replace("-", "")
    named = request_id or gateway_request_id(scope) or fresh
    trace = request_trace(scope)
    if trace is None:
        return Correlation(named, digits, digits[-16:])
    return Correlation(named, trace.trace_id, trace.span_id or digits[-16:], trace.span_id is not None)


def _is_valid(match: re.Match[bytes]) -> bool:
    version, trace_id, span_id, _, rest = match.groups()
    known = version != b"ff" and (version != b"00" or rest is None)
    return known and trace_id.strip(b"0") != b"" and span_id.strip(b"0") != b""
