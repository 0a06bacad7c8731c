"""What reading a provider's stream costs beside a loop that does nothing but parse it, in this process."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import orjson

from app.adapters.engines.http.engine import ReplyLimits
from app.adapters.engines.wire.reply_builder import ReplyBuilder
from app.capabilities.answer_contract import AnswerContract
from app.domain.contract.request import OutputContract
from bench.streams import STREAMS, ProviderStream

ROUNDS, REPEATED = 15, 200
PAIRS, IN_A_ROW = 150, 10
LINE_BYTES = ReplyLimits().line_bytes
_PARSE = msgspec.json.Decoder().decode
_ITEM_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "kind": {"enum": ["a", "b", "c"]}},
    "required": ["id", "name", "kind"],
}


def microseconds(work: Callable[[], object]) -> float:
    """CPU time of one run, the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REPEATED):
            work()
        best = min(best, time.process_time() - began)
    return best / REPEATED * 1e6


def measure_decoding() -> dict[str, float]:
    """From the bytes of a stream of 50 pieces to the whole reply, against splitting and parsing alone: the provider
    that costs most beside it, whether an event arrives at a time or all of them at once.
    """
    dearest = max((_beside(stream, pieces) for stream in STREAMS.values() for pieces in _arriving(stream)), key=_ratio)
    ours, bare = map(statistics.median, zip(*dearest, strict=True))
    return {"decode_us": ours, "decode_bare_us": bare, "decode_ratio": _ratio(dearest)}


def measure_constraints() -> dict[str, float]:
    """A valid answer of 2 kB through all constraint stages."""
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": dict(_ITEM_SCHEMA)}}}
    contract = AnswerContract.compile(OutputContract.model_validate({"schema": schema}))
    items = [{"id": number, "name": f"name of item number {number}", "kind": "abc"[number % 3]} for number in range(36)]
    text = orjson.dumps({"items": items}).decode()
    return {"constraint_us": microseconds(lambda: contract.validate(text, 1))}


def _arriving(stream: ProviderStream) -> tuple[list[bytes], list[bytes]]:
    events = stream.body.split(stream.end)[:-1]
    return [event + stream.end for event in events], [stream.body]


def _beside(stream: ProviderStream, pieces: list[bytes]) -> list[tuple[float, float]]:
    """Microseconds of the two, in pairs of which both halves were measured in one moment of a shared machine."""
    ours, bare = partial(_read, stream, pieces), partial(_parsed, stream.end, pieces)
    return [(_microseconds(ours), _microseconds(bare)) for _ in range(PAIRS)]


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return statistics.median(ours / bare for ours, bare in pairs)


def _microseconds(work: Callable[[], object]) -> float:
    began = time.process_time_ns()
    for _ in range(IN_A_ROW):
        work()
    return (time.process_time_ns() - began) / IN_A_ROW / 1e3


def _read(stream: ProviderStream, pieces: list[bytes]) -> object:
    dialect = stream.dialect
    answer = ReplyBuilder(dialect.finish_reasons)
    parser = stream.frames(LINE_BYTES)
    for piece in pieces:
        for event in parser.feed(piece):
            answer.add(dialect.decode_chunk(event))
    return answer.build("")


def _parsed(end: bytes, pieces: list[bytes]) -> object:
    """No piece ends within an event, so that nothing has to be kept for the next."""
    return [_PARSE(event[start:]) for piece in pieces for event in piece.split(end) if (start := event.find(b"{")) >= 0]
