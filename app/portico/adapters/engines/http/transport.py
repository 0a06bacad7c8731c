"""The seam between the HTTP engine and an HTTP client library."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Protocol

from portico.domain.value import value
from portico.ports.model import EngineError


class TransportError(EngineError):
    """A failure of the connection, in contrast to a failure that the provider reported."""


@value
class HttpRequest:
    """One request. `url` is sent as it is; a body is JSON."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)


class HttpResponse(Protocol):
    """A response whose body is read as it arrives. Header names are lower case."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def is_complete(self) -> bool:
        """True if all of the response has arrived."""
        ...

    async def read(self) -> bytes:
        """Return the bytes that have arrived since the last read; nothing at the end. Raises: TransportError."""
        ...


class Transport(Protocol):
    """Exchanges requests for responses, over the connections of one engine."""

    def exchange(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a request and open its response, without retries or redirects.

        Leaving the context with an exception, a cancellation included, closes the connection at once. Leaving it in
        any other way keeps the connection for the next request if the response ends soon. Raises: TransportError.
        """
        ...
