"""What keeping executions costs: step by step against in memory, those that wait, and reading a long log."""

import asyncio
import statistics
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from app.adapters.clock import SystemClock
from app.adapters.event_bus import EventBus
from app.adapters.stores.journal import Keeping, open_journal
from app.adapters.stores.sqlite import open_sqlite
from app.adapters.stores.writer import Loss
from app.domain.boundary import SystemRequest, SystemResponse
from app.domain.digests import span_id
from app.domain.effects import Bounds, Header
from app.domain.events import (
    Anchored,
    CorrelationContext,
    Event,
    ExecutionCompleted,
    InferenceEnd,
    InferenceStart,
    LifecycleTransition,
    ToolEnd,
    ToolStart,
)
from app.domain.lifecycle import Mode, State
from bench.load import open_connections, read_events, request
from bench.processes import Measured, open_portico
from bench.scenarios import (
    CONNECTIONS,
    ROUNDS,
    WARM_UP,
    Bench,
    Numbers,
    Scenario,
    chat_request,
    cpu_per_request,
    tool_request,
)
from bench.upstream import ASK, TEXT

WAITING = 1_000
EVENTS, JOINS = 10_000, 7
TOOL_ROUND_STEPS = 3
"""How many more steps are recorded of an execution with a tool round than of one without: a tool's attempt, what is
offered to the second inference, and its attempt.
"""
ASKED = request({"messages": [{"role": "user", "content": f"{ASK}: may I?"}], "tools": ["ask_person"]})


async def keeping(bench: Bench) -> Numbers:
    """The same executions, held in memory and journaled step by step, in turn, at 32 connections."""
    more: dict[str, list[float]] = {"chat": [], "tool": []}
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        forms = {"chat": chat_request, "tool": tool_request}
        for form in forms.values():
            for keyed in (False, True):
                await connections.run(form(keyed=keyed), WARM_UP, expected=TEXT.encode())
        for _ in range(ROUNDS):
            for name, form in forms.items():
                held = await cpu_per_request(portico, connections, form(keyed=False))
                kept = await cpu_per_request(portico, connections, form(keyed=True))
                more[name].append((kept - held) * 1000)
    execution = statistics.median(more["chat"])
    return {
        "journaled_more_ms": execution,
        "journaled_step_ms": (statistics.median(more["tool"]) - execution) / TOOL_ROUND_STEPS,
    }


async def waiting(bench: Bench) -> Numbers:
    """The memory that suspended executions take, once they have all been asked for."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        await connections.run(chat_request(keyed=True), WARM_UP, expected=TEXT.encode())
        before = portico.resident_bytes()
        await connections.run(ASKED, WAITING, expected=b'"SUSPENDED"', status=202)
        await asyncio.sleep(1)
        return {"suspended_mb": (portico.resident_bytes() - before) / 1e6}


async def joining(bench: Bench) -> Numbers:
    """A reader that joins a log of 10,000 events from its start, over HTTP; the best of several."""
    with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
        path = Path(directory) / "portico.db"
        await _write_log(path)
        async with open_portico(bench.cores, bench.upstream.port, storage=f"sqlite:///{path}") as portico:
            seconds = [await _join(portico) for _ in range(JOINS)]
    return {"log_event_us": min(seconds) / EVENTS * 1e6}


async def _join(portico: Measured) -> float:
    began = time.perf_counter()
    events = await read_events(portico.port, "/v1/executions/long/events")
    took = time.perf_counter() - began
    if events != EVENTS:
        raise RuntimeError(f"{events} of {EVENTS} events came")
    return took


async def _write_log(path: Path) -> None:
    """An execution with a long log, in commits of a few events each, as they are in a real one."""
    sink = EventBus((), capacity=1, on_fault=_fail, on_drop=_nothing)
    loss = Loss(_lost, _nothing, _fail)
    async with (
        open_sqlite(path) as database,
        open_journal(database, sink, SystemClock(), Keeping("bench", 1), loss) as journal,
    ):
        header = _header()
        await journal.open(header)
        told = islice(cycle(_EVENTS), EVENTS - 2)
        for number, group in enumerate(iter(lambda: list(islice(told, 3)), [])):
            correlation = _correlation(header, f"{number}")
            journal.put("long", None, [Anchored(f"{number}", correlation, event) for event in group])
            if number % 100 == 0:
                await journal.durable("long")
        over = LifecycleTransition(State.EXECUTE, State.COMPLETE, 1, "answered")
        response = SystemResponse(request_id="long", trace_id="0" * 32, mode=Mode.CHAT, state=State.COMPLETE)
        last = [Anchored("end", _correlation(header, ""), event) for event in (over, ExecutionCompleted(response))]
        journal.put("long", None, last)
        await journal.durable("long")


_EVENTS: tuple[Event, ...] = (
    InferenceStart("0/0", 12, 3, False, False, None, "primary", "gpt-4o-mini"),
    InferenceEnd("0/0", 812.5, 1_200, 34, "tool", 1),
    ToolStart("roll_dice", "call_1", "0f" * 16),
    ToolEnd("roll_dice", "call_1", 0.25, True, None),
    LifecycleTransition(State.EXECUTE, State.VALIDATE, 1, "output_ready"),
    LifecycleTransition(State.VALIDATE, State.EXECUTE, 2, "validation_schema_invalid"),
)


def _header() -> Header:
    asked = SystemRequest.model_validate({"messages": [{"role": "user", "content": "Hello"}]})
    return Header(
        execution_id="long",
        request_id="long",
        tenant="local",
        trace_id="0" * 32,
        parent_span_id=None,
        mode=Mode.CHAT,
        pattern_version=1,
        request=asked,
        bounds=Bounds(600, 20, 32, 1),
        currency="USD",
        args_key="0" * 32,
        created_at=SystemClock().now(),
        durability="journaled",
    )


def _correlation(header: Header, key: str) -> CorrelationContext:
    return CorrelationContext("long", None, header.trace_id, span_id("long", key), span_id("long", ""))


def _lost(_: str, failure: Exception) -> None:
    raise failure


def _fail(fault: Exception) -> None:
    raise fault


def _nothing() -> None:
    """Nobody is told."""


KEEPING: tuple[Scenario, ...] = (keeping, waiting, joining)
