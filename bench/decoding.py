"""What reading a provider's stream costs beside a loop that does nothing but parse it, in this process."""

import time
from collections.abc import Callable, Mapping

import msgspec
import orjson

from app.adapters.engines.dialect import Answer
from app.adapters.engines.event_stream import EventStream
from app.adapters.engines.openai_compatible import ChatCompletions
from app.capabilities.contracts import Contract
from app.domain.boundary import OutputContract
from app.domain.pausing import at_once

PIECES = 50
ROUNDS, REPEATED = 15, 200
_DIALECT = ChatCompletions()
_PARSE = msgspec.json.Decoder().decode
_CHUNK: Mapping[str, object] = {
    "id": "chatcmpl-bench",
    "object": "chat.completion.chunk",
    "created": 1700000000,
    "model": "gpt-4o-mini-2024-07-18",
    "service_tier": "default",
    "system_fingerprint": "fp_44709d6fcb",
}
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
    """From the bytes of a stream of 50 chunks to the whole reply, against splitting and parsing alone."""
    body = _stream()
    ours, bare = microseconds(lambda: _read(body)), microseconds(lambda: _parsed(body))
    return {"decode_us": ours, "decode_bare_us": bare, "decode_ratio": ours / bare}


def constraining() -> dict[str, float]:
    """A valid answer of 2 kB through all constraint stages."""
    schema = {"type": "object", "properties": {"items": {"type": "array", "items": dict(_ITEM_SCHEMA)}}}
    contract = at_once(Contract.making(OutputContract.model_validate({"schema": schema})))
    items = [{"id": number, "name": f"name of item number {number}", "kind": "abc"[number % 3]} for number in range(36)]
    text = orjson.dumps({"items": items}).decode()
    return {"constraint_us": microseconds(lambda: contract.judge(text, 1))}


def _stream() -> bytes:
    deltas = [{"role": "assistant", "content": ""}, *({"content": f"word {number} "} for number in range(PIECES - 2))]
    return b"".join([*map(_event, deltas), _event({}, "stop"), b"data: [DONE]\n\n"])


def _event(delta: Mapping[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: %b\n\n" % orjson.dumps({**_CHUNK, "choices": [choice]})


def _read(body: bytes) -> object:
    answer = Answer(_DIALECT.finishes)
    for data in EventStream(len(body)).feed(body):
        answer.add(_DIALECT.decode_chunk(data))
    return answer.reply("")


def _parsed(body: bytes) -> object:
    lines = body.split(b"\n\n")
    chunks = [_PARSE(line[6:]) for line in lines if line.startswith(b"data: {")]
    return [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
