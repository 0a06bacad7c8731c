"""Content negotiation: the kind of response that the Accept and Prefer headers ask for.

A client that asks for both events and `respond-async` gets events: they begin at once, and a server may ignore a
preference [RFC 7240]. The execution still runs in the background, and so outlives its client.
"""

import re
from enum import Enum, auto

from starlette.types import Scope

_REFUSED_RANGE = re.compile(rb";q=0(\.0*)?(;|$)")


class ResponseKind(Enum):
    """The kind of response that a client wants."""

    RESPONSE = auto()
    EVENTS = auto()
    LOCATION = auto()


def response_kind(scope: Scope, *, background: bool = False) -> ResponseKind:
    """Return the kind that the headers ask for, and `background` of the body."""
    if _accepts_events(list_header(scope, b"accept")):
        return ResponseKind.EVENTS
    return ResponseKind.LOCATION if background or prefers_async(scope) else ResponseKind.RESPONSE


def prefers_async(scope: Scope) -> bool:
    """Return True if the client prefers not to wait."""
    preferences = list_header(scope, b"prefer")
    if not preferences:
        return False
    return any(each.partition(b";")[0].strip() == b"respond-async" for each in preferences.lower().split(b","))


def list_header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a header that is a list and may be repeated; the name is lower case."""
    return b",".join([value for key, value in scope["headers"] if key == name])


def _accepts_events(accepted: bytes) -> bool:
    """Return True if the client accepts an event stream; all other types are answered with JSON."""
    if b"text/event-stream" not in accepted.lower():
        return False
    ranges = (part.replace(b" ", b"").lower() for part in accepted.split(b","))
    return any(kind.split(b";")[0] == b"text/event-stream" and not _REFUSED_RANGE.search(kind) for kind in ranges)
