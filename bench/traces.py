"""Scenario of traces: the same plain chat without a collector, at 1 % of the traces, and with all of them."""

import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from bench.load import open_connections
from bench.processes import open_portico
from bench.scenarios import CHAT_REQUEST, CONNECTIONS, WARM_UP, BenchEnvironment, Numbers, Scenario, costs_in_turn
from bench.upstream import TEXT

ROUNDS, REQUESTS_PER_ROUND = 16, 300
_TELEMETRY = """
[telemetry]
otlp_endpoint = "http://127.0.0.1:%d"
sample_ratio = %s
"""


class _Collector(BaseHTTPRequestHandler):
    """Receiver that takes everything and reads nothing of it."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class gives
        """Write no log."""


@asynccontextmanager
async def _open_collector() -> AsyncIterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


async def traces(bench: BenchEnvironment) -> Numbers:
    """Measure plain chat with 1 % and with all of the traces, in turn with the same chat without; medians of rounds."""
    async with (
        _open_collector() as port,
        open_portico(bench.cores, bench.upstream.port) as silent,
        open_portico(bench.cores, bench.upstream.port, configuration=_TELEMETRY % (port, 0.01)) as some,
        open_portico(bench.cores, bench.upstream.port, configuration=_TELEMETRY % (port, 1)) as every,
        open_connections(silent.port, CONNECTIONS) as to_silent,
        open_connections(some.port, CONNECTIONS) as to_some,
        open_connections(every.port, CONNECTIONS) as to_every,
    ):
        opened = [(silent, to_silent), (some, to_some), (every, to_every)]
        measured = [(process, connections, CHAT_REQUEST) for process, connections in opened]
        for _, connections in opened:
            await connections.run(CHAT_REQUEST, WARM_UP, expected=TEXT.encode())
        some_more, every_more = [], []
        for number in range(ROUNDS):
            none, a_few, all_of_them = await costs_in_turn(measured, REQUESTS_PER_ROUND, reverse=number % 2 == 0)
            some_more.append(a_few - none)
            every_more.append(all_of_them - none)
    return {
        "traces_some_more_ms": statistics.median(some_more) * 1000,
        "traces_all_more_ms": statistics.median(every_more) * 1000,
    }


TRACE_SCENARIOS: tuple[Scenario, ...] = (traces,)
