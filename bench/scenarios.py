"""Scenarios: functions that measure the service and return numbers by metric."""

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bench.answers import measure_constraints, measure_decoding
from bench.load import NATIVE_END, Connections, open_connections, open_stream_client, request
from bench.processes import Cores, MeasuredProcess, open_portico, open_proxy
from bench.upstream import BLOCK, CHUNKS, INTERVAL, ROLL, TEXT, VALUE, BenchUpstream

CONNECTIONS = 32
WARM_UP = 400
ROUNDS = 9
REQUESTS = 600
REST_SECONDS = 0.4
"""Longer than the journal waits before it writes records of ended executions."""
TIMED_REQUESTS = 1000
SINGLE_REQUESTS = 100
STREAMS = 100
STREAM_WAVES = 7
CLOSES = 150
IDLE_SECONDS = 1.0
STEPS = 20
PLANS = 50
REPLICAS = 5
VOTES = 200


def _structured(fields: Mapping[str, object]) -> bytes:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    messages = [{"role": "user", "content": f"{VALUE}: what is the answer?"}]
    return request({"messages": messages, "output": {"schema": schema}, **fields})


def chat_request(*, keyed: bool = False) -> bytes:
    """Return a plain chat request; with an Idempotency-Key it is journaled step by step."""
    return request({"messages": [{"role": "user", "content": "What is the answer?"}]}, keyed=keyed)


def tool_request(*, keyed: bool = False) -> bytes:
    """Return a request for one tool round between two inferences."""
    body = {"messages": [{"role": "user", "content": f"{ROLL}: roll two dice"}], "tools": ["roll_dice"]}
    return request(body, keyed=keyed)


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
    """The cores and the upstream of a run of the benchmarks."""

    cores: Cores
    upstream: BenchUpstream


class Unmeasurable(RuntimeError):  # noqa: N818 - a limit of the machine is no error
    """One scenario cannot be measured on this machine; the others can."""


Numbers: TypeAlias = Mapping[str, float]
Scenario: TypeAlias = Callable[[BenchEnvironment], Coroutine[None, None, Numbers]]


async def chat(bench: BenchEnvironment) -> Numbers:
    """Measure plain chat at 32 connections, in turn with the bare proxy; return medians over rounds."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_proxy(bench.cores, bench.upstream.port) as proxy,
        open_connections(portico.port, CONNECTIONS) as to_portico,
        open_connections(proxy.port, CONNECTIONS) as to_proxy,
    ):
        for connections in (to_portico, to_proxy):
            await connections.run(CHAT_REQUEST, WARM_UP, expected=TEXT.encode())
        portico_costs, proxy_costs = [], []
        for _ in range(ROUNDS):
            portico_costs.append(await cpu_per_request(portico, to_portico, CHAT_REQUEST))
            proxy_costs.append(await cpu_per_request(proxy, to_proxy, CHAT_REQUEST))
        latencies = await to_portico.run(CHAT_REQUEST, TIMED_REQUESTS, expected=TEXT.encode())
        async with open_connections(portico.port, 1) as alone:
            alone_latencies = await alone.run(CHAT_REQUEST, SINGLE_REQUESTS, expected=TEXT.encode())
    return {
        "chat_cpu_ms": statistics.median(portico_costs) * 1000,
        "proxy_cpu_ms": statistics.median(proxy_costs) * 1000,
        "chat_ratio": _median_ratio(portico_costs, proxy_costs),
        "chat_latency_p50_ms": statistics.median(latencies) * 1000,
        "chat_latency_p99_ms": quantile(latencies, 0.99) * 1000,
        "chat_alone_p50_ms": statistics.median(alone_latencies) * 1000,
    }


async def tool_round(bench: BenchEnvironment) -> Numbers:
    """Measure two inferences with one local tool call between them, in turn with a chat of the bare proxy."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_proxy(bench.cores, bench.upstream.port) as proxy,
        open_connections(portico.port, CONNECTIONS) as to_portico,
        open_connections(proxy.port, CONNECTIONS) as to_proxy,
    ):
        await to_portico.run(TOOL_REQUEST, WARM_UP, expected=TEXT.encode())
        await to_proxy.run(CHAT_REQUEST, WARM_UP, expected=TEXT.encode())
        before = bench.upstream.requests
        costs, proxy_costs = [], []
        for _ in range(ROUNDS):
            costs.append(await cpu_per_request(portico, to_portico, TOOL_REQUEST))
            proxy_costs.append(await cpu_per_request(proxy, to_proxy, CHAT_REQUEST))
        inferences = (bench.upstream.requests - before) / (ROUNDS * REQUESTS) - 1
    if inferences != 2:
        raise RuntimeError(f"A tool round took {inferences} inferences instead of 2.")
    return {
        "tool_round_cpu_ms": statistics.median(costs) * 1000,
        "tool_round_ratio": _median_ratio(costs, proxy_costs),
    }


async def plan(bench: BenchEnvironment) -> Numbers:
    """Measure an authored plan of inference steps that run one after the other, in turn with plain chat."""
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
        "plan_ratio": _median_ratio(plans, chats),
    }


async def redundant(bench: BenchEnvironment) -> Numbers:
    """Measure replicas that all answer and vote, in turn with one structured request."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        for warm_up in (STRUCTURED_REQUEST, REDUNDANT_REQUEST):
            await connections.run(warm_up, WARM_UP, expected=TEXT.encode())
        single, voted = [], []
        for _ in range(ROUNDS):
            single.append(await cpu_per_request(portico, connections, STRUCTURED_REQUEST))
            voted.append(await cpu_per_request(portico, connections, REDUNDANT_REQUEST, VOTES))
    return {
        "structured_cpu_ms": statistics.median(single) * 1000,
        "redundant_ratio": _median_ratio(voted, single),
    }


async def streams(bench: BenchEnvironment) -> Numbers:
    """Measure 100 streams of 50 chunks at 20 ms, in turn with the bare proxy; they start one after the other."""
    async with (
        open_portico(bench.cores, bench.upstream.port) as portico,
        open_proxy(bench.cores, bench.upstream.port) as proxy,
    ):
        for measured in (portico, proxy):
            await asyncio.gather(*[(await open_stream_client(measured.port, STREAM_REQUEST)).done for _ in range(2)])
        await asyncio.sleep(IDLE_SECONDS)  # so that what the first write of a record loads counts to no stream
        waves, proxy_waves = [], []
        for _ in range(STREAM_WAVES):
            waves.append(await stream_wave(portico, STREAM_REQUEST))
            proxy_waves.append(await stream_wave(proxy, STREAM_REQUEST))
    firsts = [first for wave in waves for first in wave.first_delays]
    return {
        "stream_cpu_us": _cpu_per_chunk_us(waves),
        "stream_proxy_us": _cpu_per_chunk_us(proxy_waves),
        "stream_ratio": _median_ratio([wave.cpu_seconds for wave in waves], [wave.cpu_seconds for wave in proxy_waves]),
        "stream_memory_kb": max(wave.grown_bytes for wave in waves) / STREAMS / 1000,
        "stream_first_ms": statistics.median(firsts) * 1000,
        "stream_first_p99_ms": quantile(firsts, 0.99) * 1000,
        "stream_chunk_p99_ms": quantile([delay for wave in waves for delay in wave.delays], 0.99) * 1000,
    }


async def client_close(bench: BenchEnvironment) -> Numbers:
    """Measure the time from a client's close to the upstream's, before the first byte, for JSON and for a stream."""
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
    return {"close_p50_ms": statistics.median(seconds) * 1000, "close_p99_ms": quantile(seconds, 0.99) * 1000}


async def answers(_bench: BenchEnvironment) -> Numbers:
    """Measure the computations on an answer, in this process."""
    return measure_decoding() | measure_constraints()


SCENARIOS: tuple[Scenario, ...] = (chat, tool_round, redundant, plan, streams, answers, client_close)


async def cpu_per_request(
    measured: MeasuredProcess, connections: Connections, body: bytes, requests: int = REQUESTS
) -> float:
    """Return the CPU seconds of one request on average, the later write of its record included."""
    before = measured.cpu_seconds()
    await connections.run(body, requests, expected=TEXT.encode())
    await asyncio.sleep(REST_SECONDS)
    return (measured.cpu_seconds() - before) / requests


async def costs_in_turn(
    runs: Sequence[tuple[MeasuredProcess, Connections, bytes]], requests: int, *, reverse: bool
) -> list[float]:
    """Return the CPU seconds of a request of each run, in their order; `reverse` measures the last one first."""
    costs = [
        await cpu_per_request(measured, connections, body, requests)
        for measured, connections, body in (reversed(runs) if reverse else runs)
    ]
    return costs[::-1] if reverse else costs


@dataclass(frozen=True, slots=True)
class StreamWave:
    """100 concurrent streams. `grown_bytes` is the resident memory that they took while all of them were open."""

    cpu_seconds: float
    grown_bytes: int
    first_delays: list[float]
    delays: list[float]


async def stream_wave(portico: MeasuredProcess, sent: bytes, ends: Sequence[bytes] = (NATIVE_END,)) -> StreamWave:
    """Read 100 streams of that request, which end as `StreamClient` says."""
    before, resident = portico.cpu_seconds(), portico.resident_bytes()
    readers = []
    for _ in range(STREAMS):
        readers.append(await open_stream_client(portico.port, sent, ends))
        await asyncio.sleep(CHUNKS * INTERVAL / 2 / STREAMS)
    await asyncio.sleep(CHUNKS * INTERVAL / 4)
    grown = portico.resident_bytes() - resident
    async with asyncio.timeout(CHUNKS * INTERVAL * 10):
        await asyncio.gather(*(reader.done for reader in readers))
    cost = portico.cpu_seconds() - before
    return StreamWave(
        cost, grown, [reader.delays[0] for reader in readers], [delay for reader in readers for delay in reader.delays]
    )


def _cpu_per_chunk_us(waves: list[StreamWave]) -> float:
    return statistics.median(wave.cpu_seconds for wave in waves) / (STREAMS * CHUNKS) * 1e6


def _median_ratio(numerators: list[float], denominators: list[float]) -> float:
    """Return the median of the ratios of values that were measured in turn."""
    return statistics.median(above / below for above, below in zip(numerators, denominators, strict=True))


def quantile(values: list[float], share: float) -> float:
    """Return the smallest value that is not exceeded by this share of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
