"""Shutdown of `portico serve` while a hundred executions run and a hundred streams are read."""

import asyncio
import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.cli_process import Process, serving
from tests.support.http_server import request_bytes

GRACE = 1.5
QUICK, KEYED, READ = 40, 30, 30
LAST = {"execution.completed", "execution.failed", "execution.cancelled"}


@dataclass
class Stream:
    """The stream of one client, with the events that it has read."""

    request_id: str
    events: list[dict[str, Any]] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended_cleanly: bool = False
    got_retry_line: bool = False

    @property
    def last(self) -> int:
        return max((each["sequence_number"] for each in self.events if "sequence_number" in each), default=0)

    @property
    def numbers(self) -> list[int]:
        return [each["sequence_number"] for each in self.events if "sequence_number" in each]

    async def read(self, port: int, request: bytes) -> None:
        """Read to the end of the response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        await reader.readuntil(b"\r\n\r\n")
        unread = b""
        while size := int(await reader.readline(), 16):
            unread += (await reader.readexactly(size + 2))[:-2]
            *frames, unread = unread.split(b"\n\n")
            for frame in frames:
                self._take(frame.decode())
        self.ended_cleanly = await reader.readline() == b"\r\n" and unread == b""
        writer.close()

    async def continue_reading(self, port: int) -> None:
        """Read the events after the last one that was read."""
        path = f"/v1/executions/{self.request_id}/events"
        await self.read(port, request_bytes("GET", path, {"Last-Event-ID": str(self.last)}))

    def _take(self, frame: str) -> None:
        self.got_retry_line |= frame.startswith("retry:")
        self.events += [json.loads(line[6:]) for line in frame.split("\n") if line.startswith("data: ")]
        if any(each["type"] == "inference.start" for each in self.events):
            self.began.set()


def execute_request(name: str, seconds: float, **headers: str) -> bytes:
    body = {"request_id": name, "messages": [{"role": "user", "content": f"[[slow:{seconds}]] Hello"}]}
    return request_bytes(
        "POST", "/v1/execute", {"Content-Type": "application/json", **headers}, json.dumps(body).encode()
    )


async def begin(port: int, group: asyncio.TaskGroup) -> list[Stream]:
    """Open a hundred streams and wait until each execution has called a model."""
    streams = [Stream(f"{kind}-{n}") for kind, count in (("q", QUICK), ("k", KEYED), ("r", READ)) for n in range(count)]
    for stream in streams:
        group.create_task(stream.read(port, await opening(port, stream.request_id)))
    for stream in streams:
        await stream.began.wait()
    return streams


async def opening(port: int, name: str) -> bytes:
    """Return the request of the stream: a plain one, one with a key, or a reader of a background execution."""
    if name.startswith("q"):
        return execute_request(name, 0.5, Accept="text/event-stream")
    if name.startswith("k"):
        return execute_request(name, 4, Accept="text/event-stream", **{"Idempotency-Key": name})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(execute_request(name, 4, Prefer="respond-async", Connection="close"))
    assert (await reader.read()).startswith(b"HTTP/1.1 202")
    writer.close()
    return request_bytes("GET", f"/v1/executions/{name}/events", {})


async def until_the_end(portico: Process) -> tuple[list[Stream], float]:
    """Stop the service; return the streams and the seconds that it took."""
    async with asyncio.TaskGroup() as group:
        streams = await begin(portico.port, group)
        signalled_at = time.monotonic()
        portico.signal(signal.SIGTERM)
    code, _ = await asyncio.to_thread(portico.ended)
    assert code == 0
    return streams, time.monotonic() - signalled_at


async def to_the_last_event(port: int, streams: Sequence[Stream]) -> None:
    async with asyncio.TaskGroup() as group:
        for stream in streams:
            group.create_task(stream.continue_reading(port))


def test_of_a_hundred_executions_none_is_lost_and_none_ends_twice(start: Callable[..., Process]) -> None:
    with serving(start, PORTICO__SERVER__DRAIN_SECONDS=str(GRACE)) as portico:
        streams, seconds = asyncio.run(until_the_end(portico))
    assert seconds < GRACE + 2
    assert len(streams) == 100
    assert all(stream.ended_cleanly for stream in streams)
    left = [stream for stream in streams if not any(each["type"] in LAST for each in stream.events)]
    assert {stream.request_id[0] for stream in left} == {"k", "r"}
    assert len(left) == KEYED + READ
    assert all(stream.got_retry_line for stream in left)
    with serving(start) as portico:
        asyncio.run(to_the_last_event(portico.port, left))
        listed = json.loads(portico.ask("GET", "/v1/executions?limit=200")[1])["data"]
    for stream in streams:
        assert stream.numbers == list(range(1, len(stream.numbers) + 1))
        ends = [each["type"] for each in stream.events if each["type"] in LAST]
        assert ends == ["execution.completed"]
    assert sorted(each["request_id"] for each in listed) == sorted(stream.request_id for stream in streams)
    assert {each["state"] for each in listed} == {"COMPLETE"}
