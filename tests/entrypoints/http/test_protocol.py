"""Limits of connections: time, bytes, silence and number."""

import socket

import anyio
import pytest

from portico.entrypoints.http import protocol
from tests.support.fake_service import FakeRunning, fake_app
from tests.support.http_server import request_bytes, running_server
from tests.support.server_state import first_execution, wait_for_disconnect

CHAT = b'{"messages":[{"role":"user","content":"Hello"}]}'
WHOLE = request_bytes("POST", "/v1/execute", {"Content-Type": "application/json"}, CHAT)


@pytest.mark.parametrize("sent", [0, 1, 20, WHOLE.index(b"\r\n\r\n"), len(WHOLE) - 1])
async def test_an_incomplete_request_is_closed_without_a_response(sent: int) -> None:
    app, service = fake_app()
    async with running_server(app) as served, served.connect() as client:
        began = anyio.current_time()
        await client.send(WHOLE[:sent])
        assert await client.closed() == b""
        assert anyio.current_time() - began == pytest.approx(protocol.RECEIVE_SECONDS, abs=0.1)
        await wait_for_disconnect(served)
    assert service.facade.calls == []


@pytest.mark.parametrize("part", ["head", "body"])
async def test_slow_bytes_do_not_move_the_deadline(part: str) -> None:
    app, _ = fake_app()
    start = 30 if part == "head" else len(WHOLE) - len(CHAT) + 1
    async with running_server(app) as served, served.connect() as client:
        began = anyio.current_time()
        await client.send(WHOLE[:start])
        async with anyio.create_task_group() as group:

            async def drip() -> None:
                for byte in WHOLE[start:]:
                    await anyio.sleep(1)
                    await client.send(bytes([byte]))

            group.start_soon(drip)
            assert await client.closed() == b""
            group.cancel_scope.cancel()
        assert anyio.current_time() - began == pytest.approx(protocol.RECEIVE_SECONDS, abs=1.1)


async def test_a_later_request_on_the_same_connection_has_the_deadline_too() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app) as served, served.connect() as client:
        await client.send(WHOLE)
        assert (await client.answer()).status == 200
        await client.send(WHOLE[:-1])
        assert await client.closed() == b""


async def test_an_execution_may_take_longer_than_the_deadline_of_its_request() -> None:
    app, service = fake_app()
    async with running_server(app) as served, served.connect() as client:
        await client.send(WHOLE)
        running = await first_execution(service)
        await anyio.sleep(500)
        running.complete()
        assert (await client.answer()).status == 200


async def test_an_endless_head_is_refused() -> None:
    app, _ = fake_app()
    async with running_server(app) as served, served.connect() as client:
        await client.send(b"GET /livez HTTP/1.1\r\nX-Long: " + b"x" * (protocol.HEAD_BYTES + 1))
        assert (await client.answer()).status == 400
        assert await client.closed() == b""


async def test_a_large_body_does_not_count_as_head() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    body = b'{"messages":[{"role":"user","content":"' + b"x" * 3_000_000 + b'"}]}'
    async with running_server(app) as served:
        assert (await served.post(body)).status == 200


async def test_the_kernel_detects_a_vanished_peer() -> None:
    app, _ = fake_app()
    async with running_server(app) as served, served.connect() as client:
        await client.send(request_bytes("GET", "/livez", {}))
        await client.answer()
        (connected,) = served.connected_sockets()
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        idle = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        between = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert idle + 3 * between == 30


async def test_connections_beyond_the_limit_are_refused_and_the_liveness_probe_is_not() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app, limit_concurrency=2) as served, served.connect(), served.connect():
        while len(served.state.connections) < 2:  # noqa: ASYNC110 - uvicorn has no event for it
            await anyio.sleep(0.001)
        answer = await served.ask(WHOLE)
        assert (answer.status, answer.json["code"]) == (503, "REQUEST_OVERLOADED")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
        assert (await served.get("/livez")).status == 200


async def test_connections_within_the_limit_are_served() -> None:
    app, service = fake_app()
    service.facade.started = FakeRunning.complete
    async with running_server(app, limit_concurrency=1) as served:
        assert (await served.ask(WHOLE)).status == 200
