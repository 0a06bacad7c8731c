"""Request headers, read once, and content negotiation: the kind of response that Accept and Prefer ask for.

A client that asks for both events and `respond-async` gets events: they begin at once, and a server may ignore a
preference [RFC 7240]. The execution still runs in the background, and so outlives its client.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from starlette.types import Scope

from portico.domain.value import value

_HEADERS_KEY: Final = "portico.headers"
_REFUSED_RANGE = re.compile(rb";q=0(\.0*)?(;|$)")


@value
class RequestHeaders:
    """Headers of one request: what kind of response it asks for, its idempotency key, and the trace it continues.

    `accept` and `prefer` are lists: repeated ones are joined, and one that is absent is empty. The other fields have
    each value that was given, `values` those of all headers by name.
    """

    accept: bytes
    prefer: bytes
    idempotency_key: Sequence[bytes]
    traceparent: Sequence[bytes]
    request_id: Sequence[bytes]
    values: Mapping[bytes, Sequence[bytes]]


class ResponseKind(Enum):
    """The kind of response that a client wants."""

    RESPONSE = auto()
    EVENTS = auto()
    LOCATION = auto()


def request_headers(scope: Scope) -> RequestHeaders:
    """Return these headers of a request, which are read at first use."""
    headers: RequestHeaders | None = scope.get(_HEADERS_KEY)
    if headers is None:
        values: dict[bytes, list[bytes]] = {}
        for name, text in scope["headers"]:
            values.setdefault(name, []).append(text)
        headers = scope[_HEADERS_KEY] = RequestHeaders(
            accept=b",".join(values.get(b"accept", ())),
            prefer=b",".join(values.get(b"prefer", ())),
            idempotency_key=values.get(b"idempotency-key", ()),
            traceparent=values.get(b"traceparent", ()),
            request_id=values.get(b"x-request-id", ()),
            values=values,
        )
    return headers


def response_kind(headers: RequestHeaders, *, background: bool) -> ResponseKind:
    """Return the kind that the client accepts; one whose execution runs in the `background` does not wait for it."""
    if headers.accept and _accepts(headers.accept, b"text/event-stream"):
        return ResponseKind.EVENTS
    return ResponseKind.LOCATION if background else ResponseKind.RESPONSE


def asks_for_json(headers: RequestHeaders) -> bool:
    """Return True if the client names JSON, and accepts no event stream."""
    return _accepts(headers.accept, b"application/json") and not _accepts(headers.accept, b"text/event-stream")


def prefers_async(headers: RequestHeaders) -> bool:
    """Return True if the client prefers not to wait."""
    if not headers.prefer:
        return False
    return any(each.partition(b";")[0].strip() == b"respond-async" for each in headers.prefer.lower().split(b","))


def _accepts(accepted: bytes, wanted: bytes) -> bool:
    """Return True if the client names this media type; none is wanted that it does not name."""
    if wanted not in accepted.lower():
        return False
    ranges = (part.replace(b" ", b"").lower() for part in accepted.split(b","))
    return any(kind.split(b";")[0] == wanted and not _REFUSED_RANGE.search(kind) for kind in ranges)
