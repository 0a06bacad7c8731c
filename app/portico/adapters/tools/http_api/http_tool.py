"""A configured HTTP API as a tool."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx2
import orjson

from portico.adapters.tools.external_tool import ExternalTool, ExternalToolFacts
from portico.adapters.tools.http_api.address_guard import checked_addresses
from portico.adapters.tools.http_api.url_template import UrlTemplate, query_pairs
from portico.adapters.tools.plain_text import plain_text
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.fingerprints import digest
from portico.domain.json_path import Matches, PathStep, children
from portico.domain.tools import Availability
from portico.domain.value import value
from portico.ports.tool import ToolContext, ToolError, ToolOutcomeUnknown

MAX_REDIRECTS: Final = 5
_QUERY_METHODS: Final = frozenset({"GET", "DELETE"})
_ALWAYS: Final = Availability(available=True)
_CONTAINMENT: Final = (
    "Requests to public addresses only, also behind redirects.",
    "Requests to public addresses only, also behind redirects; the configured host may be in a private network.",
)


@value
class HttpToolConfig:
    """Configuration of one HTTP tool.

    `url` has places for arguments, `headers` reads the current request headers, `select` is the part of a JSON reply
    that is the result. With `allow_private` the configured host may be in a private network.
    """

    facts: ExternalToolFacts
    method: str
    url: str
    max_bytes: int
    headers: Callable[[], Mapping[str, str]]
    select: tuple[PathStep, ...] | None = None
    allow_private: bool = False


def http_client() -> httpx2.AsyncClient:
    """Return a client for all HTTP tools, since each has a TLS context of its own.

    It has no proxy, keeps no connection, and takes no cookie, which would carry what one caller did to the next.
    """
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(trust_env=False, timeout=None, limits=limits, cookies=cookies)


class HttpTool(ExternalTool):
    """An HTTP API as a tool: each call is one request, and the redirects of a GET. All tools may share a client.

    Raises: ValueError, from the constructor, for a URL whose places do not fit the parameters, and for a parameter that
    would repeat a pair of the configured query.
    """

    def __init__(self, config: HttpToolConfig, client: httpx2.AsyncClient) -> None:
        self._config = config
        self._template = UrlTemplate(config.url, config.facts.parameters)
        for name in self._repeated(config.facts.parameters.get("properties", {})):
            raise ValueError(f"sets {name} in its query, so {name} must be no property of the parameters")
        self._origin = _origin(urlsplit(config.url))
        self._client = client
        identity, containment = digest(config.method, config.url), _CONTAINMENT[config.allow_private]
        super().__init__(config.facts, "http", identity=identity, containment=containment)

    def available(self) -> Availability:
        return _ALWAYS

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Send the request and return the text of the reply, or the selected part of it.

        Raises: ToolArgumentError for arguments that the URL cannot take; ToolOutcomeUnknown if the connection was lost
        after the request was sent; ToolError for an address that tools must not reach, a connection that was refused,
        a status other than 2xx and a reply that is too large.
        """
        url = self._template.fill(arguments)
        repeated = self._repeated(arguments)
        if repeated:
            raise ToolArgumentError(tuple((f"arguments.{name}", "is set by the configuration") for name in repeated))
        rest = {name: value for name, value in arguments.items() if name not in self._template.names}
        if self._config.method in _QUERY_METHODS:
            pairs = httpx2.QueryParams(tuple(query_pairs(rest)))
            return await self._follow(str(httpx2.URL(url).copy_merge_params(pairs)) if pairs else url, context)
        return await self._follow(url, context, orjson.dumps(rest))

    def _repeated(self, names: Iterable[str]) -> list[str]:
        """Return those names whose values would go into the query, where the configuration has a value for them."""
        if self._config.method not in _QUERY_METHODS:
            return []
        template = self._template
        return [name for name in names if name in template.query_names and name not in template.names]

    async def _follow(self, url: str, context: ToolContext, body: bytes | None = None) -> str:
        """Return the reply behind at most five redirects, which only a GET follows."""
        for _ in range(MAX_REDIRECTS + 1):
            async with AsyncExitStack() as stack:
                reply = await self._send(stack, url, context, body)
                if self._config.method == "GET" and reply.has_redirect_location:
                    url = _redirected(url, reply.headers["location"])
                    continue
                if not reply.is_success:
                    raise ToolError(f"the service answered with status {reply.status_code}")
                return self._result(await self._read(reply))
        raise ToolError(f"the service redirected more than {MAX_REDIRECTS} times")

    async def _send(self, stack: AsyncExitStack, url: str, context: ToolContext, body: bytes | None) -> httpx2.Response:
        """Send the request to the first checked address of the host that accepts a connection."""
        parts = urlsplit(url)
        is_own = _origin(parts) == self._origin
        host, port = parts.hostname or "", _port(parts)
        allow_private = self._config.allow_private and host == self._origin[1]
        headers = {"accept-encoding": "identity", "user-agent": "portico"}
        if is_own:
            headers.update(self._config.headers())
        if body is not None:
            headers |= {"content-type": "application/json", "idempotency-key": context.idempotency_key}
        headers["host"] = parts.netloc
        for address in await checked_addresses(host, port, allow_private=allow_private):
            pinned = httpx2.URL(url).copy_with(host=address, port=port)
            request = self._client.stream(
                self._config.method, pinned, headers=headers, content=body, extensions={"sni_hostname": host}
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
                if len(data) > self._config.max_bytes:
                    raise ToolError(f"the reply has more than {self._config.max_bytes} bytes")
        except httpx2.TransportError as cause:
            raise _lost(cause) from cause
        return bytes(data)

    def _result(self, data: bytes) -> str:
        if self._config.select is None:
            return plain_text(data)
        try:
            matches: Matches = [((), orjson.loads(data))]
        except ValueError as cause:
            raise ToolError("the reply is no JSON, of which a part is selected") from cause
        for step in self._config.select:
            matches = children(matches, step)
        if None in self._config.select:
            return orjson.dumps([value for _, value in matches]).decode()
        if not matches:
            raise ToolError("the reply does not have the part that is selected")
        value = matches[0][1]
        return value if isinstance(value, str) else orjson.dumps(value).decode()


def _lost(cause: httpx2.TransportError) -> ToolError:
    return ToolOutcomeUnknown(f"the connection was lost: {type(cause).__name__}")


def _redirected(url: str, location: str) -> str:
    """Return the URL of a redirect. Raises: ToolError for one that leaves http and https, or TLS."""
    target = urlsplit(urljoin(url, location))
    is_downgrade = urlsplit(url).scheme == "https" and target.scheme == "http"
    if target.scheme not in {"http", "https"} or not target.hostname or "@" in target.netloc or is_downgrade:
        raise ToolError("the service redirected to an address that cannot be followed")
    return target.geturl()


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, parts.hostname or "", _port(parts)


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as cause:
        raise ToolError("the service redirected to an address that cannot be followed") from cause
