"""Replicas of the service as processes, behind a proxy that distributes connections in rotation."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import orjson
from anyio import to_thread
from uvicorn.server import ServerState

from tests.support.forked_portico import ForkedPortico
from tests.support.http_server import HttpAnswer, RunningServer, request_bytes
from tests.support.virtual_time import VirtualTimeLoop

ROOT = Path(__file__).parents[2]
MAX_SECONDS = 60.0
REPLICA_TIMEOUT_S = "2"
TERMINAL = {"execution.completed", "execution.failed", "execution.cancelled"}


@dataclass
class ReplicaProcess:
    """One process of the service."""

    process: ForkedPortico
    served: RunningServer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@dataclass
class ReplicaFleet:
    """Replicas on one database; `proxy` passes each connection to the next live one."""

    replicas: list[ReplicaProcess]
    proxy: RunningServer
    passing: set["asyncio.Task[None]"] = field(default_factory=set)
    _next: Iterator[ReplicaProcess] = field(init=False)

    def __post_init__(self) -> None:
        self._next = cycle(self.replicas)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until either side closes it."""
        replica = next(each for each in self._next if each.process.poll() is None)
        try:
            upstream = await asyncio.open_connection("127.0.0.1", replica.served.port)
        except OSError:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self.passing.add(task)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_pipe, reader, upstream[1])
                group.start_soon(_pipe, upstream[0], writer)
        finally:
            self.passing.discard(task)
            upstream[1].transport.abort()
            writer.transport.abort()


@asynccontextmanager
async def run_replicas(
    url: str, folder: Path, count: int, *, statement_timeout: int = 5
) -> AsyncIterator[ReplicaFleet]:
    """Run that many replicas until the context ends, in real time and for at most `MAX_SECONDS`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    started: list[ForkedPortico] = []
    passing: set[asyncio.Task[None]] = set()
    with loop.in_real_time(), anyio.fail_after(MAX_SECONDS):
        try:
            started += [_start(url, folder, number, statement_timeout) for number in range(count)]
            listening = [await _listening(each) for each in started]
            fleet = ReplicaFleet(listening, RunningServer("127.0.0.1", 0, ServerState()), passing)
            server = await asyncio.start_server(fleet.pass_on, "127.0.0.1", 0)
            fleet.proxy.port = server.sockets[0].getsockname()[1]
            async with server:
                yield fleet
        finally:
            for process in started:
                process.kill()
                process.communicate()
            while passing:  # noqa: ASYNC110 - what the proxy passes on ends with the processes
                await anyio.sleep(0.01)


class ReplicaUnavailable(Exception):  # noqa: N818 - what a replica says, no error of the tests
    """Temporary failure of a replica."""


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds."""
    while not await condition():  # noqa: ASYNC110 - another process has no event for it
        await anyio.sleep(0.05)


async def get_execution(served: RunningServer, request_id: str) -> dict[str, Any]:
    """Return the execution as that replica shows it."""
    return (await served.get(f"/v1/executions/{request_id}")).json


async def read_event_log(served: RunningServer, request_id: str) -> list[dict[str, Any]]:
    """Return all events up to the terminal one; reconnect after the last number when disconnected or refused."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in TERMINAL:
        after = {"Last-Event-ID": str(events[-1]["sequence_number"])} if events else {}
        try:
            await _read(served, request_id, after, events)
        except (ReplicaUnavailable, anyio.EndOfStream, anyio.BrokenResourceError, OSError):
            await anyio.sleep(0.05)
    return events


async def ask_each(served: RunningServer, bodies: list[bytes], at_once: int) -> list[HttpAnswer]:
    """Return the answers to these requests, with that many at once."""
    answers: list[HttpAnswer] = []
    room = anyio.Semaphore(at_once)

    async def post(body: bytes) -> None:
        async with room:
            answers.append(await served.post(body, {"Prefer": "respond-async"}))

    async with anyio.create_task_group() as group:
        for body in bodies:
            group.start_soon(post, body)
    return answers


async def _read(served: RunningServer, request_id: str, after: dict[str, str], events: list[dict[str, Any]]) -> None:
    async with served.connect() as connection:
        await connection.send(request_bytes("GET", f"/v1/executions/{request_id}/events", after))
        status, _ = await connection.head()
        if status == 503:
            raise ReplicaUnavailable
        assert status == 200, f"{status} after {after}: {await connection.chunk()!r}"
        unread = b""
        while piece := await connection.chunk():
            *frames, unread = (unread + piece).split(b"\n\n")
            for frame in frames:
                data = [line[6:] for line in frame.split(b"\n") if line.startswith(b"data: ")]
                events += [event for event in map(orjson.loads, data) if "sequence_number" in event]


def _start(url: str, folder: Path, number: int, statement_timeout: int) -> ForkedPortico:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PORTICO", "OPENAI"))}
    ours |= {
        "PYTHONPATH": str(ROOT),
        "PORTICO__STORAGE__URL": url,
        "PORTICO__STORAGE__REPLICA_TIMEOUT": REPLICA_TIMEOUT_S,
        "PORTICO__STORAGE__STATEMENT_TIMEOUT": str(statement_timeout),
    }
    with (folder / f"replica-{number}.log").open("w") as log:
        return ForkedPortico("serve", "--port", "0", directory=folder, environ=ours, errors=log.fileno())


async def _listening(process: ForkedPortico) -> ReplicaProcess:
    line = await to_thread.run_sync(process.stdout.readline)
    assert line.startswith("Portico listens on http://127.0.0.1:"), line
    return ReplicaProcess(
        process, RunningServer("127.0.0.1", int(line.split(",")[0].rpartition(":")[2]), ServerState())
    )


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        writer.transport.abort()
    if not writer.is_closing():
        with suppress(OSError):  # the other side may have gone a moment ago
            writer.write_eof()
