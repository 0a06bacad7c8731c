"""What reading a provider's stream costs beside a loop that does nothing but parse it, in this process."""

import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import orjson

from app.adapters.engines.dialect import Answer
from app.capabilities.contracts import Contract
from app.domain.boundary import OutputContract
from app.domain.pausing import at_once
from bench.streams import STREAMS, Stream

ROUNDS, REPEATED = 15, 200
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


def decoding() -> dict[str, float]:
    """From the bytes of a stream of 50 pieces to the whole reply, against splitting and parsing alone: the provider
    that costs most beside it.
    """
    costs = [
        (microseconds(partial(_read, stream)), microseconds(partial(_parsed, stream))) for stream in STREAMS.values()
    ]
    ours, bare = max(costs, key=lambda cost: cost[0] / cost[1])
    return {"decode_us": ours, "decode_bare_us": bare, "decode_ratio": ours / bare}


def constraining() -> dict[str, float]:
    """A valid answer of 2 kB through all constraint stages."""
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": dict(_ITEM_SCHEMA)}}}
    contract = at_once(Contract.making(OutputContract.model_validate({"schema": schema})))
    items = [{"id": number, "name": f"name of item number {number}", "kind": "abc"[number % 3]} for number in range(36)]
    text = orjson.dumps({"items": items}).decode()
    return {"constraint_us": microseconds(lambda: contract.judge(text, 1))}


def _read(stream: Stream) -> object:
    answer = Answer(stream.dialect.finishes)
    for data in stream.splitter(len(stream.body)).feed(stream.body):
        answer.add(stream.dialect.decode_chunk(data))
    return answer.reply("")


def _parsed(stream: Stream) -> object:
    events = stream.body.split(stream.end)
    return [_PARSE(event[start:]) for event in events if (start := event.find(b"{")) >= 0]
