"""Sender of webhooks: signs a message as Standard Webhooks says, and sends it once, to a checked address.

Of an answer only its status and its headers are read, so that a receiver cannot send more than that. A redirect is not
followed: it could lead to where nothing may be sent.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio
import httpx2
from standardwebhooks import Webhook

from portico.adapters.http.address_guard import checked_addresses
from portico.domain.webhooks import DeliveryAttempt, WebhookEndpoint
from portico.ports.outbox import DueDelivery
from portico.ports.runtime import Clock
from portico.ports.tool import ToolError

_PORTS: Final[Mapping[str, int]] = {"https": 443, "http": 80}
_REDIRECTS: Final = range(300, 400)


def webhook_client() -> httpx2.AsyncClient:
    """Return a client for all deliveries. It has no proxy, keeps no connection, and takes no cookie."""
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(trust_env=False, timeout=None, limits=limits, cookies=cookies)


class HttpWebhookSender:
    """Implementation of the `WebhookSender` port. An attempt may take `timeout` seconds in all."""

    def __init__(self, client: httpx2.AsyncClient, clock: Clock, timeout: float) -> None:
        self._client = client
        self._clock = clock
        self._timeout = timeout

    async def refusal(self, url: str, *, allow_private: bool) -> str | None:
        parts = _parts(url, allow_private=allow_private)
        if isinstance(parts, str):
            return parts
        try:
            with anyio.move_on_after(self._timeout):
                await checked_addresses(parts.hostname or "", _port(parts), allow_private=allow_private)
        except ToolError as refusal:
            has_no_address = refusal.__cause__ is not None
            return None if has_no_address else "must not be in a private network"
        return None

    async def send(self, endpoint: WebhookEndpoint, due: DueDelivery, secrets: Sequence[str]) -> DeliveryAttempt:
        parts = _parts(endpoint.url, allow_private=endpoint.allow_private)
        if isinstance(parts, str):
            return DeliveryAttempt(error=f"the URL {parts}")
        headers = signed_headers(due, secrets, self._clock.now())
        attempt = DeliveryAttempt(error=f"no answer within {self._timeout:g} s")
        with anyio.move_on_after(self._timeout):
            try:
                attempt = await self._send(endpoint, parts, due.body, headers)
            except ToolError as refusal:
                attempt = DeliveryAttempt(error=str(refusal))
            except httpx2.HTTPError as error:
                attempt = DeliveryAttempt(error=f"the connection failed: {type(error).__name__}")
        return attempt

    async def _send(
        self, endpoint: WebhookEndpoint, parts: SplitResult, body: bytes, headers: Mapping[str, str]
    ) -> DeliveryAttempt:
        """Send the request to the first checked address that accepts a connection."""
        host, port = parts.hostname or "", _port(parts)
        for address in await checked_addresses(host, port, allow_private=endpoint.allow_private):
            pinned = httpx2.URL(endpoint.url).copy_with(host=address, port=port)
            request = self._client.stream(
                "POST",
                pinned,
                headers={**headers, "host": parts.netloc},
                content=body,
                follow_redirects=False,
                extensions={"sni_hostname": host},
            )
            async with AsyncExitStack() as stack:
                try:
                    answer = await stack.enter_async_context(request)
                except httpx2.ConnectError:
                    continue
                return _attempt(answer, self._clock.now())
        return DeliveryAttempt(error="the receiver does not accept connections")


def signed_headers(due: DueDelivery, secrets: Sequence[str], now: float) -> dict[str, str]:
    """Return the headers of a delivery that is sent at that time, with a signature of each secret."""
    at, text = datetime.fromtimestamp(int(now), UTC), due.body.decode()
    return {
        "content-type": "application/json",
        "user-agent": "portico",
        "accept-encoding": "identity",
        "webhook-id": due.delivery_id,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": " ".join(Webhook(secret).sign(due.delivery_id, at, text) for secret in secrets),
    }


def _attempt(answer: httpx2.Response, now: float) -> DeliveryAttempt:
    status = answer.status_code
    if answer.is_success:
        return DeliveryAttempt(status)
    what = "a redirect, which is not followed" if status in _REDIRECTS else f"status {status}"
    return DeliveryAttempt(
        status, f"the receiver answered with {what}", _retry_after(answer.headers.get("retry-after"), now)
    )


def _retry_after(given: str | None, now: float) -> float | None:
    """Return the seconds of a header `Retry-After`, which may be a date; None for anything else."""
    if given is None:
        return None
    if given.isascii() and given.isdigit() and len(given) <= len("86400"):
        return float(given)
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _parts(url: str, *, allow_private: bool) -> SplitResult | str:
    """Return the parts of a URL, or what it must be instead."""
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0 and all("!" <= each <= "~" for each in url)
        httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL):
        return "must be a URL"
    if parts.scheme != "https" and not (parts.scheme == "http" and allow_private):
        return "must begin with https://"
    if not is_usable or parts.fragment:
        return "must be a URL of a host, in visible ASCII and without a fragment"
    return "must not contain a user or a password" if "@" in parts.netloc else parts


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]
