"""Scenarios on SQLite: journaling relative to memory, suspended executions, reading a long event log."""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from bench.journal_steps import bench_header, open_bench_journal, record_tool_round, step_cost_ms
from bench.load import open_connections, read_events, request
from bench.processes import MeasuredProcess, open_portico
from bench.scenarios import CONNECTIONS, WARM_UP, BenchEnvironment, Numbers, Scenario, chat_request, cpu_per_request
from bench.upstream import ASK, TEXT
from portico.adapters.stores.sqlite import open_sqlite
from portico.domain.contract.response import SystemResponse
from portico.domain.fingerprints import span_id
from portico.domain.ids import ExecutionId, RequestId, ToolCallId
from portico.domain.journal.events import (
    CorrelationContext,
    Event,
    ExecutionCompleted,
    InferenceEnd,
    InferenceStart,
    LifecycleTransition,
    ToolEnd,
    ToolStart,
)
from portico.domain.journal.header import ExecutionHeader
from portico.domain.lifecycle import Mode, State

SUSPENDED = 1_000
EVENTS, READS = 10_000, 7
EXECUTIONS, PAGE, PAGE_READS = 100_000, 100, 5
_SPAN = timedelta(days=14)
_LONG = ExecutionId("long")
PAIRS, REQUESTS_PER_PAIR = 16, 200
_ORDERS = ((False, True), (True, False))
SUSPENDING_REQUEST = request({"messages": [{"role": "user", "content": f"{ASK}: may I?"}], "tools": ["ask_person"]})


async def journal(bench: BenchEnvironment) -> Numbers:
    """Measure the same chat in memory and journaled on SQLite, and each further step of a tool round."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        async with open_sqlite(Path(directory) / "portico.db") as database:
            step = await step_cost_ms(database, await record_tool_round(bench))
    costs = await journal_costs(bench, None)
    return {
        "journaled_more_ms": costs.journaled_more_ms,
        "journaled_step_ms": step,
        "journaled_step_ratio": step / costs.in_memory_ms,
    }


class JournalCosts(NamedTuple):
    """The cost of a chat in memory, and the extra cost of the same chat journaled, as medians of pairs."""

    in_memory_ms: float
    journaled_more_ms: float


async def journal_costs(bench: BenchEnvironment, storage: str | None) -> JournalCosts:
    """Return the costs of a chat at 32 connections, in memory and journaled in turn."""
    async with (
        open_portico(bench.cores, bench.upstream.port, storage=storage) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        for keyed in (False, True):
            await connections.run(chat_request(keyed=keyed), WARM_UP, expected=TEXT.encode())
        in_memory, differences = [], []
        for pair in range(PAIRS):
            costs = {
                keyed: await cpu_per_request(portico, connections, chat_request(keyed=keyed), REQUESTS_PER_PAIR)
                for keyed in _ORDERS[pair % 2]
            }
            in_memory.append(costs[False])
            differences.append(costs[True] - costs[False])
    return JournalCosts(statistics.median(in_memory) * 1000, statistics.median(differences) * 1000)


async def suspended(bench: BenchEnvironment) -> Numbers:
    """Measure the memory of suspended executions."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        await connections.run(chat_request(keyed=True), WARM_UP, expected=TEXT.encode())
        before = portico.resident_bytes()
        await connections.run(SUSPENDING_REQUEST, SUSPENDED, expected=b'"SUSPENDED"', status=202)
        await asyncio.sleep(1)
        return {"suspended_mb": (portico.resident_bytes() - before) / 1e6}


async def event_log(bench: BenchEnvironment) -> Numbers:
    """Measure a client that reads a log of 10,000 events from its start over HTTP; return the best of several reads."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        path = Path(directory) / "portico.db"
        await _write_log(path)
        async with open_portico(bench.cores, bench.upstream.port, storage=f"sqlite:///{path}") as portico:
            seconds = [await _read_log(portico) for _ in range(READS)]
    return {"log_event_us": min(seconds) / EVENTS * 1e6}


async def statistics_over_time(bench: BenchEnvironment) -> Numbers:
    """Measure the counts of 100,000 chats over HTTP, and one page of their list in turn: the CPU of the service."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        path = Path(directory) / "portico.db"
        storage = f"sqlite:///{path}"
        async with (
            open_portico(bench.cores, bench.upstream.port, storage=storage) as portico,
            open_connections(portico.port, 1) as connections,
        ):
            await connections.run(chat_request(keyed=True), 1, expected=TEXT.encode())
        newest, pages, counts = _copy_execution(path), [], []
        async with open_portico(bench.cores, bench.upstream.port, storage=storage) as portico:
            for number in range(READS):
                # Another hour each time, because a result is used for a second.
                until = datetime.fromtimestamp(newest + 3_600 * number, UTC)
                query = f"bucket=hour&since={until - 2 * _SPAN:%Y-%m-%dT%H:%M:%SZ}&until={until:%Y-%m-%dT%H:%M:%SZ}"
                for _ in range(PAGE_READS):
                    seconds, page = await _cpu_of(portico, "/v1/executions")
                    pages.append(seconds)
                seconds, found = await _cpu_of(portico, f"/v1/stats?{query}")
                counts.append(seconds)
                _require_all(page, found)
    seconds = statistics.mean(counts)
    return {"stats_ratio": seconds / statistics.mean(pages), "stats_ms": seconds * 1_000}


def _require_all(page: Any, found: Any) -> None:
    """Raise RuntimeError unless the page is full, and almost all executions are counted."""
    counted = sum(sum(bucket["states"].values()) for bucket in found["buckets"])
    if len(page["data"]) != PAGE or counted < EXECUTIONS:
        raise RuntimeError(f"Only {len(page['data'])} executions are on a page, and {counted} are counted.")


async def _cpu_of(portico: MeasuredProcess, path: str) -> tuple[float, Any]:
    """Return the CPU seconds of the service until the answer is read, and the answer."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{portico.port}") as client:
        before = portico.cpu_seconds()
        answer = await client.get(path)
        return portico.cpu_seconds() - before, answer.json()


def _copy_execution(path: Path) -> float:
    """Copy the stored execution over two weeks, and return the time of the newest."""
    with closing(sqlite3.connect(path)) as database, database:
        [names, *_] = zip(*database.execute("SELECT name FROM pragma_table_info('executions')"), strict=True)
        [row] = database.execute("SELECT * FROM executions")
        execution = dict(zip(names, row, strict=True))
        newest = execution["created_at"]
        copies = []
        for number in range(EXECUTIONS):
            at = newest - _SPAN.total_seconds() * (number / EXECUTIONS) - 60
            digits = f"{int(at * 1_000):012x}"
            key = f"{digits[:8]}-{digits[8:]}-7000-8000-{number:012x}"
            took = (number % 50) / 10
            times = {"created_at": at, "started_at": at, "entered_at": at + took}
            copies.append(tuple((execution | times | {"execution_id": key, "request_id": key}).values()))
        places = ", ".join("?" * len(names))
        database.executemany(f"INSERT INTO executions VALUES ({places})", copies)  # noqa: S608 - placeholders only
    return float(newest)


async def _read_log(portico: MeasuredProcess) -> float:
    began = time.perf_counter()
    events = await read_events(portico.port, "/v1/executions/long/events")
    seconds = time.perf_counter() - began
    if events != EVENTS:
        raise RuntimeError(f"Only {events} of {EVENTS} events arrived.")
    return seconds


async def _write_log(path: Path) -> None:
    """Store an execution with a long log, in commits of a few events each, as a real one has."""
    header = bench_header(_LONG)
    async with open_sqlite(path) as database, open_bench_journal(database) as journal:
        await journal.open(header)
        events = islice(cycle(_EVENTS), EVENTS - 2)
        for number, group in enumerate(iter(lambda: list(islice(events, 3)), [])):
            correlation = _correlation(header, f"{number}")
            journal.put(_LONG, (), [(f"{number}", correlation, event) for event in group])
            if number % 100 == 0:
                await journal.durable(_LONG)
        transition = LifecycleTransition(State.EXECUTE, State.COMPLETE, 1, "answered")
        response = SystemResponse(request_id=RequestId(_LONG), trace_id="0" * 32, mode=Mode.CHAT, state=State.COMPLETE)
        last = [("end", _correlation(header, ""), event) for event in (transition, ExecutionCompleted(response))]
        journal.put(_LONG, (), last)
        await journal.durable(_LONG)


_EVENTS: tuple[Event, ...] = (
    InferenceStart("0/0", 12, 3, False, False, None, "primary", "gpt-4o-mini"),
    InferenceEnd("0/0", 812.5, 1_200, 34, "tool", 1),
    ToolStart("roll_dice", ToolCallId("call_1"), "0f" * 16),
    ToolEnd("roll_dice", ToolCallId("call_1"), 0.25, True, None),
    LifecycleTransition(State.EXECUTE, State.VALIDATE, 1, "output_ready"),
    LifecycleTransition(State.VALIDATE, State.EXECUTE, 2, "validation_schema_invalid"),
)


def _correlation(header: ExecutionHeader, key: str) -> CorrelationContext:
    return CorrelationContext(header.request_id, None, header.trace_id, span_id(_LONG, key), span_id(_LONG, ""))


LOCAL_STORAGE_SCENARIOS: tuple[Scenario, ...] = (journal, suspended, event_log, statistics_over_time)
