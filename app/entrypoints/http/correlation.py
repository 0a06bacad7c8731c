"""Correlation of responses with requests and traces: X-Request-Id and the W3C traceparent."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from app.domain.ids import SpanId, TraceId

Header = tuple[bytes, bytes]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class Correlation:
    """The ids that every response carries. `trace_id` is 32 hex digits, `span_id` 16."""

    request_id: str
    trace_id: str
    span_id: str

    def headers(self) -> tuple[Header, Header]:
        """Return both headers. The traceparent is not marked as sampled, because no spans are recorded yet."""
        traceparent = f"00-{self.trace_id}-{self.span_id}-00"
        return (b"x-request-id", self.request_id.encode()), (b"traceparent", traceparent.encode())


def caller_trace(scope: Scope) -> tuple[TraceId, SpanId] | tuple[None, None]:
    """Return the caller's trace and span id; None twice unless there is exactly one valid traceparent."""
    given = [value for key, value in scope["headers"] if key == b"traceparent"]
    if len(given) != 1:
        return None, None
    match = _TRACEPARENT.fullmatch(given[0])
    if match is None or not _is_valid(match):
        return None, None
    return TraceId(match[2].decode()), SpanId(match[3].decode())


def gateway_request_id(scope: Scope) -> str | None:
    """Return the X-Request-Id that a gateway or the client has given; None unless there is exactly one valid one.

    It is no `request_id` of an execution: a gateway gives the same one to each attempt at a request.
    """
    given = [value for key, value in scope["headers"] if key == b"x-request-id"]
    if len(given) != 1 or not _REQUEST_ID.fullmatch(given[0]):
        return None
    found: str = given[0].decode()
    return found


def correlate(scope: Scope, new_id: Callable[[], str], request_id: str | None = None) -> Correlation:
    """Return the ids of a response without an execution; they continue the caller's trace if there is one."""
    fresh = new_id()
    digits = fresh.replace("-", "")
    trace_id, _ = caller_trace(scope)
    return Correlation(request_id or gateway_request_id(scope) or fresh, trace_id or digits, digits[-16:])


def _is_valid(match: re.Match[bytes]) -> bool:
    version, trace_id, span_id, rest = match.groups()
    known = version != b"ff" and (version != b"00" or rest is None)
    return known and trace_id.strip(b"0") != b"" and span_id.strip(b"0") != b""
