"""The aiohttp transport over a real socket: framing, reuse of connections, and every way in which one ends."""

import os
import ssl
import sys
from asyncio import StreamReader, StreamWriter, open_connection, start_server
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.adapters.engines.http.aiohttp_transport import (
    LARGE_BODY_BYTES,
    LINGER_SECONDS,
    READ_BYTES,
    AiohttpTransport,
    HttpSession,
    Route,
    open_session,
)
from portico.adapters.engines.http.tls import tls_context
from portico.adapters.engines.http.transport import HttpRequest, TransportError
from portico.domain.model_call import AttemptFailureReason
from tests.support.upstream import Script, ScriptedUpstream, Step, UpstreamAction, UpstreamPause, chunk, closed_port

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
COMPLETE = HEAD + b"ab"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
ENDLESS = b"x" * 2**15
SECRET = "sk-canary-5f0c"
SELF_SIGNED = Path(__file__).parents[3] / "support" / "self_signed.pem"


@dataclass
class Exchanged:
    """The response of one exchange, and the reason of the fault that ended it."""

    status: int = 0
    body: bytes = b""
    reason: AttemptFailureReason | None = None


DIRECT = Route(connect_seconds=5)


def transport_of(session: HttpSession, route: Route = DIRECT) -> AiohttpTransport:
    return AiohttpTransport(session, route)


async def exchange(
    session: HttpSession, url: str, *, body: bytes = b"{}", until: bytes | None = None, route: Route = DIRECT
) -> Exchanged:
    """Send one request and read the response to its end, or until the body ends with those bytes."""
    exchanged = Exchanged()
    request = HttpRequest("POST", f"{url}/", {"Authorization": SECRET}, body)
    try:
        async with transport_of(session, route).exchange(request) as response:
            exchanged.status = response.status
            while data := await response.read():
                exchanged.body += data
                if until is not None and exchanged.body.endswith(until):
                    break
    except TransportError as fault:
        exchanged.reason = checked_reason(fault)
    return exchanged


def checked_reason(fault: TransportError) -> AttemptFailureReason:
    """Return the reason of a fault that holds nothing of the request."""
    assert fault.__cause__ is fault.__context__ is None
    assert SECRET not in repr(fault)
    return fault.reason


async def received(*script: Step) -> Exchanged:
    async with ScriptedUpstream(script) as upstream, open_session() as session:
        return await exchange(session, upstream.url)


async def connections_used(script: Script, *, until: bytes | None = None, wait: float = 0.0) -> int:
    """Return how many connections three exchanges need."""
    async with ScriptedUpstream(script) as upstream, open_session() as session:
        for _ in range(3):
            await exchange(session, upstream.url, until=until)
            await anyio.sleep(wait)
        return upstream.connections


@asynccontextmanager
async def talkative_server(greeting: bytes) -> AsyncIterator[str]:
    """Serve a greeting to every client and read nothing."""
    writers: list[StreamWriter] = []

    async def greet(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.transport.pause_reading()
        writer.write(greeting)
        writers.append(writer)

    async with await start_server(greet, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize(
    "script",
    [
        [COMPLETE],
        [HEAD, UpstreamPause(1), b"a", UpstreamPause(1), b"b"],
        [CHUNKED, chunk(b"a"), UpstreamPause(1), chunk(b"b"), END],
        [CHUNKED, b"1;name=value\r\na\r\n1 \r\nb\r\n0\r\nTrailer: x\r\n\r\n"],
        [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n", COMPLETE],
        [b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + COMPLETE],
        [b"HTTP/1.1 200 OK\r\n\r\na", UpstreamPause(1), b"b", UpstreamAction.CLOSE],
        [b"HTTP/1.0 200 OK\r\n\r\nab", UpstreamAction.CLOSE],
        [b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab"],
    ],
    ids=["length", "slow", "chunks", "extensions", "hints", "continue", "until_closed", "http_1_0", "bare_newlines"],
)
async def test_a_body_is_complete_where_its_framing_says_so(script: Script):
    assert await received(*script) == Exchanged(200, b"ab")


async def test_a_response_may_have_no_body():
    assert await received(b"HTTP/1.1 204 No Content\r\n\r\n") == Exchanged(204)
    assert await received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") == Exchanged(200)


async def test_a_body_is_not_decompressed():
    assert (await received(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab")).body == b"ab"


async def test_a_request_is_sent_as_it_is_and_keeps_no_cookies():
    reply = b"HTTP/1.1 302 Found\r\nSet-Cookie: a=b\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    async with ScriptedUpstream([reply]) as upstream, open_session() as session:
        for _ in range(2):
            request = HttpRequest("POST", f"{upstream.url}/a%2Fb?c=%20", {"X-Api-Key": SECRET}, b"{}")
            async with transport_of(session).exchange(request) as response:
                assert (response.status, response.headers["location"]) == (302, "/elsewhere")
    assert [request.path for request in upstream.requests] == ["/a%2Fb?c=%20"] * 2
    headers = upstream.requests[1].headers
    assert (headers["x-api-key"], headers["accept-encoding"]) == (SECRET, "identity")
    assert headers["user-agent"] == "portico"
    assert (headers["accept"], headers["content-length"]) == ("*/*", "2")
    assert "cookie" not in headers


@pytest.mark.parametrize(
    ("script", "body"),
    [
        ([UpstreamAction.CLOSE], b""),
        ([UpstreamAction.RESET], b""),
        ([HEAD, b"a", UpstreamPause(1), UpstreamAction.CLOSE], b"a"),
        ([HEAD, b"a", UpstreamPause(1), UpstreamAction.RESET], b"a"),
        ([CHUNKED, chunk(b"a"), UpstreamAction.CLOSE], b"a"),
        ([b"HTTP/1.1 200 OK\r\n\r\na", UpstreamPause(1), UpstreamAction.RESET], b"a"),
        ([b"HTTP/1.1 200 OK\r\nContent-", UpstreamAction.CLOSE], b""),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", UpstreamAction.CLOSE], b""),
    ],
    ids=["close", "reset", "length", "length_reset", "chunks", "until_closed", "head", "continue"],
)
async def test_a_connection_that_ends_before_its_response_is_broken(script: Script, body: bytes):
    exchanged = await received(*script)
    assert (exchanged.reason, exchanged.body) == (AttemptFailureReason.BROKEN, body)


@pytest.mark.parametrize(
    ("script", "body"),
    [
        ([b"SSH-2.0-x\r\n"], b""),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"], b""),
        ([b"HTTP/1.1 200 OK\r\nX: ", ENDLESS], b""),
        ([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000], b""),
        ([CHUNKED + chunk(b"a"), UpstreamPause(1), b"ZZ\r\n"], b"a"),
        ([CHUNKED + chunk(b"a"), UpstreamPause(1), b"0\r\nX: ", ENDLESS], b"a"),
    ],
    ids=["greeting", "smuggling", "long_header", "many_headers", "chunk_size", "trailer"],
)
async def test_a_response_that_is_not_http_is_malformed_at_once(script: Script, body: bytes):
    exchanged = await received(*script, UpstreamAction.HANG)
    assert (exchanged.reason, exchanged.body) == (AttemptFailureReason.MALFORMED, body)


async def test_a_fault_after_a_protocol_switch_does_not_hang():
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    assert (await received(upgrade, UpstreamAction.HANG)).status == 101


async def test_tiny_chunks_are_valid():
    assert (await received(CHUNKED + chunk(b"a") * 2**14 + END)).body == b"a" * 2**14


async def test_a_connection_is_used_again():
    assert await connections_used([COMPLETE]) == 1
    assert await connections_used([CHUNKED + chunk(b"ab"), UpstreamPause(1), END]) == 1


async def test_a_read_of_a_plain_connection_is_bounded():
    script = [HEAD, UpstreamPause(1), b"ab"]
    async with ScriptedUpstream(script) as upstream, open_session() as session, session.get(upstream.url) as response:
        assert response.connection is not None
        transport: Any = response.connection.transport
        assert type(transport).max_size > READ_BYTES, "asyncio has a limit of the same name, and it is larger"
        assert transport.max_size == READ_BYTES


@pytest.mark.parametrize(
    "script",
    [
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"],
        [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab"],
        [COMPLETE, UpstreamAction.CLOSE],
        [COMPLETE, UpstreamPause(1), UpstreamAction.RESET],
    ],
    ids=["announced", "http_1_0", "closed", "reset_later"],
)
async def test_a_connection_that_cannot_be_used_again_is_not(script: Script):
    assert await connections_used(script, wait=2) == 3


async def test_concurrent_exchanges_have_a_connection_each():
    async with ScriptedUpstream([HEAD, UpstreamPause(1), b"ab"]) as upstream, open_session() as session:
        for _ in range(2):
            async with anyio.create_task_group() as group:
                for _ in range(150):
                    group.start_soon(exchange, session, upstream.url)
        assert upstream.connections == 150


async def test_a_response_that_was_left_early_may_end_in_the_background():
    script = [CHUNKED + chunk(b"done"), UpstreamPause(LINGER_SECONDS / 2), chunk(b"more") + END]
    assert await connections_used(script, until=b"done", wait=LINGER_SECONDS) == 1
    assert await connections_used(script, until=b"done") == 3


async def test_a_response_that_was_left_early_is_not_waited_for():
    script = [CHUNKED + chunk(b"done"), UpstreamPause(LINGER_SECONDS / 2), chunk(b"more"), UpstreamAction.HANG]
    async with ScriptedUpstream(script) as upstream, open_session() as session:
        started = anyio.current_time()
        assert (await exchange(session, upstream.url, until=b"done")).body == b"done"
        assert anyio.current_time() == started
        await upstream.wait_for_departures()
        assert anyio.current_time() - started == pytest.approx(LINGER_SECONDS, abs=0.05)


async def test_an_exception_closes_the_connection_at_once_and_is_raised():
    bug = LookupError("a bug")
    async with ScriptedUpstream([HEAD, UpstreamAction.HANG]) as upstream, open_session() as session:
        with pytest.raises(LookupError) as caught:
            async with transport_of(session).exchange(HttpRequest("GET", upstream.url, {})):
                raise bug
        assert caught.value is bug
        await upstream.wait_for_departures()


async def test_a_response_to_an_incomplete_request_is_read():
    reply = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    async with talkative_server(reply) as url, open_session() as session:
        for _ in range(2):
            assert await exchange(session, url, body=b"x" * 2**24) == Exchanged(413, b"no")


@pytest.mark.parametrize("size", [0, 1, LARGE_BODY_BYTES, LARGE_BODY_BYTES + 1, 3 * 2**20])
async def test_a_body_of_any_size_arrives_whole(size: int):
    async with ScriptedUpstream([COMPLETE]) as upstream, open_session() as session:
        await exchange(session, upstream.url, body=b"x" * size)
    assert upstream.requests[0].body == b"x" * size
    assert "transfer-encoding" not in upstream.requests[0].headers


async def test_closing_the_session_closes_its_connections():
    async with ScriptedUpstream([COMPLETE]) as upstream:
        async with open_session() as session:
            await exchange(session, upstream.url)
        await upstream.wait_for_departures()


@pytest.mark.parametrize("url", ["", "example.com", "http://", "ftp://example.com:21", "http://[::1", "http://a:70000"])
async def test_an_unusable_url_is_unreachable(url: str):
    async with open_session() as session:
        assert (await exchange(session, url)).reason is AttemptFailureReason.UNREACHABLE


async def test_nothing_of_the_environment_but_certificates_counts(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await received(COMPLETE) == Exchanged(200, b"ab")


async def test_ssl_cert_file_names_the_trusted_authorities() -> None:
    """The variable counts at the start of a process, when aiohttp reads the certificates."""
    program = """
import anyio, sys
from portico.adapters.engines.http.aiohttp_transport import AiohttpTransport, Route, open_session
from portico.adapters.engines.http.transport import HttpRequest

async def status() -> int:
    async with open_session() as session:
        request = HttpRequest("POST", sys.argv[1], {}, b"{}")
        async with AiohttpTransport(session, Route(connect_seconds=5)).exchange(request) as response:
            return response.status
print(anyio.run(status))
"""
    environ = {**os.environ, "SSL_CERT_FILE": str(SELF_SIGNED)}
    async with ScriptedUpstream([COMPLETE], secure=secure_server()) as upstream:
        ended = await anyio.run_process([sys.executable, "-c", program, f"{upstream.url}/"], env=environ)
    assert ended.stdout.split() == [b"200"]


def test_a_verified_context_is_the_only_kind():
    context = tls_context(str(SELF_SIGNED))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@asynccontextmanager
async def tunnel(answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve a proxy that answers a CONNECT and passes on everything after it; yield its address and its requests."""
    requests: list[bytes] = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        host, _, port = requests[-1].split(b" ")[1].decode().partition(":")
        writer.write(answer)
        if b" 200 " in answer:
            upstream_reader, upstream_writer = await open_connection(host, int(port))
            async with anyio.create_task_group() as group:
                group.start_soon(copy, reader, upstream_writer)
                group.start_soon(copy, upstream_reader, writer)
        writer.close()

    async with await start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


async def copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
    writer.close()


def secure_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SELF_SIGNED)
    return context


async def test_a_certificate_of_the_given_authorities_is_trusted_and_no_other():
    route = Route(5, tls=tls_context(str(SELF_SIGNED)))
    async with ScriptedUpstream([COMPLETE], secure=secure_server()) as upstream, open_session() as session:
        assert await exchange(session, upstream.url, route=route) == Exchanged(200, b"ab")
        assert (await exchange(session, upstream.url)).reason is AttemptFailureReason.TLS
        assert (await exchange(session, upstream.url, route=route)).status == 200
    assert len(upstream.requests) == 2


async def test_a_plain_request_goes_through_the_proxy_with_the_proxys_credentials():
    async with ScriptedUpstream([COMPLETE]) as proxy, open_session() as session:
        route = Route(5, proxy.url.replace("http://", "http://user:pass@"))
        assert await exchange(session, "http://models.invalid/v1", route=route) == Exchanged(200, b"ab")
        assert SECRET not in repr(route)
        assert "pass" not in repr(route)
    request = proxy.requests[0]
    assert request.path == "http://models.invalid/v1/"
    assert request.headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
    assert request.headers["host"] == "models.invalid"


async def test_a_secure_request_goes_through_a_tunnel_that_sees_nothing_of_it():
    async with (
        ScriptedUpstream([COMPLETE], secure=secure_server()) as upstream,
        tunnel() as (address, requests),
        open_session() as session,
    ):
        route = Route(5, f"http://user:pass@{address}", tls_context(str(SELF_SIGNED)))
        assert await exchange(session, upstream.url, route=route) == Exchanged(200, b"ab")
    assert requests[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in requests[0]
    assert SECRET.encode() not in requests[0]
    assert b"Authorization: Basic" not in upstream.requests[0].body
    assert "proxy-authorization" not in upstream.requests[0].headers


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"garbage\r\n\r\n"],
)
async def test_a_proxy_that_refuses_or_fails_makes_the_provider_unreachable(answer: bytes):
    async with tunnel(answer) as (address, _), open_session() as session:
        route = Route(5, f"http://user:{SECRET}@{address}")
        exchanged = await exchange(session, "https://models.invalid", route=route)
    assert exchanged.reason in {AttemptFailureReason.UNREACHABLE, AttemptFailureReason.MALFORMED}


@pytest.mark.parametrize("url", ["http://models.invalid", "https://models.invalid"])
async def test_a_proxy_that_does_not_listen_makes_the_provider_unreachable(url: str):
    async with closed_port() as proxy, open_session() as session:
        assert (await exchange(session, url, route=Route(5, proxy))).reason is (AttemptFailureReason.UNREACHABLE)


async def test_a_header_replaces_the_default_of_the_same_name():
    async with ScriptedUpstream([COMPLETE]) as upstream, open_session() as session:
        request = HttpRequest("GET", upstream.url, {"USER-AGENT": "ours"})
        async with transport_of(session).exchange(request) as response:
            await response.read()
    assert upstream.requests[0].headers["user-agent"] == "ours"
