"""What each journaled step costs, in this process: those of a real tool round, put into a journal again and again.

Over HTTP a step is a fiftieth of its request and lost in what the others vary by; here it is most of what is measured.
"""

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

from app.adapters.event_bus import EventBus
from app.adapters.stores import codec
from app.adapters.stores.database import Database
from app.adapters.stores.journal.stored_journal import JournalConfig, StoredJournal, open_journal
from app.adapters.stores.journal.writer import WriterCallbacks
from app.adapters.system import SystemClock
from app.domain.contract.request import SystemRequest
from app.domain.contract.response import Durability
from app.domain.ids import ExecutionId, ReplicaId, RequestId, TenantId, TraceId
from app.domain.journal.events import UnnumberedEvent
from app.domain.journal.header import EffectiveLimits, ExecutionHeader
from app.domain.journal.outcomes import AttemptSucceeded, RecordedStep
from app.domain.lifecycle import Mode
from bench.load import open_connections
from bench.processes import open_portico
from bench.scenarios import CONNECTIONS, BenchEnvironment, tool_request
from bench.upstream import TEXT

TURNS = 9
TOOL_ROUNDS = 20
ROUND_SECONDS = 0.015
"""About what a tool round takes the service when all connections are busy."""


_PUTS = "SELECT key, fingerprint, outcome, at, events FROM commits WHERE number > 0 ORDER BY number"


class JournalWrite(NamedTuple):
    """What an execution put into its journal at once."""

    row: RecordedStep | None
    events: Sequence[UnnumberedEvent]


async def record_tool_round(bench: BenchEnvironment) -> list[JournalWrite]:
    """What was put from a model's answer that asks for a tool until the next answer, by the service."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        path = Path(directory) / "portico.db"
        async with (
            open_portico(bench.cores, bench.upstream.port, storage=f"sqlite:///{path}") as portico,
            open_connections(portico.port, 1) as connections,
        ):
            await connections.run(tool_request(keyed=True), 1, expected=TEXT.encode())
        with closing(sqlite3.connect(path)) as connection:
            puts = [_put(*cells) for cells in connection.execute(_PUTS)]
    first, second = [
        number for number, put in enumerate(puts) if put.row and isinstance(put.row.outcome, AttemptSucceeded)
    ]
    return puts[first:second]


async def step_cost_ms(database: Database, told: Sequence[JournalWrite]) -> float:
    """Executions whose tool rounds are journaled there, in turn with the same held in memory, 32 at a time."""
    steps = TOOL_ROUNDS * sum(put.row is not None for put in told)
    names = map(str, count())
    async with open_bench_journal(database) as journal:
        more = []
        for _ in range(TURNS):
            kept = await _cpu_seconds(journal, [bench_header(next(names)) for _ in range(CONNECTIONS)], told)
            held = await _cpu_seconds(journal, [bench_header(next(names), "memory") for _ in range(CONNECTIONS)], told)
            more.append(kept - held)
    return statistics.median(more) / CONNECTIONS / steps * 1000


async def _cpu_seconds(
    journal: StoredJournal, headers: Sequence[ExecutionHeader], told: Sequence[JournalWrite]
) -> float:
    """What this process spends while these executions put their steps and wait until they are kept."""
    for each in headers:
        await journal.open(each)
    began = time.process_time()
    async with asyncio.TaskGroup() as group:
        for number, each in enumerate(headers):
            group.create_task(_put_rounds(journal, each, told, after=number / len(headers) * ROUND_SECONDS))
    took = time.process_time() - began
    for each in headers:
        journal.close(each.execution_id)
    return took


async def _put_rounds(
    journal: StoredJournal, opened: ExecutionHeader, told: Sequence[JournalWrite], *, after: float
) -> None:
    await asyncio.sleep(after)
    for number in range(TOOL_ROUNDS):
        for row, events in told:
            again = None if row is None else replace(row, key=f"{number}/{row.key}")
            journal.put(opened.execution_id, again, events)
        await asyncio.sleep(ROUND_SECONDS)
    if opened.durability == "journaled":
        await journal.durable(opened.execution_id)


def _put(key: str | None, fingerprint: str, outcome: bytes, at: float, events: bytes | None) -> JournalWrite:
    told = [] if events is None else codec.decode_events(events)
    row = None if key is None else RecordedStep(key, fingerprint, codec.decode_outcome(outcome), at)
    return JournalWrite(row, [(each.anchor, each.correlation, each.event) for each in told])


@asynccontextmanager
async def open_bench_journal(database: Database) -> AsyncIterator[StoredJournal]:
    """A journal there that nobody listens to, and that breaks where anything is lost."""
    sink = EventBus((), capacity=1, on_fault=_fail, on_drop=_nothing)
    loss = WriterCallbacks(_lost, _nothing, _fail)
    async with open_journal(database, sink, SystemClock(), JournalConfig(ReplicaId("bench"), 1), loss) as journal:
        yield journal


def bench_header(name: str, durability: Durability = "journaled") -> ExecutionHeader:
    """An execution of that name, asked for a moment ago."""
    return ExecutionHeader(
        execution_id=ExecutionId(name),
        request_id=RequestId(name),
        tenant=TenantId("local"),
        trace_id=TraceId("0" * 32),
        parent_span_id=None,
        mode=Mode.CHAT,
        pattern_version=1,
        request=SystemRequest.model_validate({"messages": [{"role": "user", "content": "Hello"}]}),
        bounds=EffectiveLimits(600, 20, 32, 1),
        currency="USD",
        args_key="0" * 32,
        created_at=SystemClock().now(),
        durability=durability,
    )


def _lost(_: str, failure: Exception) -> None:
    raise failure


def _fail(fault: Exception) -> None:
    raise fault


def _nothing() -> None:
    """Nobody is told."""
