"""One connection over a real socket: what frames a body, when a connection rests, and all that ends it."""

from asyncio import StreamReader, StreamWriter, start_server
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import anyio
import pytest

from app.adapters.engines.http.connection import FRAMING_BYTES, LINGER, REST_SECONDS, ConnectionFault
from app.adapters.engines.http.session import (
    PORTS,
    Origin,
    UpstreamAddress,
    UpstreamSession,
    address_of,
    open_session,
    request,
)
from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError
from tests.support.upstream import Script, ScriptedUpstream, UpstreamAction, UpstreamPause, chunk

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
WHOLE = HEAD + b"ab"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class BodyCollector:
    """Takes a body until it has heard `enough`, or raises that."""

    def __init__(self, enough: bytes | Exception | None = None) -> None:
        self.pieces: list[bytes] = []
        self._enough = enough

    def take(self, piece: bytes) -> bool:
        if isinstance(self._enough, Exception):
            raise self._enough
        self.pieces.append(piece)
        return self._enough is not None and self._enough in piece

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


async def exchange(session: UpstreamSession, url: str, taker: BodyCollector, body: bytes = b"{}") -> int:
    """Asks, pours, and returns the status."""
    address = address_of(url)
    with await session.connection(address, 5) as connection:
        await connection.ask(request("POST", address, "/", headers={}, body=body), inf)
        await connection.pour(taker.take, 2**20)
        return connection.head.status


@asynccontextmanager
async def serving(said: bytes) -> AsyncIterator[str]:
    """The URL of a server that says this and reads nothing."""
    writers: list[StreamWriter] = []

    async def say(_reader: StreamReader, writer: StreamWriter) -> None:
        writer.transport.pause_reading()
        writer.write(said)
        writers.append(writer)

    async with await start_server(say, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.transport.abort()


async def body_of(*script: Script) -> bytes:
    """The body of the last response, each on a connection that may be the same."""
    async with ScriptedUpstream(*script) as upstream, open_session() as session:
        for _ in script:
            taker = BodyCollector()
            await exchange(session, upstream.url, taker)
    assert taker.pieces[-1] == b"" == b"".join(taker.pieces[taker.pieces.index(b"") :])
    return taker.body


async def fault(*script: bytes | UpstreamPause | UpstreamAction) -> tuple[AttemptFailureReason, bytes]:
    """What broke the exchange, and what was heard before."""
    taker = BodyCollector()
    async with ScriptedUpstream(script) as upstream, open_session() as session:
        with pytest.raises(ConnectionFault) as caught:
            await exchange(session, upstream.url, taker)
    return caught.value.reason, taker.body


async def connections(script: Script, times: int = 3, enough: bytes | None = None, wait: float = 0.0) -> int:
    """How many connections that many exchanges need."""
    async with ScriptedUpstream(script) as upstream, open_session() as session:
        for _ in range(times):
            await exchange(session, upstream.url, BodyCollector(enough))
            await anyio.sleep(wait)
        return upstream.connections


@pytest.mark.parametrize(
    "script",
    [
        [WHOLE],
        [HEAD, UpstreamPause(1), b"a", UpstreamPause(1), b"b"],
        [CHUNKED, chunk(b"a"), UpstreamPause(1), chunk(b"b"), END],
        [CHUNKED, b"1;name=value\r\na\r\n1 \r\nb\r\n0\r\nTrailer: x\r\n\r\n"],
        [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n", WHOLE],
        [b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + WHOLE],
        [b"HTTP/1.1 200 OK\r\n\r\na", UpstreamPause(1), b"b", UpstreamAction.CLOSE],
        [b"HTTP/1.0 200 OK\r\n\r\nab", UpstreamAction.CLOSE],
        [b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab"],
    ],
    ids=["length", "slowly", "chunks", "extensions", "hints", "continue", "until_closed", "old", "bare_newlines"],
)
async def test_a_body_is_whole_where_its_framing_says_so(script: Script) -> None:
    assert await body_of(script) == b"ab"


async def test_a_response_may_have_no_body() -> None:
    assert await body_of([b"HTTP/1.1 204 No Content\r\n\r\n"]) == b""
    assert await body_of([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]) == b""


async def test_each_exchange_has_its_own_response() -> None:
    again = [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"]
    assert await body_of([WHOLE], [CHUNKED + chunk(b"x") + END], again) == b"abc"


@pytest.mark.parametrize(
    ("script", "heard"),
    [
        ([HEAD, b"a", UpstreamPause(1), UpstreamAction.CLOSE], b"a"),
        ([HEAD, b"a", UpstreamPause(1), UpstreamAction.RESET], b"a"),
        ([CHUNKED, chunk(b"a"), UpstreamAction.CLOSE], b"a"),
        ([b"HTTP/1.1 200 OK\r\n\r\na", UpstreamPause(1), UpstreamAction.RESET], b"a"),
        ([b"HTTP/1.1 200 OK\r\nContent-", UpstreamAction.CLOSE], b""),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", UpstreamAction.CLOSE], b""),
    ],
)
async def test_a_connection_that_ends_before_its_response_is_broken(script: Script, heard: bytes) -> None:
    assert await fault(*script) == (AttemptFailureReason.BROKEN, heard)


@pytest.mark.parametrize(
    ("script", "heard"),
    [
        ([b"SSH-2.0-x\r\n"], b""),
        ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"], b""),
        ([CHUNKED + chunk(b"a") + b"ZZ\r\n"], b"a"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"], b""),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * FRAMING_BYTES], b""),
        ([b"HTTP/1.1 200 OK\r\nX: ", b"x" * FRAMING_BYTES], b""),
        ([CHUNKED + chunk(b"a"), UpstreamPause(1), b"0\r\nX: ", *[b"x" * FRAMING_BYTES] * 2], b"a"),
        ([CHUNKED + chunk(b"a"), UpstreamPause(1), b"1;" + b"x" * 2 * FRAMING_BYTES], b"a"),
    ],
    ids=["greeting", "upgrade", "size", "smuggling", "interim", "header", "trailer", "extension"],
)
async def test_what_is_no_http_or_has_no_end_is_malformed_behind_what_was_said(script: Script, heard: bytes) -> None:
    assert await fault(*script, UpstreamAction.HANG) == (AttemptFailureReason.MALFORMED, heard)


async def test_tiny_chunks_are_framing_that_any_body_may_have() -> None:
    assert await body_of([CHUNKED + chunk(b"a") * FRAMING_BYTES + END]) == b"a" * FRAMING_BYTES


async def test_a_connection_rests_between_exchanges_and_is_used_again() -> None:
    assert await connections([WHOLE]) == 1
    assert await connections([CHUNKED + chunk(b"ab"), UpstreamPause(1), END]) == 1
    assert await connections([WHOLE], wait=REST_SECONDS - 1) == 1


@pytest.mark.parametrize(
    "script",
    [
        [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab"],
        [b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab"],
        [WHOLE, UpstreamAction.CLOSE],
        [WHOLE + b"more"],
        [WHOLE + WHOLE],
        [WHOLE, UpstreamPause(1), b"HTTP/1.1 408 Request Timeout\r\n\r\n"],
    ],
    ids=["said", "old", "closed", "surplus", "another", "late"],
)
async def test_a_connection_that_may_not_or_cannot_be_used_again_is_not(script: Script) -> None:
    assert await connections(script, wait=2) == 3


async def test_a_connection_that_has_rested_for_long_is_closed() -> None:
    async with ScriptedUpstream([WHOLE]) as upstream, open_session() as session:
        await exchange(session, upstream.url, BodyCollector())
        began = anyio.current_time()
        await upstream.wait_for_departures()
    assert anyio.current_time() - began == pytest.approx(REST_SECONDS, abs=0.1)


@pytest.mark.parametrize("end", ["abort", "eof_received"])
async def test_a_connection_that_ends_while_it_rests_is_not_found_any_more(end: str) -> None:
    async with ScriptedUpstream([WHOLE]) as upstream, open_session() as session:
        with await session.connection(address_of(upstream.url), 5) as rested:
            await rested.ask(request("POST", address_of(upstream.url), "/", headers={}, body=b"{}"), inf)
            await rested.pour(BodyCollector().take, 2**20)
        getattr(rested, end)()
        with await session.connection(address_of(upstream.url), 5) as fresh:
            assert fresh is not rested


async def test_as_many_connections_are_made_as_are_needed_at_once() -> None:
    async with ScriptedUpstream([HEAD, UpstreamPause(1), b"ab"]) as upstream, open_session() as session:
        for _ in range(2):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(exchange, session, upstream.url, BodyCollector())
        assert upstream.connections == 5


async def test_a_response_of_which_was_enough_may_still_end_while_nobody_waits() -> None:
    ends = [CHUNKED + chunk(b"that will do"), UpstreamPause(LINGER / 2), chunk(b"more") + END]
    assert await connections(ends, enough=b"do", wait=LINGER) == 1
    assert await connections(ends, enough=b"do") == 3


async def test_a_response_of_which_was_enough_is_not_waited_for_for_long() -> None:
    taker = BodyCollector(b"do")
    script = [CHUNKED + chunk(b"do"), UpstreamPause(LINGER / 2), chunk(b"more"), UpstreamAction.HANG]
    async with ScriptedUpstream(script) as upstream, open_session() as session:
        began = anyio.current_time()
        await exchange(session, upstream.url, taker)
        assert anyio.current_time() == began
        await upstream.wait_for_departures()
        assert anyio.current_time() - began == pytest.approx(LINGER, abs=0.05)
    assert taker.pieces == [b"do"]


async def test_a_response_that_is_left_ends_its_connection_at_once() -> None:
    async with ScriptedUpstream([HEAD, UpstreamAction.HANG]) as upstream, open_session() as session:
        address = address_of(upstream.url)
        with await session.connection(address, 5) as connection:
            await connection.ask(request("GET", address, "/", headers={}), inf)
        await upstream.wait_for_departures()


@pytest.mark.parametrize(
    "pieces", [[WHOLE], [HEAD, UpstreamPause(1), b"a", UpstreamPause(1), b"b"]], ids=["at_once", "in_pieces"]
)
@pytest.mark.parametrize(
    "raised", [EngineError(AttemptFailureReason.MALFORMED, "no"), LookupError("a bug")], ids=["fault", "bug"]
)
async def test_what_whoever_takes_the_body_raises_is_raised_and_ends_it(raised: Exception, pieces: Script) -> None:
    async with ScriptedUpstream(pieces) as upstream, open_session() as session:
        with pytest.raises(type(raised)) as caught:
            await exchange(session, upstream.url, BodyCollector(raised))
    assert caught.value is raised


async def test_a_body_that_is_longer_than_it_may_be_ends_its_connection() -> None:
    taker = BodyCollector()
    async with (
        ScriptedUpstream([CHUNKED, *[chunk(b"x" * 2**16)] * 20, UpstreamAction.HANG]) as upstream,
        open_session() as session,
    ):
        with pytest.raises(EngineError) as caught:
            await exchange(session, upstream.url, taker)
        await upstream.wait_for_departures()
    assert (caught.value.reason, type(caught.value)) == (AttemptFailureReason.MALFORMED, EngineError)
    assert len(taker.body) <= 2**20


async def test_a_response_that_does_not_wait_for_the_request_is_heard() -> None:
    async with serving(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno") as url, open_session() as session:
        for _ in range(2):
            taker = BodyCollector()
            assert (await exchange(session, url, taker, b"x" * 2**24), taker.body) == (413, b"no")


async def test_a_server_that_speaks_before_it_is_asked_is_not_understood() -> None:
    async with serving(WHOLE) as url, open_session() as session:
        address = address_of(url)
        with await session.connection(address, 5) as connection:
            await anyio.sleep(1)
            with pytest.raises(ConnectionFault) as caught:
                await connection.ask(request("GET", address, "/", headers={}), inf)
    assert caught.value.reason is AttemptFailureReason.MALFORMED


async def test_a_session_that_ends_ends_its_connections() -> None:
    async with ScriptedUpstream([WHOLE]) as upstream:
        async with open_session() as session:
            await exchange(session, upstream.url, BodyCollector())
        await upstream.wait_for_departures()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://Example.com", UpstreamAddress(Origin("http", "example.com", 80), "Example.com", "")),
        ("https://example.com/v1/", UpstreamAddress(Origin("https", "example.com", 443), "example.com", "/v1")),
        ("http://[::1]:8080/a/b", UpstreamAddress(Origin("http", "::1", 8080), "[::1]:8080", "/a/b")),
    ],
)
def test_a_base_url_says_whom_to_connect_to_and_what_to_tell_them(url: str, address: UpstreamAddress) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("url", ["", "example.com", "http://", "ftp://example.com:21", "http://[::1", "http://a:70000"])
def test_what_is_no_url_of_a_host_is_no_address(url: str) -> None:
    with pytest.raises(ConnectionFault) as caught:
        address_of(url)
    assert caught.value.reason is AttemptFailureReason.UNREACHABLE
    assert set(PORTS) == {"http", "https"}
