"""Cost of each journaled step, in this process: the writes of a real tool round, put into a journal many times.

Over HTTP a step is a fiftieth of its request, less than the noise of the rest; here it is most of the measured work.
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

from bench.load import open_connections
from bench.processes import open_portico
from bench.scenarios import CONNECTIONS, BenchEnvironment, tool_request
from bench.upstream import TEXT
from portico.adapters.event_bus import EventBus
from portico.adapters.stores import codec
from portico.adapters.stores.database import Database
from portico.adapters.stores.journal.stored_journal import JournalConfig, StoredJournal, open_journal
from portico.adapters.stores.journal.writer import WriterCallbacks
from portico.adapters.system import SystemClock
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import Durability
from portico.domain.ids import ExecutionId, ReplicaId, RequestId, TenantId, TraceId
from portico.domain.journal.events import UnnumberedEvent
from portico.domain.journal.header import EffectiveLimits, ExecutionHeader
from portico.domain.journal.outcomes import AttemptSucceeded, RecordedStep
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import Mode

ROUNDS = 9
TOOL_ROUNDS = 20
ROUND_SECONDS = 0.015
"""Approximate duration of a tool round while all connections are busy."""


_WRITES = "SELECT key, fingerprint, outcome, at, events FROM commits WHERE number > 0 ORDER BY number"


class JournalWrite(NamedTuple):
    """A step and events that an execution writes into its journal at once."""

    step: RecordedStep | None
    events: Sequence[UnnumberedEvent]


async def record_tool_round(bench: BenchEnvironment) -> list[JournalWrite]:
    """Return the writes of the service from a model's tool call to the next answer."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        path = Path(directory) / "portico.db"
        async with (
            open_portico(bench.cores, bench.upstream.port, storage=f"sqlite:///{path}") as portico,
            open_connections(portico.port, 1) as connections,
        ):
            await connections.run(tool_request(keyed=True), 1, expected=TEXT.encode())
        with closing(sqlite3.connect(path)) as connection:
            writes = [_write_of(*cells) for cells in connection.execute(_WRITES)]
    first, second = [
        number for number, write in enumerate(writes) if write.step and isinstance(write.step.outcome, AttemptSucceeded)
    ]
    return writes[first:second]


async def step_cost_ms(database: Database, writes: Sequence[JournalWrite]) -> float:
    """Return the cost of a step that is journaled, beyond the same step in memory, with 32 concurrent executions."""
    steps = TOOL_ROUNDS * sum(write.step is not None for write in writes)
    names = map(str, count())
    async with open_bench_journal(database) as journal:
        differences = []
        for _ in range(ROUNDS):
            journaled = await _cpu_seconds(journal, [bench_header(next(names)) for _ in range(CONNECTIONS)], writes)
            in_memory = await _cpu_seconds(
                journal, [bench_header(next(names), "memory") for _ in range(CONNECTIONS)], writes
            )
            differences.append(journaled - in_memory)
    return statistics.median(differences) / CONNECTIONS / steps * 1000


async def _cpu_seconds(
    journal: StoredJournal, headers: Sequence[ExecutionHeader], writes: Sequence[JournalWrite]
) -> float:
    """Return the CPU time of this process while these executions put their steps and wait for their commit."""
    for header in headers:
        await journal.open(header)
    began = time.process_time()
    async with asyncio.TaskGroup() as group:
        for number, header in enumerate(headers):
            group.create_task(_put_rounds(journal, header, writes, after=number / len(headers) * ROUND_SECONDS))
    seconds = time.process_time() - began
    for header in headers:
        journal.close(header.execution_id)
    return seconds


async def _put_rounds(
    journal: StoredJournal, header: ExecutionHeader, writes: Sequence[JournalWrite], *, after: float
) -> None:
    await asyncio.sleep(after)
    for number in range(TOOL_ROUNDS):
        for step, events in writes:
            renamed = [] if step is None else [replace(step, key=StepKey(f"{number}/{step.key}"))]
            journal.put(header.execution_id, renamed, events)
        await asyncio.sleep(ROUND_SECONDS)
    if header.durability == "journaled":
        await journal.durable(header.execution_id)


def _write_of(key: str | None, fingerprint: str, outcome: bytes, at: float, events: bytes | None) -> JournalWrite:
    stored = [] if events is None else codec.decode_events(events)
    row = None if key is None else RecordedStep(StepKey(key), fingerprint, codec.decode_outcome(outcome), at)
    return JournalWrite(row, [(each.anchor, each.correlation, each.event) for each in stored])


@asynccontextmanager
async def open_bench_journal(database: Database) -> AsyncIterator[StoredJournal]:
    """Open a journal without subscribers that raises if it loses anything."""
    sink = EventBus((), capacity=1, on_fault=_fail, on_drop=_nothing)
    loss = WriterCallbacks(_lost, _nothing, _fail)
    async with open_journal(database, sink, SystemClock(), JournalConfig(ReplicaId("bench"), 1), loss) as journal:
        yield journal


def bench_header(name: str, durability: Durability = "journaled") -> ExecutionHeader:
    """Return the header of a new chat with that id."""
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
    """Ignore the callback."""
