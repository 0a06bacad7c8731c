"""The connections to all providers, and what their failures mean.

aiohttp does the transport: measured, one exchange costs it a third of what the httpx family takes, and its price does
not grow with the pool. Cookies and the environment's proxies are ignored. What is given up is aborted, not closed
politely: a polite close keeps the descriptor until the peer has read what it was sent.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeAlias

import aiohttp
from aiohttp.connector import Connection

from app.domain.effects import Reason
from app.ports import EngineFault

_Wake: TypeAlias = Callable[[asyncio.Future[None]], None]


class InvalidFraming(aiohttp.ClientPayloadError):
    """The framing of a body is no HTTP."""


# fmt: off
FOREIGN: Final = (
    (aiohttp.ClientSSLError,         Reason.TLS,         "no TLS connection could be made"),
    (ssl.SSLError,                   Reason.TLS,         "no TLS connection could be made"),
    (aiohttp.ConnectionTimeoutError, Reason.UNREACHABLE, "the provider did not accept a connection in time"),
    (aiohttp.ServerTimeoutError,     Reason.TIMED_OUT,   "the provider did not answer in time"),
    (aiohttp.ClientConnectorError,   Reason.UNREACHABLE, "no connection to the provider could be made"),
    (aiohttp.InvalidURL,             Reason.UNREACHABLE, "the provider's address cannot be used"),
    (aiohttp.NonHttpUrlClientError,  Reason.UNREACHABLE, "the provider's address cannot be used"),
    (aiohttp.ClientResponseError,    Reason.MALFORMED,   "the provider's answer is not HTTP"),
    (InvalidFraming,                 Reason.MALFORMED,   "the provider's answer is not HTTP"),
    (aiohttp.ClientError,            Reason.BROKEN,      "the connection to the provider broke"),
    (OSError,                        Reason.BROKEN,      "the connection to the provider broke"),
)
# fmt: on


class _Response(aiohttp.ClientResponse):
    """A response whose closing waits for nobody, and whose reader is told when the framing of its body breaks."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        closed = None if connection.protocol is None else connection.protocol.closed
        if closed is not None and not self.content.is_eof():
            wake = partial(_wake, self.content)
            closed.add_done_callback(wake)
            self.content.on_eof(partial(_forget, closed, wake))
        return self

    def close(self) -> None:
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()
        super().close()


def _wake(content: aiohttp.StreamReader, closed: asyncio.Future[None]) -> None:
    """aiohttp ends the connection when the framing of a body is invalid, and leaves its reader waiting."""
    closed.exception()
    if not content.is_eof() and content.exception() is None:
        content.set_exception(InvalidFraming())


def _forget(closed: asyncio.Future[None], wake: _Wake) -> None:
    closed.remove_done_callback(wake)


@asynccontextmanager
async def open_session() -> AsyncIterator[aiohttp.ClientSession]:
    """The one session of a service, with its pool of connections."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity", "User-Agent": "portico"},
        timeout=aiohttp.ClientTimeout(total=None),
        response_class=_Response,
        auto_decompress=False,
        trust_env=False,
    ) as session:
        yield session


def fault_of(cause: Exception) -> EngineFault:
    """What a failure of transport means: the first row that fits. The last two fit all that aiohttp raises.

    The cause goes along, except where its representation holds the request's headers, and so our key.
    """
    fault = next(EngineFault(reason, message) for kind, reason, message in FOREIGN if isinstance(cause, kind))
    fault.__cause__ = None if isinstance(cause, aiohttp.ClientResponseError) else cause
    return fault
