"""The connections to all providers: how they are made, found again and asked over.

Refused: aiohttp, which is made for more than is wanted here (cookies, redirects, compression, proxies of the
environment) and lets a reader wake for every piece. Measured beside it, an exchange costs 0.1 ms less, and a stream a
fifth less; the httpx family costs three times as much as aiohttp.
"""

import ssl
from asyncio import get_running_loop
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from socket import IPPROTO_TCP, SOCK_STREAM
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import anyio
from aiohappyeyeballs import AddrInfoType, start_connection
from anyio.lowlevel import cancel_shielded_checkpoint

from app.adapters.engines.http.connection import ConnectionFault, ConnectionPool, UpstreamConnection
from app.domain.model_call import AttemptFailureReason

COMMON: Final[Mapping[str, str]] = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "portico"}
PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
NAME_SECONDS: Final = 10.0
STAGGER_SECONDS: Final = 0.25
"""After how long the next address of a name is tried beside the one before [RFC 8305]."""
WHOLE_BODY_BYTES: Final = 2**20
PIECE_BYTES: Final = 2**18


class Origin(NamedTuple):
    """Whom a connection leads to."""

    scheme: str
    host: str
    port: int


class UpstreamAddress(NamedTuple):
    """A base URL: `path` stands before the path of every request, `host` is what its Host header says."""

    origin: Origin
    host: str
    path: str


class _Way:
    """The way to one origin: what its name stands for, and the connections that lead there."""

    def __init__(self, origin: Origin) -> None:
        self.pool = ConnectionPool()
        self._origin = origin
        self._asking = anyio.Lock()
        self._addresses: Sequence[AddrInfoType] = ()
        self._known_until = 0.0

    async def connection(self, tls: ssl.SSLContext) -> UpstreamConnection:
        """A new one. Raises: OSError, UnicodeError."""
        secure = self._origin.scheme == "https"
        _, connection = await get_running_loop().create_connection(
            partial(UpstreamConnection, self.pool),
            sock=await start_connection(await self._resolved(), happy_eyeballs_delay=STAGGER_SECONDS),
            ssl=tls if secure else None,
            server_hostname=self._origin.host if secure else None,
        )
        return connection

    async def _resolved(self) -> Sequence[AddrInfoType]:
        """The addresses, asked for once for all who want to connect meanwhile."""
        async with self._asking:
            loop = get_running_loop()
            if loop.time() >= self._known_until:
                _, host, port = self._origin
                self._addresses = await loop.getaddrinfo(host, port, type=SOCK_STREAM, proto=IPPROTO_TCP)
                self._known_until = loop.time() + NAME_SECONDS
            return self._addresses


class UpstreamSession:
    """All connections of a service."""

    def __init__(self) -> None:
        self._ways: dict[Origin, _Way] = {}
        self._tls = _tls()

    async def connection(self, address: UpstreamAddress, seconds: float) -> UpstreamConnection:
        """One that nobody else uses. For name, connection and TLS together is waited that long.

        Raises: ConnectionFault.
        """
        way = self._ways.get(address.origin)
        if way is None:
            way = self._ways[address.origin] = _Way(address.origin)
        if way.pool.resting:
            return way.pool.resting.popitem()[0]
        try:
            with anyio.fail_after(seconds):
                return await way.connection(self._tls)
        except ssl.SSLError as cause:
            raise ConnectionFault(AttemptFailureReason.TLS, "no TLS connection could be made") from cause
        except TimeoutError as cause:
            raise ConnectionFault(
                AttemptFailureReason.UNREACHABLE, "the provider did not accept a connection in time"
            ) from cause
        except (OSError, UnicodeError) as cause:
            raise ConnectionFault(
                AttemptFailureReason.UNREACHABLE, "no connection to the provider could be made"
            ) from cause

    async def close(self) -> None:
        """Ends all connections."""
        for way in self._ways.values():
            for connection in way.pool.open:
                connection.abort()
        await cancel_shielded_checkpoint()


@asynccontextmanager
async def open_session() -> AsyncIterator[UpstreamSession]:
    """The one session of a service."""
    session = UpstreamSession()
    try:
        yield session
    finally:
        await session.close()


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Reading the machine's certificates takes 20 ms."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=1024)
def address_of(base_url: str) -> UpstreamAddress:
    """Raises: ConnectionFault when it is not the URL of a host."""
    with suppress(ValueError):
        parts = urlsplit(base_url)
        if parts.hostname and parts.scheme in PORTS:
            origin = Origin(parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme])
            return UpstreamAddress(origin, parts.netloc, parts.path.rstrip("/"))
    raise ConnectionFault(AttemptFailureReason.UNREACHABLE, "the provider's address cannot be used")


def request(
    method: str, address: UpstreamAddress, path: str, *, headers: Mapping[str, str], body: bytes = b""
) -> Sequence[bytes]:
    """A request as it is sent: a large body in pieces, so that one does not hold up all others. A body is JSON."""
    fields = {"Host": address.host, **COMMON, **headers}
    if body:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
    head = f"{method} {address.path}{path} HTTP/1.1\r\n{lines}\r\n".encode()
    if len(body) <= WHOLE_BODY_BYTES:
        return (head + body,)
    return head, *(body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES))
