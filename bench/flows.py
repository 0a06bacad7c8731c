"""Scenarios of flows: building, firing and storing them on their own, and a flow of work nodes in the service."""

import asyncio
import statistics
import time
from collections.abc import Callable
from types import GenericAlias
from typing import Any

from pydantic import BaseModel, create_model

from bench.load import open_connections, request
from bench.processes import open_portico
from bench.scenarios import CONNECTIONS, REST_SECONDS, BenchEnvironment, Numbers, Scenario
from bench.work_flow import WORK_NODES, End, chain, increment
from portico.orchestration.flow import Context, FlowGraph, FlowRuntime

MANY_NODES, WIDE_KEYS = 1_000, 100
ROUNDS, REPEATS = 7, 20
WARM_UP, REQUESTS, SERVED_ROUNDS = 100, 300, 7
MODULE = "bench.work_flow"


async def flow_runtime(_bench: BenchEnvironment) -> Numbers:
    """Measure `next` on work nodes, a build of 1,000 nodes with its fingerprint, and a snapshot of 100 keys."""
    graph, wide = chain(WORK_NODES), _wide()
    runtime = FlowRuntime(wide, wide.entry.model())
    await runtime.next(Context())
    runtime.snapshot()
    return {
        "flow_next_us": min([await _next_seconds(graph) for _ in range(ROUNDS)]) * 1e6,
        "flow_build_ms": _build_ms(),
        "flow_fingerprint_ms": _once_ms(lambda: chain(MANY_NODES), lambda built: built.fingerprint),
        "flow_snapshot_ms": min(_once_ms(lambda: runtime, FlowRuntime.snapshot) for _ in range(REPEATS)),
    }


async def flow_service(bench: BenchEnvironment) -> Numbers:
    """Measure a flow of 20 work nodes through the service, in memory, at 32 connections."""
    body = request({"mode": "flow", "flow": {"name": "work", "input": {}}})
    configuration = f'[flows]\nmodules = ["{MODULE}"]\n'
    async with (
        open_portico(bench.cores, bench.upstream.port, configuration=configuration) as portico,
        open_connections(portico.port, CONNECTIONS) as connections,
    ):
        expected = f'{{"number":{WORK_NODES}}}'.encode()
        await connections.run(body, WARM_UP, expected=expected)
        costs = []
        for _ in range(SERVED_ROUNDS):
            before = portico.cpu_seconds()
            await connections.run(body, REQUESTS, expected=expected)
            await asyncio.sleep(REST_SECONDS)
            costs.append((portico.cpu_seconds() - before) / REQUESTS)
    return {"flow_cpu_ms": statistics.median(costs) * 1000}


async def _next_seconds(graph: FlowGraph[Any, End]) -> float:
    """Return the CPU time of one `next`, on average of many runs."""
    context, took = Context(), 0.0
    for _ in range(REPEATS):
        runtime = FlowRuntime(graph, graph.entry.model())
        began = time.process_time()
        for _ in range(WORK_NODES):
            await runtime.next(context)
        took += time.process_time() - began
    return took / (REPEATS * WORK_NODES)


def _build_ms() -> float:
    """Return the CPU time of a build; the models and the functions exist before."""
    models = [create_model(f"State{number}", number=(int, 0)) for number in range(MANY_NODES)]
    targets: list[type[BaseModel]] = [*models[1:], End]
    functions = [increment(source, target) for source, target in zip(models, targets, strict=True)]

    def build(entry: type[BaseModel]) -> FlowGraph[Any, Any]:
        builder: Any = FlowGraph.builder(entry, End)
        for function in functions:
            builder = builder.work(function)
        graph: FlowGraph[Any, Any] = builder.build()
        return graph

    return min(_once_ms(lambda: models[0], build) for _ in range(ROUNDS))


def _once_ms(prepare: Callable[[], Any], measured: Callable[[Any], object]) -> float:
    prepared = prepare()
    began = time.process_time()
    measured(prepared)
    return (time.process_time() - began) * 1000


def _wide() -> FlowGraph[Any, Any]:
    """Return a flow whose first node puts out 100 states."""
    models: list[type[BaseModel]] = [
        create_model(f"Part{number}", text=(str, "text"), number=(int, number)) for number in range(WIDE_KEYS)
    ]
    builder: Any = FlowGraph.builder(_Whole, End).fork(_split(models))
    for model in models:
        builder = builder.work(increment(model, End))
    graph: FlowGraph[Any, Any] = builder.build()
    return graph


class _Whole(BaseModel):
    number: int = 0


def _split(models: list[type[BaseModel]]) -> Any:
    def split(whole: Any, context: Context) -> Any:
        return tuple(model() for model in models)

    split.__annotations__ = {"whole": _Whole, "context": Context, "return": GenericAlias(tuple, tuple(models))}
    return split


FLOW_SCENARIOS: tuple[Scenario, ...] = (flow_runtime, flow_service)
