"""Scenarios of webhooks: what an endpoint costs a plain chat, and what a receiver that hangs costs another one.

A receiver that hangs takes four deliveries and answers none, so that all later ones wait: what is measured then is the
commit of an end with its delivery, and nothing that is sent.
"""

import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.load import Connections, open_connections, request
from bench.processes import MeasuredProcess, open_portico
from bench.scenarios import CONNECTIONS, WARM_UP, BenchEnvironment, Numbers, Scenario, costs_in_turn
from bench.upstream import TEXT

PAIRS, REQUESTS_PER_PAIR = 12, 200
WAITING = 1_000
SETTLE_SECONDS = 30
_SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLSwx"
_DELIVERED = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
_ENDPOINT = """
[webhooks.endpoints.{name}]
url = "http://127.0.0.1:{port}/{name}"
secret_file = "{secret}"
events = ["execution.completed"]
always = {always}
allow_private = true
"""
_MESSAGES = ({"role": "user", "content": "What is the answer?"},)


class _Receiver:
    """A receiver that answers all deliveries but those to `hangs`."""

    def __init__(self) -> None:
        self.port = 0
        self.delivered = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST /hangs"):
            await reader.read()
        else:
            self.delivered += 1
            writer.write(_DELIVERED)
        writer.close()


@asynccontextmanager
async def _open_receiver() -> AsyncIterator[_Receiver]:
    receiver = _Receiver()
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


def _endpoint(folder: str, receiver: _Receiver, name: str, *, always: bool) -> str:
    secret = Path(folder) / "webhook.secret"
    secret.write_text(_SECRET, encoding="ascii")
    return _ENDPOINT.format(name=name, port=receiver.port, secret=secret, always=str(always).lower())


def _chat(*webhooks: str) -> bytes:
    return request({"messages": _MESSAGES, **({"webhooks": webhooks} if webhooks else {})})


async def _opened(
    bench: BenchEnvironment, stack: AsyncExitStack, configuration: str = ""
) -> tuple[MeasuredProcess, Connections]:
    measured = await stack.enter_async_context(
        open_portico(bench.cores, bench.upstream.port, configuration=configuration)
    )
    connections = await stack.enter_async_context(open_connections(measured.port, CONNECTIONS))
    await connections.run(_chat(), WARM_UP, expected=TEXT.encode())
    return measured, connections


async def webhooks(bench: BenchEnvironment) -> Numbers:
    """Measure plain chat without an endpoint, with one that hangs, and with one that answers; medians of pairs."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as folder:
        async with AsyncExitStack() as stack:
            receiver = await stack.enter_async_context(_open_receiver())
            runs = [(*await _opened(bench, stack), _chat())]
            for name in ("hangs", "answers"):
                endpoint = _endpoint(folder, receiver, name, always=True)
                runs.append((*await _opened(bench, stack, endpoint), _chat()))
            commits, deliveries = [], []
            for pair in range(PAIRS):
                plain, written, sent = await costs_in_turn(runs, REQUESTS_PER_PAIR, reverse=pair % 2 == 0)
                commits.append(100 * (written - plain) / plain)
                deliveries.append(100 * (sent - written) / plain)
            await _settled(receiver, WARM_UP + PAIRS * REQUESTS_PER_PAIR)
    return {
        "webhook_commit_percent": statistics.median(commits),
        "webhook_delivery_percent": statistics.median(deliveries),
    }


async def waiting_deliveries(bench: BenchEnvironment) -> Numbers:
    """Measure chats that are delivered to a receiver while others wait for one that hangs, and without these."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as folder:
        async with AsyncExitStack() as stack:
            receiver = await stack.enter_async_context(_open_receiver())
            endpoints = [_endpoint(folder, receiver, name, always=False) for name in ("hangs", "answers")]
            measured, connections = await _opened(bench, stack, "".join(endpoints))
            other, to_other = await _opened(bench, stack, "".join(endpoints))
            await to_other.run(_chat("hangs"), WAITING, expected=TEXT.encode())
            ratios = []
            for pair in range(PAIRS):
                runs = [(measured, connections, _chat("answers")), (other, to_other, _chat("answers"))]
                alone, beside = await costs_in_turn(runs, REQUESTS_PER_PAIR, reverse=pair % 2 == 0)
                ratios.append(beside / alone)
            await _settled(receiver, 2 * PAIRS * REQUESTS_PER_PAIR)
    return {"webhook_waiting_ratio": statistics.median(ratios)}


async def _settled(receiver: _Receiver, count: int) -> None:
    """Wait until so much has been delivered, so that no pair was cheap because its deliveries were late."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while receiver.delivered < count:  # noqa: ASYNC110 - several connections end at once
            await asyncio.sleep(0.1)


WEBHOOK_SCENARIOS: tuple[Scenario, ...] = (webhooks, waiting_deliveries)
