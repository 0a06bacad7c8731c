"""Event streams: frames, keep-alives, and every way in which a stream ends."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import orjson
import pytest
from starlette.types import Message, Scope

from portico.adapters.event_bus import EventBus
from portico.domain.contract.request import SystemRequest
from portico.domain.journal.events import CorrelationContext, ExecutionSuspended, LifecycleTransition, StoredEvent
from portico.domain.lifecycle import State
from portico.entrypoints.http import sse
from portico.entrypoints.http.sse import EventStreamResponse, FrameEncoder
from portico.orchestration.runtime.subscription import MAX_BATCH, CatchUpSubscription
from tests.support.fake_service import SPAN, TRACE, FakeRunning, FakeService, fake_app, response
from tests.support.http_server import ClientConnection, RunningServer, request_bytes, running_server
from tests.support.server_state import first_execution, wait_for_disconnect

CHAT = orjson.dumps({"request_id": "r-1", "messages": [{"role": "user", "content": "Hello"}]})
ASK = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json", "Accept": "text/event-stream"}, CHAT)
FIRST = LifecycleTransition(None, State.INIT, 1, "accepted")


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[RunningServer, FakeService, FakeRunning, ClientConnection]]:
    """Run a stream and read its head."""
    app, service = fake_app()
    async with running_server(app) as served, served.connect() as client:
        await client.send(ASK)
        running = await first_execution(service)
        assert (await client.head())[0] == 200
        yield served, service, running, client


async def test_the_head_of_a_stream_has_its_location_and_forbids_caching() -> None:
    app, service = fake_app()
    async with running_server(app) as served, served.connect() as client:
        await client.send(ASK)
        await first_execution(service)
        status, headers = await client.head()
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-store"
    assert headers["x-accel-buffering"] == "no"
    assert headers["location"] == "/v1/executions/r-1/events"
    assert headers["x-request-id"] == "r-1"
    assert headers["traceparent"] == f"00-{TRACE}-{SPAN}-00"


async def test_a_stored_event_is_framed_with_its_number() -> None:
    async with reading() as (_, _, running, client):
        running.emit(FIRST)
        number, name, data, *rest = (await client.chunk()).split(b"\n")
    assert (number, name, rest) == (b"id: 1", b"event: lifecycle.transition", [b"", b""])
    assert orjson.loads(data.removeprefix(b"data: ")) == {
        "sequence_number": 1,
        "type": "lifecycle.transition",
        "request_id": "r-1",
        "session_id": None,
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_span_id": None,
        "caused_by": None,
        "timestamp": "1970-01-01T00:00:01.500000Z",
        "from_state": None,
        "to_state": "INIT",
        "attempt": 1,
        "reason": "accepted",
    }


async def test_a_delta_has_no_id_and_no_number() -> None:
    async with reading() as (_, _, running, client):
        running.emit_delta("line\nbreak", offset=3)
        name, data, *rest = (await client.chunk()).split(b"\n")
    assert (name, rest) == (b"event: inference.delta", [b"", b""])
    received = orjson.loads(data.removeprefix(b"data: "))
    assert (received["text"], received["offset"], received["segment"]) == ("line\nbreak", 3, "0/0")
    assert "sequence_number" not in received
    assert "reasoning" not in received


async def test_frames_that_are_ready_together_are_sent_together() -> None:
    async with reading() as (_, _, running, client):
        running.emit(FIRST)
        running.emit_delta("a")
        running.emit_delta("b", 1)
        assert (await client.chunk()).count(b"\n\n") == 3


async def test_the_last_event_carries_the_response_and_ends_the_stream() -> None:
    async with reading() as (_, _, running, client):
        running.complete()
        last = await client.chunk()
        assert await client.chunk() == b""
    assert last.startswith(b"id: 1\nevent: execution.completed\ndata: ")
    assert b"retry:" not in last
    received = orjson.loads(last.split(b"data: ")[1])
    assert received["response"] == response("r-1").model_dump(mode="json")


async def test_a_suspension_ends_the_stream() -> None:
    async with reading() as (_, _, running, client):
        running.emit(ExecutionSuspended((), response("r-1", state=State.SUSPENDED)))
        assert b"event: execution.suspended" in await client.chunk()
        assert await client.chunk() == b""


async def test_the_connection_is_reused_after_a_stream() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served, served.connect() as client:
        for _ in range(2):
            await client.send(ASK)
            assert (await client.answer()).body.count(b"\n\n") == 1


async def test_a_silent_stream_is_kept_alive_every_fifteen_seconds() -> None:
    async with reading() as (_, _, running, client):
        began = anyio.current_time()
        assert await client.chunk() == b": keep-alive\n\n"
        assert anyio.current_time() - began == pytest.approx(15, abs=0.1)
        await anyio.sleep(10)
        running.emit_delta("a")
        assert b"inference.delta" in await client.chunk()
        assert await client.chunk() == b": keep-alive\n\n"
        assert anyio.current_time() - began == pytest.approx(40, abs=0.1)


async def test_a_client_that_leaves_mid_stream_cancels_the_execution() -> None:
    async with reading() as (served, service, running, client):
        running.emit_delta("a")
        await client.chunk()
        await client.stream.aclose()
        await wait_for_disconnect(served)
        assert running.cancelled
        assert not service.facade.bus.has_subscribers("r")


async def test_a_client_that_leaves_before_the_first_token_cancels_the_execution() -> None:
    async with reading() as (served, _, running, client):
        await client.stream.aclose()
        await wait_for_disconnect(served)
        assert running.cancelled


async def test_a_client_that_takes_nothing_is_disconnected_and_nothing_is_cancelled() -> None:
    async with reading() as (served, service, running, _):
        began = anyio.current_time()
        shrink(served)
        while service.facade.bus.has_subscribers("r"):
            running.emit_delta("x" * 100_000)
            await anyio.sleep(1)
        await wait_for_disconnect(served)
        assert 20 <= anyio.current_time() - began <= 30
        assert not running.cancelled


async def test_a_reader_that_falls_behind_gets_a_retry_line_and_nothing_is_cancelled() -> None:
    async with reading() as (_, service, running, client):
        running.emit_delta("x" * 10_000_000)
        await anyio.wait_all_tasks_blocked()
        for _ in range(200):
            running.emit_delta("y")
        assert not service.facade.bus.has_subscribers("r")
        assert len(await client.chunk()) > 10_000_000
        assert await client.chunk() == b"retry: 1000\n\n"
        assert await client.chunk() == b""
        assert not running.cancelled


async def test_an_execution_that_ends_without_a_response_ends_its_stream() -> None:
    async with reading() as (_, _, running, client):
        running.end_without_response()
        assert await client.chunk() == b"retry: 1000\n\n"
        assert await client.chunk() == b""


async def test_a_stream_that_ends_while_the_service_stops_has_a_retry_line() -> None:
    async with reading() as (_, service, running, client):
        await service.drain()
        running.complete()
        last = await client.chunk()
        assert last.startswith(b"retry: 1000\n\nid: 1\nevent: execution.completed\n")
        assert await client.chunk() == b""


async def test_a_hundred_streams_at_once_are_each_answered() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served, anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(served.post, CHAT, {"Accept": "text/event-stream"})
    assert len(service.facade.running) == 100
    assert sse.SILENCE_SECONDS == 15


class OtherServer:
    """A server that does not report its write buffer; its client leaves when the test sets `left`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.left = anyio.Event()
        self.may_take = anyio.Event()
        self.may_take.set()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.may_take.wait()
        await anyio.lowlevel.checkpoint()
        if message["type"] == "http.response.body":
            self.bodies.append(message["body"])

    async def reads(self, running: FakeRunning, scope: Scope | None = None) -> None:
        assert running.subscription is not None
        stream = EventStreamResponse(
            running.subscription, FrameEncoder(), headers=(), is_stopping=lambda: False, on_disconnect=running.cancel
        )
        await stream(scope or {"type": "http"}, self.receive, self.send)


def executing() -> FakeRunning:
    bus = EventBus([], capacity=100, on_fault=print, on_drop=lambda: None)
    return FakeRunning(SystemRequest.model_validate_json(CHAT), bus.subscribe("r"), bus)


async def test_a_server_that_does_not_report_its_write_buffer_is_waited_for() -> None:
    server, running = OtherServer(), executing()
    async with anyio.create_task_group() as group:
        group.start_soon(server.reads, running)
        await anyio.wait_all_tasks_blocked()
        running.emit_delta("a")
        await anyio.wait_all_tasks_blocked()
        server.may_take = anyio.Event()
        running.emit_delta("b")
        await anyio.wait_all_tasks_blocked()
        running.emit_delta("c")
        server.may_take.set()
        running.complete()
    assert [body.count(b"\n\n") for body in server.bodies] in ([1, 1, 2], [1, 3])
    assert b"execution.completed" in server.bodies[-1]
    assert not running.cancelled


async def test_what_arrives_while_a_long_log_is_sent_follows_it() -> None:
    server, running = OtherServer(), executing()
    assert running.subscription is not None
    ids = CorrelationContext("r-1", None, TRACE, SPAN, None)
    log = [StoredEvent(number, 0.0, "", ids, FIRST) for number in range(1, 2 * MAX_BATCH + 1)]
    running.subscription = CatchUpSubscription(log, 0, running.subscription)
    server.may_take = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(server.reads, running)
        await anyio.wait_all_tasks_blocked()
        running.emit_delta("a")
        server.may_take.set()
        await anyio.wait_all_tasks_blocked()
        running.emit_delta("b")
        await anyio.wait_all_tasks_blocked()
        running.end_without_response()
    assert [body.count(b"event: ") for body in server.bodies] == [MAX_BATCH, MAX_BATCH + 1, 1, 0]
    assert server.bodies[-1] == sse.RETRY


async def test_under_any_server_a_silent_stream_is_kept_alive_and_a_disconnect_cancels() -> None:
    server, running = OtherServer(), executing()
    async with anyio.create_task_group() as group:
        group.start_soon(server.reads, running)
        await anyio.sleep(31)
        server.left.set()
    assert server.bodies == [sse.KEEP_ALIVE, sse.KEEP_ALIVE]
    assert running.cancelled


def shrink(served: RunningServer) -> None:
    """Shrink the send buffers of the server's connections."""
    for connected in served.connected_sockets():
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
