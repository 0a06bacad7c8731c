"""An API as a table of functions, and the values that they exchange.

A route reads the body, calls `decode`, starts the execution, and hands its turn to `encode`, or its events to the
encoder that `frames` makes. So a route has no branch on what the body says.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from portico.domain.contract.quote import Quote
from portico.domain.contract.request import SystemRequest
from portico.domain.ids import RequestId
from portico.domain.lifecycle import Mode
from portico.domain.value import value
from portico.entrypoints.http.client_apis.conversation import WirePath
from portico.entrypoints.http.client_apis.errors import ClientError, ErrorShape
from portico.entrypoints.http.client_apis.models import ModelNames
from portico.entrypoints.http.client_apis.turn import DisplayTime, Turn, TurnChange

JsonObject = Mapping[str, Any]


@value
class Shown:
    """Facts of a request that its answer shows beside the turn. An API adds its own fields in a class below this one.

    `model` is repeated as it was sent. `has_extension` is True if the request has a member `portico`, and `is_quote` if
    it asks for bounds only. `mode` is the one in force, of the request or of its agent. With `ends_at_suspension` the
    answer ends with the approvals that are open.
    """

    model: str
    mode: Mode = Mode.CHAT
    is_stream: bool = False
    delivery: DisplayTime = DisplayTime.LIVE
    has_extension: bool = False
    is_quote: bool = False
    with_reasoning: bool = False
    ends_at_suspension: bool = False


S = TypeVar("S", bound=Shown)
S_contra = TypeVar("S_contra", bound=Shown, contravariant=True)


@value
class DecodedRequest(Generic[S]):
    """A request as an execution takes it.

    `ignored` are the dotted names, as they were sent, of what has no effect. `path_of` returns the path in the body of
    a field of the request, since what the service refuses later is named as it was sent, too.
    """

    request: SystemRequest
    ignored: Sequence[str]
    shown: S
    path_of: Callable[[Sequence[str]], WirePath]


class Frames(Protocol):
    """Encoder of one stream, with what it has to remember between two frames."""

    def encode(self, changes: Sequence[TurnChange]) -> bytes:
        """Return the frames of these changes. The last change of a turn that ended well ends the stream, too."""
        ...

    def failed(self, failed: ClientError) -> bytes:
        """Return the last frames of a stream that does not end well, so that no client takes it for success."""
        ...


@value
class ClientApi(Generic[S]):
    """A client API."""

    errors: ErrorShape
    decode: Callable[[JsonObject, ModelNames], DecodedRequest[S]]
    """Return the request. Raises: RequestFailure naming the field as it was sent; AccessFailure."""
    encode: Callable[[Turn, S], bytes]
    """Return the JSON body of an answer."""
    encode_quote: Callable[[Quote, RequestId, S], bytes]
    """Return the JSON body of an answer without text, whose member `portico` has the quote."""
    frames: Callable[[RequestId, S], Frames]
    """Return the encoder of a stream."""
