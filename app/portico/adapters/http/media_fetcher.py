"""Media behind URLs of messages: fetched with the guard of addresses, by a GET that says nothing of who asks.

A connection that is lost and a reply of 5xx are tried once more, since nothing else is lost by that; all else is final.
"""

from typing import Final
from urllib.parse import SplitResult

import anyio
import httpx2

from portico.adapters.http.exchange import HttpExchange, HttpReply, StatusError
from portico.adapters.http.hosts import MediaHosts
from portico.ports.media import FetchedMedia, MediaError, MediaLimits
from portico.ports.tool import ToolError, ToolOutcomeUnknown

MAX_REDIRECTS: Final = 3
AT_ONCE: Final = 16
"""Fetches of all requests at the same time."""
_SERVER_ERROR: Final = 500


class HttpMediaFetcher:
    """Implementation of the `MediaFetcher` port. So many fetches run at once; others wait, which is not their time."""

    def __init__(self, client: httpx2.AsyncClient, hosts: MediaHosts, limits: MediaLimits) -> None:
        self.limits = limits
        self._client = client
        self._hosts = hosts
        self._slots = anyio.Semaphore(AT_ONCE)

    def refusal(self, url: str) -> str | None:
        return self._hosts.refusal(url)

    async def fetch(self, url: str, *, max_bytes: int, seconds: float) -> FetchedMedia:
        exchange = HttpExchange(
            self._client,
            "GET",
            max_bytes,
            allows_private=self._hosts.is_private,
            check=self._check,
            max_redirects=MAX_REDIRECTS,
        )
        async with self._slots:
            with anyio.move_on_after(seconds):
                try:
                    reply = await _fetch_again_if_lost(exchange, url)
                except ToolError as refusal:
                    raise MediaError(str(refusal)) from refusal
                except (httpx2.InvalidURL, ValueError) as cause:
                    raise MediaError("it leads to what is no URL") from cause
                return FetchedMedia(reply.content, reply.media_type)
        raise MediaError("it took too long")

    def _check(self, parts: SplitResult) -> None:
        if self._hosts.refusal_of(parts) is not None:
            raise ToolError("it leads to a host, or by a way, that this service may not ask")


async def _fetch_again_if_lost(exchange: HttpExchange, url: str) -> HttpReply:
    try:
        return await exchange.fetch(url)
    except ToolOutcomeUnknown:
        return await exchange.fetch(url)
    except StatusError as refusal:
        if refusal.status < _SERVER_ERROR:
            raise
        return await exchange.fetch(url)
