"""The HTTP client of all engines: aiohttp, with its own policies switched off.

Redirects, cookies, decompression and the environment are off: a redirect or netrc could send a credential to another
host. aiohttp's errors hold the request with its headers, so none of them leaves this module, not even as the cause or
the context of a fault. aiohttp repeats a GET once when its connection breaks, which concerns pings only.
"""

import ssl
from asyncio import Future, get_running_loop
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from io import BytesIO
from math import inf
from types import TracebackType
from typing import Any, Final, TypeAlias

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from portico.adapters.engines.http.transport import HttpRequest, HttpResponse, TransportError
from portico.domain.model_call import AttemptFailureReason
from portico.domain.value import value

KEEP_ALIVE_SECONDS: Final = 15.0
DNS_CACHE_SECONDS: Final = 10
LINGER_SECONDS: Final = 0.1
"""The time that a response which was left early has to end, so that its connection can be used again."""
LARGE_BODY_BYTES: Final = 2**18
READ_BYTES: Final = 2**16
"""The most bytes of one read. asyncio would make room for 2**18, which the C library takes from the kernel and gives
back each time: that costs six times a small read."""
DEFAULT_HEADERS: Final[Mapping[str, str]] = {
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "User-Agent": "portico",
}
HttpSession: TypeAlias = aiohttp.ClientSession
_NOT_HTTP: Final = (AttemptFailureReason.MALFORMED, "the provider's response is not valid HTTP")
_BROKEN: Final = (AttemptFailureReason.BROKEN, "the connection to the provider broke")
# fmt: off
_FAULTS: Final[Sequence[tuple[type[Exception], AttemptFailureReason, str]]] = (
    (aiohttp.ClientSSLError,         AttemptFailureReason.TLS,         "a TLS connection to the provider failed"),
    (aiohttp.ConnectionTimeoutError, AttemptFailureReason.UNREACHABLE, "timed out while connecting to the provider"),
    (aiohttp.ClientHttpProxyError,   AttemptFailureReason.UNREACHABLE, "the proxy refused to connect to the provider"),
    (aiohttp.ClientConnectorError,   AttemptFailureReason.UNREACHABLE, "no connection to the provider could be made"),
    (aiohttp.ClientResponseError,    *_NOT_HTTP),
    (aiohttp.NonHttpUrlClientError,  AttemptFailureReason.UNREACHABLE, "the provider's address is not a usable URL"),
    (ValueError,                     AttemptFailureReason.UNREACHABLE, "the provider's address is not a usable URL"),
)
# fmt: on
"""The first row whose class fits says why there is no response; everything else is a broken connection."""
_ERRORS: Final = (aiohttp.ClientError, OSError, ValueError)
"""Everything that aiohttp raises for a bad address, connection or response; ValueError for an unusable URL."""


@value
class Route:
    """The way to an engine: how long connecting may take, the proxy, and the certificates to trust.

    Without certificates of its own it trusts those of this machine, which are OpenSSL's, so that `SSL_CERT_FILE` and
    `SSL_CERT_DIR` count. aiohttp has read them already; reading them again takes 20 ms and half a megabyte.
    """

    connect_seconds: float
    proxy: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None


@asynccontextmanager
async def open_session() -> AsyncIterator[HttpSession]:
    """Open the session of a service; leaving the context closes all connections."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ttl_dns_cache=DNS_CACHE_SECONDS)
    async with aiohttp.ClientSession(
        connector=connector,
        headers=DEFAULT_HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        response_class=_AbortableResponse,
    ) as session:
        yield session


class _AbortableResponse(aiohttp.ClientResponse):
    """A response that aborts its connection when it is closed before its end.

    aiohttp closes the connection politely, which keeps the descriptor until the peer has read what was sent.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        transport: Any = connection.transport
        if transport is not None:
            transport.max_size = READ_BYTES
        return await super().start(connection)

    def close(self) -> None:
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()


class AiohttpTransport:
    """Implements `Transport`."""

    def __init__(self, session: HttpSession, route: Route) -> None:
        self._session = session
        self._route = route
        self._timeout = aiohttp.ClientTimeout(total=None, connect=route.connect_seconds, ceil_threshold=inf)

    def exchange(self, request: HttpRequest) -> "_Exchange":
        return _Exchange(self._send(request))

    async def _send(self, request: HttpRequest) -> aiohttp.ClientResponse:
        body = request.body
        try:
            return await self._session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=BytesIO(body) if len(body) > LARGE_BODY_BYTES else body or None,
                allow_redirects=False,
                proxy=self._route.proxy,
                ssl=self._route.tls or True,
                timeout=self._timeout,
            )
        except _ERRORS as error:
            fault = _fault_before_response(error)
        raise fault


class _Exchange:
    """One exchange, from the response on that `opening` returns.

    It has no request, whose body need not be in memory while a long reply arrives.
    """

    __slots__ = ("_opening", "_response")

    def __init__(self, opening: Coroutine[Any, Any, aiohttp.ClientResponse]) -> None:
        self._opening = opening

    async def __aenter__(self) -> HttpResponse:
        self._response = _Response(await self._opening)
        return self._response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None or self._response.is_complete:
            self._response.end()
        else:
            get_running_loop().call_later(LINGER_SECONDS, self._response.end)


class _Response:
    """Implements `HttpResponse`, and ends the exchange.

    aiohttp reports neither a body that breaks its chunked framing nor a reset within a body that has no framing. Both
    show in the way in which the connection closes.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._body = response.content
        self._is_framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        connection = response.connection
        protocol = None if connection is None else connection.protocol
        self._closed = None if protocol is None else protocol.closed
        if self._closed is not None:
            self._closed.remove_done_callback(_retrieve_exception)
            self._closed.add_done_callback(_retrieve_exception)
            self._closed.add_done_callback(self._on_close)

    async def read(self) -> bytes:
        try:
            data = await self._body.readany()
        except _ERRORS as error:
            fault = _fault_in_body(error)
        else:
            if data or self._is_framed or not self._was_reset():
                return data
            fault = TransportError(*_BROKEN)
        raise fault

    @property
    def is_complete(self) -> bool:
        """True if all of the response has arrived."""
        return self._body.is_eof()

    def end(self) -> None:
        """Give the connection back, or abort it if the response is not complete."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._on_close)
        if self._body.is_eof():
            self._response.release()
        else:
            self._response.close()

    def _was_reset(self) -> bool:
        """Tell whether the connection of a body without framing broke."""
        return self._closed is not None and self._closed.done() and self._closed.exception() is not None

    def _on_close(self, _closed: Future[None]) -> None:
        if not self._body.is_eof() and self._body.exception() is None:
            self._body.set_exception(_InvalidFramingError())


class _InvalidFramingError(aiohttp.ClientError):
    """A body whose chunks are not framed as HTTP says."""


def _retrieve_exception(closed: Future[None]) -> None:
    """Keep asyncio from reporting the end of an unused connection as an unhandled error."""
    closed.exception()


def _fault_before_response(error: Exception) -> TransportError:
    reason, message = next((row[1:] for row in _FAULTS if isinstance(error, row[0])), _BROKEN)
    return TransportError(reason, message)


def _fault_in_body(error: Exception) -> TransportError:
    if isinstance(error, _InvalidFramingError):
        return TransportError(*_NOT_HTTP)
    if isinstance(error.__cause__, ssl.SSLError):
        return TransportError(AttemptFailureReason.TLS, "the TLS connection to the provider broke")
    return TransportError(*_BROKEN)
