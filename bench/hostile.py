"""Scenarios of hostile input: requests to the service, and the computations behind them in this process.

The inputs are those of the tests, which check the answers; only here are times bounded, since times depend on the load
of the machine. A case that exceeds its bound is tried again, and the best attempt counts.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import orjson

from bench.bounds import BOUNDS
from bench.processes import MeasuredProcess, open_portico
from bench.scenarios import BenchEnvironment, Numbers, Scenario
from portico.adapters.engines.gemini.schemas import sanitize_schema
from portico.capabilities.answer_contract import AnswerContract
from portico.capabilities.output.extract import extract, repairable_text
from portico.capabilities.output.grammar.compiled import Grammar
from portico.capabilities.output.grammar.symbols import GrammarError
from portico.capabilities.output.partial import PartialAnswer
from portico.capabilities.output.repair import repair
from portico.domain.contract.request import OutputContract
from portico.domain.failures import Failure
from portico.domain.strict_json import StrictJsonError
from tests.support.grammars import JSON
from tests.support.hostile_grammars import HOSTILE as GRAMMARS
from tests.support.hostile_input import GROUPS, Hostile
from tests.support.hostile_schemas import PLAIN

Work: TypeAlias = Callable[[], object]
ATTEMPTS = 4
PROBE_SECONDS = 0.001
CHUNK_CHARACTERS = 1_000
_LIMITS: Mapping[str, float | None] = MappingProxyType({bound.metric: bound.maximum for bound in BOUNDS})
_PROBE = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
_TEXTS = ("[" * 20_000, '{"a": ' * 20_000, "[1 2]" * 20_000, '["' * 20_000, "{a" * 20_000, "```\n" * 20_000)
_REPAIRS = ('"', "\\u", "'", ' "b": ', "b: c, ", "/* x */", '{"a":1},', "- ")


async def hostile_requests(bench: BenchEnvironment) -> Numbers:
    """Measure CPU and memory of each hostile request, and the latency of another client beside it."""
    costs: dict[str, _RequestCost] = {}
    for group in GROUPS.values():
        cases = list(group.items())
        with tempfile.TemporaryDirectory(prefix="portico-bench-") as directory:
            engines = "".join(_scripted_engine(Path(directory), number, case) for number, (_, case) in enumerate(cases))
            async with open_portico(bench.cores, bench.upstream.port, configuration=engines) as portico:
                for number, (name, case) in enumerate(cases):
                    costs[name] = await _measure_request(portico, case, f"e{number}")
    return {
        metric: _slowest(metric, {name: getattr(cost, metric) for name, cost in costs.items()})
        for metric in _RequestCost._fields
    }


async def hostile_computations(_bench: BenchEnvironment) -> Numbers:
    """Measure the computations on hostile grammars, schemas, patterns, rules and answers."""
    cases: Mapping[str, Mapping[str, Work]] = {
        "hostile_grammar_ms": dict(_grammar_steps()),
        "hostile_plain_ms": dict(_plain_steps()),
        "hostile_text_ms": dict(_text_steps()),
        "hostile_partial_ms": dict(_partial_steps()),
        "hostile_gemini_schema_ms": dict(_gemini_steps()),
    }
    slowest = {
        metric: _slowest(metric, {name: _milliseconds(work, _LIMITS[metric]) for name, work in works.items()})
        for metric, works in cases.items()
    }
    return slowest | {"grammar_kb_ms": _grammar_kb_ms()}


class _RequestCost(NamedTuple):
    """Cost of one request by metric."""

    hostile_cpu_ms: float
    hostile_delay_ms: float
    hostile_memory_mb: float

    def is_within_limits(self) -> bool:
        limits = [_LIMITS[metric] for metric in self._fields]
        return all(limit is None or value <= limit for value, limit in zip(self, limits, strict=True))


def _scripted_engine(directory: Path, number: int, case: Hostile) -> str:
    """Return the configuration of an engine that gives the answers of a case in chunks, once per attempt."""
    script = directory / f"{number}.json"
    entries = [
        {"chunks": [text[at : at + CHUNK_CHARACTERS] for at in range(0, len(text), CHUNK_CHARACTERS)]}
        for text in case.answers or ("",)
    ]
    script.write_bytes(orjson.dumps(entries * ATTEMPTS))
    return f'[engines.e{number}]\nmodel = "scripted://{script}"\n'


async def _measure_request(portico: MeasuredProcess, case: Hostile, model: str) -> _RequestCost:
    """Return the lowest costs of a few attempts; the delay of an attempt is the longest latency of the other client."""
    best = _RequestCost(float("inf"), float("inf"), float("inf"))
    for attempt in range(ATTEMPTS):
        accept = "text/event-stream" if case.live else "application/json"
        request = _post(case.path, accept, case.spelled(attempt, model))
        async with _probing(portico.port) as latencies:
            portico.reset_peak()
            before, resident = portico.cpu_seconds(), portico.resident_bytes()
            await _exchange(portico.port, request)
            cpu_ms = (portico.cpu_seconds() - before) * 1000
            memory_mb = (portico.peak_bytes() - resident) / 1e6
        delay_ms = max(latencies, default=0.0) * 1000
        best = _RequestCost(*map(min, best, (cpu_ms, delay_ms, memory_mb)))
        if best.is_within_limits():
            break
    return best


def _post(path: str, accept: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
    return f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _exchange(port: int, request: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    status = await reader.readline()
    while await reader.read(2**18):
        pass
    writer.close()
    if b" 500 " in status:
        raise RuntimeError("A hostile request was answered with an internal error.")


@asynccontextmanager
async def _probing(port: int) -> AsyncIterator[list[float]]:
    """Send small requests on a connection of their own and yield the list of their latencies."""
    latencies: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def probe() -> None:
        while True:
            began = time.perf_counter()
            writer.write(_PROBE)
            await reader.readuntil(b"\r\n\r\n")
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(PROBE_SECONDS)

    task = asyncio.ensure_future(probe())
    try:
        yield latencies
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError):
            await task
        writer.close()


def _grammar_steps() -> Iterator[tuple[str, Work]]:
    for name, (text, answer) in GRAMMARS.items():
        yield f"compile {name}", partial(_attempt, Grammar, text)
        with suppress(GrammarError):
            grammar = Grammar(text)
            yield f"check {name}", partial(_attempt, grammar.check, answer)
            yield f"shortest of {name}", partial(_attempt, grammar.shortest)


def _plain_steps() -> Iterator[tuple[str, Work]]:
    """Yield what is validated within the service, because contract and answer are small and plain."""
    for name, (output, value) in PLAIN.items():
        contract = AnswerContract(OutputContract.model_validate(output))
        text = value if isinstance(value, str) else json.dumps(value)
        if not contract.size.is_small_with(text):
            raise RuntimeError(f"{name} is validated by a worker.")
        yield name, partial(_attempt, contract.validate, text, 1)


def _text_steps() -> Iterator[tuple[str, Work]]:
    for text in _TEXTS:
        yield f"extract {text[:12]}", partial(_attempt, extract, text)
        yield f"find the repairable part of {text[:12]}", partial(_attempt, repairable_text, text)
    for unit in _REPAIRS:
        yield f"repair [{unit}", partial(_attempt, repair, "[" + unit * 8_000)


def _partial_steps() -> Iterator[tuple[str, Work]]:
    rows = json.dumps([{"number": number, "text": "words " * 5} for number in range(4_000)])
    for text in (rows, "[[" * 30_000):
        yield text[:12], partial(_read_by_character, text)


def _read_by_character(text: str) -> None:
    answer = PartialAnswer()
    for character in text:
        answer.add(character)


def _gemini_steps() -> Iterator[tuple[str, Work]]:
    doubled = {f"d{n}": {"properties": {m: {"$ref": f"#/$defs/d{n + 1}"} for m in "ab"}} for n in range(60)}
    joined = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 60} for n in range(60)}
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(10_000)}
    for name, definitions in {"doubled": doubled, "joined": joined, "a long chain": chain}.items():
        schema = {"properties": {f"p{n}": {"$ref": "#/$defs/d0"} for n in range(5_000)}, "$defs": definitions}
        yield name, partial(sanitize_schema, schema)


def _grammar_kb_ms() -> float:
    """Return the time to check 1 kB of JSON with a grammar of JSON, compilation included."""
    document = json.dumps([{"id": number, "tags": ["x", "é"], "price": number / 3} for number in range(400)])
    deep = '{"a": [' * 400 + "1" + "]}" * 400
    return max(
        min(_once_ms(partial(_check_json, text)) for _ in range(5)) / len(text) * 1000 for text in (document, deep)
    )


def _check_json(text: str) -> None:
    assert Grammar(JSON).check(text).accepted


def _attempt(work: Callable[..., object], *arguments: object) -> None:
    """Run something that may refuse its input."""
    with suppress(Failure, GrammarError, StrictJsonError):
        work(*arguments)


def _milliseconds(work: Work, limit: float | None) -> float:
    """Return the best CPU time of a few attempts; one within the limit suffices."""
    best = float("inf")
    for _ in range(ATTEMPTS):
        best = min(best, _once_ms(work))
        if limit is not None and best <= limit:
            break
    return best


def _once_ms(work: Work) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def _slowest(metric: str, values: Mapping[str, float]) -> float:
    """Return the largest value and name each case that exceeds the bound on standard error."""
    limit = _LIMITS[metric]
    for name, value in values.items():
        if limit is not None and value > limit:
            print(f"{metric}: {value:.1f} for {name}", file=sys.stderr)
    return max(values.values())


HOSTILE_SCENARIOS: tuple[Scenario, ...] = (hostile_requests, hostile_computations)
