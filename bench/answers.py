"""Cost of decoding a provider's stream relative to parsing it only, and of enforcing an output contract."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import orjson

from bench.streams import STREAMS, ProviderStream
from portico.adapters.engines.http.engine import ReplyLimits
from portico.adapters.engines.wire.reply_builder import ReplyBuilder
from portico.capabilities.answer_contract import AnswerContract
from portico.domain.contract.request import OutputContract

ROUNDS, REPEATS = 15, 200
PAIRS, REPEATS_PER_PAIR = 150, 10
LINE_BYTES = ReplyLimits().line_bytes
_PARSE_JSON = msgspec.json.Decoder().decode
_ITEM_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "kind": {"enum": ["a", "b", "c"]}},
    "required": ["id", "name", "kind"],
}


def microseconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one run, the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REPEATS):
            work()
        best = min(best, time.process_time() - began)
    return best / REPEATS * 1e6


def measure_decoding() -> dict[str, float]:
    """Measure the way from the bytes of a stream to the reply, relative to splitting and parsing them.

    The numbers are those of the slowest provider, with its events in separate reads or all of them in one.
    """
    slowest = max(
        (_measure_pairs(stream, reads) for stream in STREAMS.values() for reads in _reads(stream)), key=_ratio
    )
    decoded, parsed = map(statistics.median, zip(*slowest, strict=True))
    return {"decode_us": decoded, "decode_bare_us": parsed, "decode_ratio": _ratio(slowest)}


def measure_constraints() -> dict[str, float]:
    """Measure all constraint stages on a valid answer of 2 kB."""
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": dict(_ITEM_SCHEMA)}}}
    contract = AnswerContract(OutputContract.model_validate({"schema": schema}))
    items = [{"id": number, "name": f"name of item number {number}", "kind": "abc"[number % 3]} for number in range(36)]
    text = orjson.dumps({"items": items}).decode()
    return {"constraint_us": microseconds(lambda: contract.validate(text, 1))}


def _reads(stream: ProviderStream) -> tuple[list[bytes], list[bytes]]:
    events = stream.body.split(stream.end)[:-1]
    return [event + stream.end for event in events], [stream.body]


def _measure_pairs(stream: ProviderStream, reads: list[bytes]) -> list[tuple[float, float]]:
    """Return pairs of microseconds for decoding and parsing; both of a pair see the same state of a shared machine."""
    decode, parse = partial(_decode, stream, reads), partial(_parse, stream.end, reads)
    return [(_microseconds(decode), _microseconds(parse)) for _ in range(PAIRS)]


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(decoded / parsed for decoded, parsed in pairs)


def _microseconds(work: Callable[[], object]) -> float:
    began = time.process_time_ns()
    for _ in range(REPEATS_PER_PAIR):
        work()
    return (time.process_time_ns() - began) / REPEATS_PER_PAIR / 1e3


def _decode(stream: ProviderStream, reads: list[bytes]) -> object:
    dialect = stream.dialect
    answer = ReplyBuilder(dialect.finish_reasons)
    parser = stream.frames(LINE_BYTES)
    for data in reads:
        for event in parser.feed(data):
            answer.add(dialect.decode_chunk(event))
    return answer.build("")


def _parse(end: bytes, reads: list[bytes]) -> object:
    """Split and parse the events; no read ends within an event, so that nothing is carried over."""
    return [
        _PARSE_JSON(event[start:]) for data in reads for event in data.split(end) if (start := event.find(b"{")) >= 0
    ]
