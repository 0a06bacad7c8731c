"""What is measured, and how: each scenario gives numbers by name."""

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bench.answers import measure_constraints, measure_decoding
from bench.load import Connections, open_connections, open_stream_client, request
from bench.processes import Cores, MeasuredProcess, open_portico, open_proxy
from bench.upstream import BLOCK, INTERVAL, PIECES, ROLL, TEXT, VALUE, BenchUpstream

CONNECTIONS = 32
WARM_UP = 400
ROUNDS = 9
REQUESTS = 600
REST_SECONDS = 0.4
"""Longer than records of ended executions gather."""
TIMED = 1000
ALONE = 100
STREAMS = 100
STREAM_WAVES = 7
CLOSES = 150
STARTS = 5
IDLE_SECONDS = 1.0
STEPS = 20
PLANS = 50
REPLICAS = 5
VOTES = 200


def _structured(how: Mapping[str, object]) -> bytes:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    asked = [{"role": "user", "content": f"{VALUE}: what is the answer?"}]
    return request({"messages": asked, "output": {"schema": schema}, **how})


def chat_request(*, keyed: bool = False) -> bytes:
    """Plain chat; under an Idempotency-Key of its own it is journaled step by step."""
    return request({"messages": [{"role": "user", "content": "What is the answer?"}]}, keyed=keyed)


def tool_request(*, keyed: bool = False) -> bytes:
    """One tool round between two inferences."""
    asked = {"messages": [{"role": "user", "content": f"{ROLL}: roll two dice"}], "tools": ["roll_dice"]}
    return request(asked, keyed=keyed)


CHAT_REQUEST, TOOL_REQUEST = chat_request(), tool_request()
STREAM_REQUEST = request({"messages": [{"role": "user", "content": "Tell me more."}]}, stream=True)
BLOCKED_REQUEST = request({"messages": [{"role": "user", "content": BLOCK}]})
PLAN_REQUEST = request(
    {
        "mode": "plan",
        "messages": [{"role": "user", "content": "What is the answer?"}],
        "plan": {"steps": [{"name": f"step {number}", "type": "infer"} for number in range(STEPS)]},
    }
)
STRUCTURED_REQUEST = _structured({"mode": "structured"})
REDUNDANT_REQUEST = _structured({"mode": "redundant", "redundancy": {"n": REPLICAS, "early_stop": False}})
BLOCKED_STREAM_REQUEST = request({"messages": [{"role": "user", "content": BLOCK}]}, stream=True)


@dataclass(frozen=True, slots=True)
class BenchEnvironment:
    """What every scenario runs with."""

    cores: Cores
    upstream: BenchUpstream


class Unmeasurable(RuntimeError):  # noqa: N818 - what it says of a machine is no error
    """Something cannot be measured on this machine; everything else can."""


Numbers: TypeAlias = Mapping[str, float]
Scenario: TypeAlias = Callable[[BenchEnvironment], Coroutine[None, None, Numbers]]


async def chat(bench: BenchEnvironment) -> Numbers:
    """Plain chat at 32 connections, interleaved with the bare proxy; medians over rounds."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_proxy(bench.cores, bench.upstream.port) as proxy,
        open_connections(portico.port, CONNECTIONS) as to_portico,
        open_connections(proxy.port, CONNECTIONS) as to_proxy,
    ):
        for connections in (to_portico, to_proxy):
            await connections.run(CHAT_REQUEST, WARM_UP, expected=TEXT.encode())
        ours, bare = [], []
        for _ in range(ROUNDS):
            ours.append(await cpu_per_request(portico, to_portico, CHAT_REQUEST))
            bare.append(await cpu_per_request(proxy, to_proxy, CHAT_REQUEST))
        latencies = await to_portico.run(CHAT_REQUEST, TIMED, expected=TEXT.encode())
        async with open_connections(portico.port, 1) as alone:
            lonely = await alone.run(CHAT_REQUEST, ALONE, expected=TEXT.encode())
    return {
        "chat_cpu_ms": statistics.median(ours) * 1000,
        "proxy_cpu_ms": statistics.median(bare) * 1000,
        "chat_ratio": statistics.median(own / yard for own, yard in zip(ours, bare, strict=True)),
        "chat_latency_p50_ms": statistics.median(latencies) * 1000,
        "chat_latency_p99_ms": _quantile(latencies, 0.99) * 1000,
        "chat_alone_p50_ms": statistics.median(lonely) * 1000,
    }


async def tool_round(bench: BenchEnvironment) -> Numbers:
    """Two inferences and one local tool between them."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        await connections.run(TOOL_REQUEST, WARM_UP, expected=TEXT.encode())
        asked = bench.upstream.requests
        costs = [await cpu_per_request(portico, connections, TOOL_REQUEST) for _ in range(ROUNDS)]
        inferences = (bench.upstream.requests - asked) / (ROUNDS * REQUESTS)
    if inferences != 2:
        raise RuntimeError(f"a tool round took {inferences} inferences")
    return {"tool_round_cpu_ms": statistics.median(costs) * 1000}


async def plan(bench: BenchEnvironment) -> Numbers:
    """An authored plan whose steps each ask a model, one after the other, interleaved with plain chat."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        await connections.run(CHAT_REQUEST, WARM_UP, expected=TEXT.encode())
        await connections.run(PLAN_REQUEST, CONNECTIONS, expected=TEXT.encode())
        chats, plans = [], []
        for _ in range(ROUNDS):
            chats.append(await cpu_per_request(portico, connections, CHAT_REQUEST))
            plans.append(await cpu_per_request(portico, connections, PLAN_REQUEST, PLANS))
    return {
        "plan_cpu_ms": statistics.median(plans) * 1000,
        "plan_ratio": statistics.median(whole / one for whole, one in zip(plans, chats, strict=True)),
    }


async def redundant(bench: BenchEnvironment) -> Numbers:
    """Replicas that all answer and vote, interleaved with one structured request."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        for what in (STRUCTURED_REQUEST, REDUNDANT_REQUEST):
            await connections.run(what, WARM_UP, expected=TEXT.encode())
        single, voted = [], []
        for _ in range(ROUNDS):
            single.append(await cpu_per_request(portico, connections, STRUCTURED_REQUEST))
            voted.append(await cpu_per_request(portico, connections, REDUNDANT_REQUEST, VOTES))
    return {
        "structured_cpu_ms": statistics.median(single) * 1000,
        "redundant_ratio": statistics.median(whole / one for whole, one in zip(voted, single, strict=True)),
    }


async def streams(bench: BenchEnvironment) -> Numbers:
    """100 streams of 50 chunks at 20 ms, in turn with the bare proxy's. They start one after the other."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_proxy(bench.cores, bench.upstream.port) as proxy,
    ):
        for measured in (portico, proxy):
            await asyncio.gather(*[(await open_stream_client(measured.port, STREAM_REQUEST)).done for _ in range(2)])
        waves, bare = [], []
        for _ in range(STREAM_WAVES):
            waves.append(await _stream_wave(portico))
            bare.append(await _stream_wave(proxy))
    firsts = [first for wave in waves for first in wave.first_delays]
    return {
        "stream_cpu_us": _cpu_per_piece_us(waves),
        "stream_proxy_us": _cpu_per_piece_us(bare),
        "stream_ratio": statistics.median(
            own.cpu_seconds / yard.cpu_seconds for own, yard in zip(waves, bare, strict=True)
        ),
        "stream_memory_kb": max(wave.grown_bytes for wave in waves) / STREAMS / 1000,
        "stream_first_ms": statistics.median(firsts) * 1000,
        "stream_first_p99_ms": _quantile(firsts, 0.99) * 1000,
        "stream_piece_p99_ms": _quantile([late for wave in waves for late in wave.delays], 0.99) * 1000,
    }


async def client_close(bench: BenchEnvironment) -> Numbers:
    """From a client's close to the upstream's, before the first byte, for JSON and for a stream."""
    seconds = []
    async with open_portico(bench.cores, bench.upstream.port) as portico:
        for turn in range(CLOSES):
            reader = await open_stream_client(portico.port, BLOCKED_STREAM_REQUEST if turn % 2 else BLOCKED_REQUEST)
            async with asyncio.timeout(5):
                await bench.upstream.opened.get()
                closed_at = time.monotonic()
                reader.abort()
                seconds.append(await bench.upstream.closed.get() - closed_at)
            reader.done.exception() if reader.done.done() else reader.done.cancel()
    return {"close_p50_ms": statistics.median(seconds) * 1000, "close_p99_ms": _quantile(seconds, 0.99) * 1000}


async def startup(bench: BenchEnvironment) -> Numbers:
    """From the start of the process to its first ready answer, and the memory it then idles with."""
    ready, resident = [], []
    for _ in range(STARTS):
        async with open_portico(bench.cores, bench.upstream.port) as portico:
            await asyncio.sleep(IDLE_SECONDS)
            ready.append(portico.ready_seconds)
            resident.append(portico.resident_bytes())
    return {"start_seconds": statistics.median(ready), "idle_mb": max(resident) / 1e6}


async def answers(_bench: BenchEnvironment) -> Numbers:
    """What is computed on an answer, in this process."""
    return measure_decoding() | measure_constraints()


SCENARIOS: tuple[Scenario, ...] = (chat, tool_round, redundant, plan, streams, answers, client_close, startup)


async def cpu_per_request(
    measured: MeasuredProcess, connections: Connections, what: bytes, requests: int = REQUESTS
) -> float:
    """Seconds of CPU that each of so many requests takes, with those that its record takes to be written behind."""
    before = measured.cpu_seconds()
    await connections.run(what, requests, expected=TEXT.encode())
    await asyncio.sleep(REST_SECONDS)
    return (measured.cpu_seconds() - before) / requests


@dataclass(frozen=True, slots=True)
class _Wave:
    """100 streams at once. `grown_bytes` is the resident memory they took while all of them were open."""

    cpu_seconds: float
    grown_bytes: int
    first_delays: list[float]
    delays: list[float]


async def _stream_wave(portico: MeasuredProcess) -> _Wave:
    before, resident = portico.cpu_seconds(), portico.resident_bytes()
    readers = []
    for _ in range(STREAMS):
        readers.append(await open_stream_client(portico.port, STREAM_REQUEST))
        await asyncio.sleep(PIECES * INTERVAL / 2 / STREAMS)
    await asyncio.sleep(PIECES * INTERVAL / 4)
    grown = portico.resident_bytes() - resident
    async with asyncio.timeout(PIECES * INTERVAL * 10):
        await asyncio.gather(*(reader.done for reader in readers))
    cost = portico.cpu_seconds() - before
    return _Wave(
        cost, grown, [reader.delays[0] for reader in readers], [late for reader in readers for late in reader.delays]
    )


def _cpu_per_piece_us(waves: list[_Wave]) -> float:
    return statistics.median(wave.cpu_seconds for wave in waves) / (STREAMS * PIECES) * 1e6


def _quantile(values: list[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
