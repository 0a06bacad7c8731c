"""Scenario of the live list: the same plain chat while none, and while ten, read what changes."""

import asyncio
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.load import authorized, open_connections
from bench.processes import open_portico
from bench.scenarios import CHAT_REQUEST, CONNECTIONS, WARM_UP, BenchEnvironment, Numbers, Scenario, cpu_per_request
from bench.upstream import TEXT
from portico.adapters.stores.access.api_keys import DatabaseKeys
from portico.adapters.stores.sqlite import open_sqlite
from portico.adapters.system import SystemClock, SystemEntropy
from portico.capabilities.key_administration import KeyAdministration, KeyGrant
from portico.domain.access.limits import NO_LIMITS
from portico.domain.access.principal import ALL
from portico.domain.ids import TenantId, UserId

PAIRS, REQUESTS_PER_PAIR = 12, 400
READERS_PER_USER, USERS = 5, ("ann", "ben")
_LIST = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
_AUTHENTICATION = '\n[auth]\nmode = "keys"\n'


class _Reader(asyncio.Protocol):
    """A client that counts the executions of its live list."""

    def __init__(self) -> None:
        self.executions = 0

    def data_received(self, data: bytes) -> None:
        self.executions += data.count(b"event: execution\n")


async def _make_keys(path: Path) -> list[str]:
    clock = SystemClock()
    async with open_sqlite(path) as database:
        keys = KeyAdministration(DatabaseKeys(database), clock, SystemEntropy(clock))
        grants = [KeyGrant(TenantId("default"), UserId(user), ALL, NO_LIMITS, None) for user in USERS]
        return [(await keys.create(grant))[1].reveal() for grant in grants]


@asynccontextmanager
async def _open_readers(port: int, keys: Sequence[str]) -> AsyncIterator[list[_Reader]]:
    loop = asyncio.get_running_loop()
    opened = [
        (key, await loop.create_connection(_Reader, "127.0.0.1", port)) for key in keys for _ in range(READERS_PER_USER)
    ]
    try:
        for key, (transport, _) in opened:
            transport.write(authorized(_LIST, key))
        await asyncio.sleep(1)
        yield [reader for _, (_, reader) in opened]
    finally:
        for _, (transport, _) in opened:
            transport.close()


async def live_list(bench: BenchEnvironment) -> Numbers:
    """Measure plain chat with ten readers of the live list, in turn with the same chat without; a median of pairs."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        database = Path(directory) / "portico.db"
        keys = await _make_keys(database)
        storage = f"sqlite:///{database}"
        async with (
            open_portico(bench.cores, bench.upstream.port, storage=storage, configuration=_AUTHENTICATION) as measured,
            open_connections(measured.port, CONNECTIONS) as connections,
        ):
            request = authorized(CHAT_REQUEST, keys[0])
            await connections.run(request, WARM_UP, expected=TEXT.encode())
            more, shown = [], 0
            for _ in range(PAIRS):
                alone = await cpu_per_request(measured, connections, request, REQUESTS_PER_PAIR)
                async with _open_readers(measured.port, keys) as readers:
                    watched = await cpu_per_request(measured, connections, request, REQUESTS_PER_PAIR)
                    shown += min(reader.executions for reader in readers)
                more.append(100 * (watched - alone) / alone)
    if shown < PAIRS * REQUESTS_PER_PAIR:
        raise RuntimeError(f"a reader was given {shown} of {PAIRS * REQUESTS_PER_PAIR} executions")
    return {"live_list_percent": statistics.median(more)}


LIVE_LIST_SCENARIOS: tuple[Scenario, ...] = (live_list,)
