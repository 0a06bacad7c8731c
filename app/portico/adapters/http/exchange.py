"""Requests to places that others name: guarded addresses, redirects of a GET, and replies of a bounded size."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx2

from portico.adapters.http.address_guard import checked_addresses
from portico.domain.value import value
from portico.ports.tool import ToolError, ToolOutcomeUnknown

MAX_REDIRECTS: Final = 5
BAD_URL: Final = "the service redirected to an address that cannot be followed"


def http_client() -> httpx2.AsyncClient:
    """Return a client, one for all that ask alike, since each has a TLS context of its own.

    It has no proxy, keeps no connection, and takes no cookie, which would carry what one caller did to the next.
    """
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(trust_env=False, timeout=None, limits=limits, cookies=cookies)


class StatusError(ToolError):
    """The service behind the `url` answered with a `status` other than 2xx."""

    def __init__(self, status: int, url: str) -> None:
        super().__init__(f"the service answered with status {status}")
        self.status = status
        self.url = url


@value
class HttpReply:
    """A reply, and the media type that its service says it has, in lower case without parameters."""

    content: bytes
    media_type: str | None


class HttpExchange:
    """Requests of one kind, all with one method.

    `headers` returns those for a URL. A host may be in a private network if `allows_private` is true of it. `check`
    raises a ToolError for a URL that must not be asked, also behind a redirect.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        method: str,
        max_bytes: int,
        *,
        headers: Callable[[SplitResult], Mapping[str, str]] = lambda _: {},
        allows_private: Callable[[str], bool] = lambda _: False,
        check: Callable[[SplitResult], None] = lambda _: None,
        max_redirects: int = MAX_REDIRECTS,
    ) -> None:
        self._client = client
        self._method = method
        self._max_bytes = max_bytes
        self._headers = headers
        self._allows_private = allows_private
        self._check = check
        self._max_redirects = max_redirects

    async def fetch(
        self, url: str, body: bytes | None = None, body_headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        """Return the reply behind at most so many redirects, which only a GET follows.

        Raises: ToolOutcomeUnknown if the connection was lost after the request was sent; StatusError; ToolError
        for an address that tools must not reach, a connection that was refused, and a reply that is too large.
        """
        for _ in range(self._max_redirects + 1):
            async with AsyncExitStack() as stack:
                reply = await self._send(stack, url, body, body_headers or {})
                if self._method == "GET" and reply.has_redirect_location:
                    url = _redirected(url, reply.headers["location"])
                    continue
                if not reply.is_success:
                    raise StatusError(reply.status_code, url)
                media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
                return HttpReply(await self._read(reply), media_type or None)
        raise ToolError(f"the service redirected more than {self._max_redirects} times")

    async def _send(
        self, stack: AsyncExitStack, url: str, body: bytes | None, body_headers: Mapping[str, str]
    ) -> httpx2.Response:
        """Send the request to the first checked address of the host that accepts a connection."""
        parts = urlsplit(url)
        self._check(parts)
        host, port = parts.hostname or "", port_of(parts)
        headers = {"accept-encoding": "identity", "user-agent": "portico", **self._headers(parts), **body_headers}
        headers["host"] = parts.netloc
        for address in await checked_addresses(host, port, allow_private=self._allows_private(host)):
            pinned = httpx2.URL(url).copy_with(host=address, port=port)
            request = self._client.stream(
                self._method, pinned, headers=headers, content=body, extensions={"sni_hostname": host}
            )
            try:
                return await stack.enter_async_context(request)
            except httpx2.ConnectError:
                continue
            except httpx2.TransportError as cause:
                raise _lost(cause) from cause
        raise ToolError("the service does not accept connections")

    async def _read(self, reply: httpx2.Response) -> bytes:
        if reply.headers.get("content-encoding", "identity") != "identity":
            raise ToolError("the service compressed its reply although it was asked not to")
        data = bytearray()
        try:
            async for piece in reply.aiter_raw():
                data += piece
                if len(data) > self._max_bytes:
                    raise ToolError(f"the reply has more than {self._max_bytes} bytes")
        except httpx2.TransportError as cause:
            raise _lost(cause) from cause
        return bytes(data)


def _lost(cause: httpx2.TransportError) -> ToolError:
    return ToolOutcomeUnknown(f"the connection was lost: {type(cause).__name__}")


def _redirected(url: str, location: str) -> str:
    """Return the URL of a redirect. Raises: ToolError for one that leaves http and https, or TLS."""
    target = urlsplit(urljoin(url, location))
    is_downgrade = urlsplit(url).scheme == "https" and target.scheme == "http"
    if target.scheme not in {"http", "https"} or not target.hostname or "@" in target.netloc or is_downgrade:
        raise ToolError(BAD_URL)
    return target.geturl()


def origin_of(parts: SplitResult) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL. Raises: ToolError for a port that is none."""
    return parts.scheme, parts.hostname or "", port_of(parts)


def port_of(parts: SplitResult) -> int:
    """Return the port of a URL. Raises: ToolError for one that is none."""
    try:
        return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as cause:
        raise ToolError(BAD_URL) from cause
