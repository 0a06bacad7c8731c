"""Scenarios on PostgreSQL: journaling, and executions in the background, which DBOS queues."""

import asyncio
import re
import statistics

from bench.journal_steps import record_tool_round, step_cost_ms
from bench.load import ROUND_SECONDS, Connections, get, open_connections, request
from bench.local_storage import journal_costs
from bench.postgres import open_server
from bench.processes import MeasuredProcess, open_portico
from bench.scenarios import (
    CONNECTIONS,
    IDLE_SECONDS,
    ROUNDS,
    WARM_UP,
    BenchEnvironment,
    Numbers,
    Scenario,
    chat_request,
    cpu_per_request,
)
from bench.upstream import TEXT
from portico.adapters.stores.postgres import open_postgres
from portico.adapters.system import SystemClock, SystemEntropy

QUEUED = 100
POLL_SECONDS = 0.2
BACKGROUND_REQUEST = request({"messages": [{"role": "user", "content": "What is the answer?"}], "background": True})
_ENDED = re.compile(rb'^portico_executions_total\{.*state="COMPLETE".*\} ([0-9.e+]+)$', re.MULTILINE)


async def shared_journal(bench: BenchEnvironment) -> Numbers:
    """Measure journaling on PostgreSQL, without the CPU of the database server."""
    clock = SystemClock()
    async with open_server() as url:
        costs = await journal_costs(bench, url)
        async with open_postgres(url, clock, SystemEntropy(clock)) as database:
            step = await step_cost_ms(database, await record_tool_round(bench))
    return {"shared_more_ms": costs.journaled_more_ms, "shared_step_ms": step}


async def background(bench: BenchEnvironment) -> Numbers:
    """Measure the same chat as a journaled request and in the background, where DBOS queues it."""
    async with (
        open_server() as url,
        open_portico(bench.cores, bench.upstream.port, storage=url) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        await asyncio.sleep(IDLE_SECONDS)
        idle = portico.resident_bytes()
        await connections.run(chat_request(keyed=True), WARM_UP, expected=TEXT.encode())
        await _queued(portico, connections)
        differences = []
        for _ in range(ROUNDS):
            journaled = await cpu_per_request(portico, connections, chat_request(keyed=True))
            differences.append((await _queued(portico, connections) - journaled) * 1000)
    return {"queued_more_ms": statistics.median(differences), "idle_shared_mb": idle / 1e6}


async def _queued(portico: MeasuredProcess, connections: Connections) -> float:
    """Return CPU seconds per execution, from the first request to the end of the last execution."""
    before, began = await _ended(portico.port), portico.cpu_seconds()
    await connections.run(BACKGROUND_REQUEST, QUEUED, expected=b'"INIT"', status=202)
    async with asyncio.timeout(ROUND_SECONDS):
        await _until_ended(portico.port, before + QUEUED)
    return (portico.cpu_seconds() - began) / QUEUED


async def _until_ended(port: int, count: float) -> None:
    while True:
        if await _ended(port) >= count:
            return
        await asyncio.sleep(POLL_SECONDS)


async def _ended(port: int) -> float:
    return sum(float(number) for number in _ENDED.findall(await get(port, "/metrics")))


SHARED_STORAGE_SCENARIOS: tuple[Scenario, ...] = (shared_journal, background)
