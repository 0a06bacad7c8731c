"""Text of a stream as the Python client package shows it: its own CPU per delta, from the bytes of the response on."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import httpx2
import orjson

sys.path.insert(0, str(Path(__file__).parents[1] / "clients" / "python"))  # it is not installed
from bench.processes import run_measured_module
from bench.scenarios import BenchEnvironment, Numbers
from portico_client import Client

DELTAS: Final = 5_000
ROUNDS: Final = 7
PIECE: Final = 64 * 1024
"""Bytes that come at once."""
REQUEST_ID: Final = "01a2241c-144d-7216-9e7f-07aa2cce62ec"
_IDS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "request_id": REQUEST_ID,
        "session_id": None,
        "trace_id": "c6f569b80ae49465a7fc626e3d91c5a0",
        "span_id": "02732e22477d2fb6",
        "parent_span_id": None,
        "caused_by": None,
        "timestamp": "2026-11-28T21:27:18.229022Z",
    }
)


async def client_text(bench: BenchEnvironment) -> Numbers:
    """Measure `stream.text()`."""
    return await run_measured_module("bench.client_text", bench.cores)


def measure() -> Mapping[str, float]:
    """Return the CPU time per delta in this process, the least of some rounds."""
    words = [f"word {number} " for number in range(DELTAS)]
    body = b"".join(_frames(words))
    return {"clients_text_delta_us": min(_seconds(body, words) for _ in range(ROUNDS)) * 1e6 / DELTAS}


def _seconds(body: bytes, words: Sequence[str]) -> float:
    """Return the CPU time of a stream from its first byte to its last text."""
    pieces = (body[start : start + PIECE] for start in range(0, len(body), PIECE))
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=pieces)
    http = httpx2.Client(transport=httpx2.MockTransport(lambda _: answer))
    with Client("http://127.0.0.1", http=http) as client, client.stream("More.", request_id=REQUEST_ID) as stream:
        started = time.process_time()
        parts = [*stream.text()]
        seconds = time.process_time() - started
    if [part.text for part in parts] != words:
        raise RuntimeError("the parts of the text are not the deltas that were sent")
    return seconds


def _frames(words: Iterable[str]) -> Iterator[bytes]:
    """Yield the frames of an execution, with its only inference."""
    content = ""
    for word in words:
        delta = {"type": "inference.delta", **_IDS, "segment": "0/0", "offset": len(content), "text": word}
        yield b"event: inference.delta\ndata: %b\n\n" % orjson.dumps(delta)
        content += word
    response = {"request_id": REQUEST_ID, "state": "COMPLETE", "content": content}
    ended = {"type": "execution.completed", "sequence_number": 1, **_IDS, "response": response}
    yield b"id: 1\nevent: execution.completed\ndata: %b\n\n" % orjson.dumps(ended)


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(measure()))
