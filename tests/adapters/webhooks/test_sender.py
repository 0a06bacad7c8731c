"""Sender of webhooks: what it signs, and how it meets hostile receivers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import time

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from standardwebhooks import Webhook

from portico.adapters.system import SystemClock
from portico.adapters.webhooks.sender import HttpWebhookSender, signed_headers, webhook_client
from portico.domain.ids import TenantId
from portico.domain.webhooks import DeliveryAttempt, WebhookEndpoint, next_wait
from portico.ports.outbox import DueDelivery
from tests.support.webhook_receiver import SECRET

DUE = DueDelivery("msg_" + "0" * 32, "acme file/orders", 0.0, 0, b'{"type":"webhook.test"}')
OTHER = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@asynccontextmanager
async def receiver(reply: Callable[[SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """Run a server that reads the head of each request and then replies; yield its URL."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)

    async def handle(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            try:
                await reply(stream)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - of a socket, not of a database
        yield f"http://127.0.0.1:{port}/hook"
        group.cancel_scope.cancel()


async def sent(url: str, *, allow_private: bool = True, timeout: float = 20.0) -> DeliveryAttempt:
    endpoint = WebhookEndpoint("orders", url, TenantId("acme"), allow_private=allow_private)
    async with webhook_client() as client:
        return await HttpWebhookSender(client, SystemClock(), timeout).send(endpoint, DUE, [SECRET])


def test_each_secret_signs_so_that_the_library_of_the_standard_verifies_it() -> None:
    headers = signed_headers(DUE, [SECRET, OTHER], time())
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(DUE.body, headers) == {"type": "webhook.test"}


async def test_a_redirect_to_a_metadata_address_is_not_followed() -> None:
    async def redirect(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 307 Moved\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n")

    async with receiver(redirect) as url:
        attempt = await sent(url)
    assert attempt == DeliveryAttempt(307, "the receiver answered with a redirect, which is not followed")


async def test_a_receiver_that_hangs_is_given_up() -> None:
    async def hang(_: SocketStream) -> None:
        await anyio.sleep(3_600)

    async with receiver(hang) as url:
        assert await sent(url) == DeliveryAttempt(error="no answer within 20 s")


async def test_of_an_answer_without_an_end_only_the_head_is_read() -> None:
    pieces = 0

    async def bomb(stream: SocketStream) -> None:
        nonlocal pieces
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await stream.send(b"10000\r\n" + b"\0" * 0x10000 + b"\r\n")
            pieces += 1

    async with receiver(bomb) as url:
        assert await sent(url) == DeliveryAttempt(200)
    assert pieces < 1_000


async def test_a_head_without_an_end_is_an_error() -> None:
    async def endless(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await stream.send(b"X: " + b"x" * 4_096 + b"\r\n")

    async with receiver(endless) as url:
        attempt = await sent(url)
    assert attempt.status is None
    assert attempt.error is not None
    assert attempt.error.startswith("the connection failed")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "169.254.169.254", "[::ffff:127.0.0.1]"])
async def test_a_host_that_resolves_to_a_private_address_is_not_asked(host: str) -> None:
    attempt = await sent(f"https://{host}/hook", allow_private=False)
    assert attempt == DeliveryAttempt(error="the host has an address that tools must not reach")


async def test_a_receiver_may_ask_to_wait_longer_but_not_for_more_than_a_day() -> None:
    async def busy(stream: SocketStream) -> None:
        await stream.send(b"HTTP/1.1 503 Busy\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n")

    async with receiver(busy) as url:
        attempt = await sent(url)
    assert attempt.retry_after == 600
    assert next_wait(1, attempt, (5.0,), 0.5) == 600
    assert next_wait(1, DeliveryAttempt(503, retry_after=1e9), (5.0,), 0.5) == 86_400
    assert next_wait(2, attempt, (5.0,), 0.5) is None
    assert [next_wait(1, DeliveryAttempt(500), (100.0,), jitter) for jitter in (0.0, 1.0)] == pytest.approx([90, 110])
