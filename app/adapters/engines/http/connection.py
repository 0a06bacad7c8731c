"""One connection to a provider: HTTP/1.1, one exchange at a time, read as it arrives.

Theory of operation

1. What arrives is parsed by llhttp and handed on in the step that read it: whoever pours a body is called with each
   piece, and no task wakes for it. A task wakes for the head of its response and for the end of the body.
2. A body ends where its framing says so; one without framing ends with the connection. Whatever else a connection does
   in the midst of an exchange is a `ConnectionFault`, told behind everything that had arrived.
3. A connection rests, for the next exchange, when its request was sent and its response is whole. If whoever read it
   had enough before, it has `LINGER` seconds to become whole. A byte that comes while it rests ends it, and so do
   `REST_SECONDS`. One timer bounds all of it.
4. What is given up is aborted, not closed politely: a polite close keeps the descriptor until the peer has read what
   it was sent.

The parser is as lenient as browsers are. All that is no body, heads, trailers and the sizes of chunks, is bounded:
`FRAMING_PER_BODY_BYTE` for each byte of the body, and `FRAMING_BYTES` beside.
"""

import asyncio
import ssl
from asyncio import BaseTransport, Future, TimerHandle, Transport, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, Self, TypeAlias, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError

FRAMING_BYTES: Final = 16 * 2**10
FRAMING_PER_BODY_BYTE: Final = 16
LINGER: Final = 0.1
REST_SECONDS: Final = 15.0
Take: TypeAlias = Callable[[bytes], bool]
"""Is given each piece of a body and an empty one at its end, and returns whether it has had enough."""


class ConnectionFault(EngineError):  # noqa: N818 - a fault is a value that the engine translates
    """What went wrong with a connection, whatever had been said over it."""


class ResponseHead(NamedTuple):
    """How a response begins. Names of headers are lower case; of one that comes again the last value counts."""

    status: int
    headers: Mapping[str, str]


@dataclass(eq=False, slots=True)
class ConnectionPool:
    """The connections to one origin: all that are open, and those of them that rest, the newest last."""

    open: set["UpstreamConnection"] = field(default_factory=set)
    resting: dict["UpstreamConnection", None] = field(default_factory=dict)


@dataclass(slots=True)
class _Exchange:
    """How far an exchange is: `pieces` of the body wait to be taken, `status` is 0 until the head is whole.

    `size` is how many bytes of the body were taken, of `most` that may be.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    take: Take | None = None
    size: int = 0
    most: int = 0
    is_sent: bool = False
    is_framed: bool = False
    is_lasting: bool = False
    is_whole: bool = False
    had_enough: bool = False
    lingers: bool = False


_ARRIVED: Final = memoryview(bytearray(2**16))
"""Where every connection's reads go, since they are parsed at once. A buffer for each, as asyncio makes them for other
protocols, costs several times the read.
"""


class UpstreamConnection(asyncio.BufferedProtocol):
    """A connection of that pool. Whoever has it has it alone, and within its context asks and then pours, once."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._loop = get_running_loop()
        self._parser = HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._exchange = _Exchange(is_whole=True)
        self._framing = 0
        self._paused = False
        self._due = inf
        self._timer: TimerHandle | None = None
        self._changed: Future[None] | None = None
        self._fault: Exception | None = None

    @property
    def head(self) -> ResponseHead:
        """How the response begins, once it was asked for."""
        return ResponseHead(self._exchange.status, self._exchange.headers)

    async def ask(self, request: Sequence[bytes], due: float) -> None:
        """Sends the request, piece by piece, and returns when a response begins, which may be before all of it is sent.

        The exchange ends at the time `due` of the loop, unless `wait_until` moves that. Raises: ConnectionFault.
        """
        self._framing = 0
        exchange = self._exchange = _Exchange()
        self.wait_until(due)
        exchange.is_sent = await self._send(request)
        while not exchange.status:
            await self._change()

    async def pour(self, take: Take, most: int) -> None:
        """Hands the body on until it ends or has been enough.

        Raises: ConnectionFault; EngineFault when it is longer than that many bytes; what `take` raises.
        """
        exchange = self._exchange
        exchange.take, exchange.most = take, most
        _hand_on(exchange, take)
        while exchange.take is not None:
            await self._change()

    def wait_until(self, due: float) -> None:
        """Ends what goes on at that time of the loop. Moving it on is cheap: the timer looks whether it was moved."""
        self._due = due
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._expire)
        elif due < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(due, self._expire)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        """Gives the connection back; what is left of the response is not waited for."""
        self._exchange.take = None
        if self._exchange.is_whole:
            self._rest()
        elif self._exchange.had_enough:
            self._exchange.lingers = True
            self.wait_until(self._loop.time() + LINGER)
        else:
            self.abort()

    def abort(self) -> None:
        """Ends the connection at once; that it is lost is told later, and until then nobody may find it."""
        self._pool.resting.pop(self, None)
        self._transport.abort()

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        self._pool.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.open.discard(self)
        self._pool.resting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if exc is None and self._fault is None and self._exchange.status and not self._exchange.is_framed:
            self._exchange.is_whole = True
            self._go_on()
        self._break(_broken(exc))
        del self._parser  # which holds this connection in turn

    def get_buffer(self, sizehint: int) -> memoryview:
        return _ARRIVED

    def buffer_updated(self, nbytes: int) -> None:
        self._framing = max(self._framing, 0) + nbytes
        fault: ConnectionFault | None = None
        try:
            self._parser.feed_data(_ARRIVED[:nbytes])
        except (HttpParserError, HttpParserUpgrade) as cause:
            fault = _no_http(cause)
        if self._framing > FRAMING_BYTES:
            fault = _no_http(None)
        self._go_on()
        if fault is not None:
            self._break(fault)

    def eof_received(self) -> None:
        self._pool.resting.pop(self, None)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    def on_message_begin(self) -> None:
        """The parser's. What nobody asked for is no response."""
        if self._exchange.is_whole:
            raise HttpParserError("nothing was asked")
        self._exchange.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's, for trailers too, which say nothing to us."""
        if not self._exchange.status:
            self._exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The parser's. An interim response is not the one that was asked for."""
        status, exchange = self._parser.get_status_code(), self._exchange
        if status >= 200:
            coding = exchange.headers.get("transfer-encoding", "").lower()
            exchange.is_framed = coding.endswith("chunked") or "content-length" in exchange.headers
            exchange.is_lasting = self._parser.should_keep_alive()
            exchange.status = status

    def on_body(self, piece: bytes) -> None:
        """The parser's."""
        self._framing -= (1 + FRAMING_PER_BODY_BYTE) * len(piece)
        if not self._exchange.had_enough:
            self._exchange.pieces.append(piece)

    def on_message_complete(self) -> None:
        """The parser's."""
        self._exchange.is_whole = self._exchange.status > 0

    async def _send(self, request: Sequence[bytes]) -> bool:
        """Whether all of it was sent."""
        for piece in request:
            self._transport.write(piece)
            while self._paused:
                if self._exchange.status:
                    return False
                await self._change()
        return True

    def _go_on(self) -> None:
        """Hands on what has come, and wakes whoever waits for just that."""
        exchange, take = self._exchange, self._exchange.take
        if take is not None:
            try:
                _hand_on(exchange, take)
            except EngineError as fault:
                self._break(fault)
        elif exchange.lingers and exchange.is_whole:
            self._rest()
        if exchange.take is None:
            self._wake()

    def _rest(self) -> None:
        exchange, transport = self._exchange, self._transport
        exchange.lingers = False
        unsent = not exchange.is_sent or transport.get_write_buffer_size() > 0
        if unsent or not exchange.is_lasting or transport.is_closing():
            self.abort()
        else:
            self._pool.resting[self] = None
            self.wait_until(self._loop.time() + REST_SECONDS)

    def _expire(self) -> None:
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._expire)
        else:
            self._break(ConnectionFault(AttemptFailureReason.TIMED_OUT, "the provider did not answer in time"))

    def _break(self, fault: Exception) -> None:
        if self._fault is None:
            self._fault = fault
        self.abort()
        self._wake()

    async def _change(self) -> None:
        """Waits until something has changed. Raises: what broke the connection."""
        if self._fault is not None:
            raise self._fault
        self._changed = self._loop.create_future()
        await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


def _hand_on(exchange: _Exchange, take: Take) -> None:
    if exchange.pieces:
        piece = b"".join(exchange.pieces)
        exchange.pieces.clear()
        exchange.size += len(piece)
        if exchange.size > exchange.most:
            raise EngineError(AttemptFailureReason.MALFORMED, f"the reply is longer than {exchange.most} bytes")
        exchange.had_enough = take(piece)
    if exchange.is_whole and not exchange.had_enough:
        take(b"")
    if exchange.is_whole or exchange.had_enough:
        exchange.take = None


def _no_http(cause: Exception | None) -> ConnectionFault:
    fault = ConnectionFault(AttemptFailureReason.MALFORMED, "the provider's answer is not HTTP")
    fault.__cause__ = cause
    return fault


def _broken(cause: Exception | None) -> Exception:
    """What the end of a connection means in the midst of an exchange. What is no failure of transport is a bug."""
    if cause is not None and not isinstance(cause, OSError):
        return cause
    reason = AttemptFailureReason.TLS if isinstance(cause, ssl.SSLError) else AttemptFailureReason.BROKEN
    fault = ConnectionFault(reason, "the connection to the provider broke")
    fault.__cause__ = cause
    return fault
