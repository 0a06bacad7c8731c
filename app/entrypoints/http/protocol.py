"""What a connection may take: time and bytes to send its request, silence on the line, and how many there may be.

uvicorn bounds none of these. A request that is not whole `RECEIVE_SECONDS` after its first byte, or a connection that
sends nothing at all for as long, is closed without an answer; an application that is reading sees the client leave.
A peer that vanishes without a word is noticed by the kernel within `PEER_SECONDS`: it stops acknowledging either what
was sent or the probes. Connections beyond uvicorn's `limit_concurrency` are marked, so that the application refuses
what they ask. All of it needs `http=BoundedProtocol` where uvicorn is started; under any other server only the size
of a body is bounded, and a proxy in front must do the rest.
"""

import socket
from asyncio import BaseTransport, BufferedProtocol, TimerHandle
from collections.abc import Callable
from typing import Any, Final, cast

from starlette.types import Receive, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

RECEIVE_SECONDS = 30.0
HEAD_BYTES = 65_536
PEER_SECONDS = 30
FRAMING_PER_BODY_BYTE = 16
_CONNECTION = "portico.connection"
_KERNEL_LIMITS = (
    ("TCP_USER_TIMEOUT", PEER_SECONDS * 1000),
    ("TCP_KEEPIDLE", PEER_SECONDS // 2),
    ("TCP_KEEPINTVL", PEER_SECONDS // 6),
    ("TCP_KEEPCNT", 3),
)


_ARRIVED: Final = memoryview(bytearray(HEAD_BYTES))
"""Where every connection's reads go, since they are parsed at once. A buffer for each, as asyncio makes them for other
protocols, costs several times the read.
"""


class BoundedProtocol(HttpToolsProtocol, BufferedProtocol):
    """uvicorn's protocol, with a deadline and a byte limit for whatever is not a body, and a mark on each surplus
    connection. The application finds the connection in the scope's extensions.
    """

    def get_buffer(self, sizehint: int) -> memoryview:
        return _ARRIVED

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_ARRIVED[:nbytes]))

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Any, transport))
        limit, self.limit_concurrency = self.limit_concurrency, None
        surplus = limit is not None and len(self.connections) > limit
        self._connection = {
            _CONNECTION: {
                "abort": self.transport.abort,
                "surplus": surplus,
                "has_room": self._has_room,
                "wake": self._wake,
            }
        }
        self._unanswered: list[RequestResponseCycle] = []
        self._receiving = True
        self._framing_bytes = 0
        self._deadline_timer: TimerHandle | None = None
        _watch_peer(transport.get_extra_info("socket"))
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells every request of the connection; uvicorn tells the newest only, which may be one that still waits.

        Then nothing here may hold the connection any more, or it would take a garbage collection to be rid of it.
        """
        self._disarm()
        super().connection_lost(exc)
        for cycle in self._unanswered:
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        self._connection.clear()

    def data_received(self, data: bytes) -> None:
        self._framing_bytes += len(data)
        super().data_received(data)
        if not self._receiving:
            self._disarm()
        elif self._framing_bytes > HEAD_BYTES:
            self.send_400_response("The request's head is too large.")
        elif self._deadline_timer is None:
            self._arm()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving = True
        cast(Any, self.scope)["extensions"] = self._connection

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._unanswered = [*(cycle for cycle in self._unanswered if not cycle.response_complete), self.cycle]

    def on_body(self, body: bytes) -> None:
        self._framing_bytes -= FRAMING_PER_BODY_BYTE * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving = False
        self._framing_bytes = 0
        super().on_message_complete()

    def _has_room(self) -> bool:
        return not self.flow.write_paused

    def _wake(self) -> None:
        for cycle in self._unanswered:
            cycle.message_event.set()

    def _arm(self) -> None:
        self._deadline_timer = self.loop.call_later(RECEIVE_SECONDS, self._expired)

    def _disarm(self) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    def _expired(self) -> None:
        """Time is up, unless it was us who did not read."""
        if self.flow.read_paused:
            self._arm()
        else:
            self.transport.abort()


def is_surplus(scope: Scope) -> bool:
    """Whether the request came on a connection beyond the limit."""
    connection: dict[str, Any] = scope.get("extensions", {}).get(_CONNECTION, {})
    return bool(connection.get("surplus", False))


def can_write(scope: Scope) -> Callable[[], bool]:
    """What says whether the request's connection takes more at once; under another server, always that it does not."""
    has_room: Callable[[], bool] = scope.get("extensions", {}).get(_CONNECTION, {}).get("has_room", lambda: False)
    return has_room


def waker(scope: Scope) -> Callable[[], None] | None:
    """What makes the request's `receive` return with nothing; under another server there is no such thing."""
    wake: Callable[[], None] | None = scope.get("extensions", {}).get(_CONNECTION, {}).get("wake")
    return wake


async def abort_connection(scope: Scope, receive: Receive) -> None:
    """Closes the request's connection without sending what still waits; under another server, nothing."""
    connection = scope.get("extensions", {}).get(_CONNECTION)
    if connection is not None:
        connection["abort"]()
        await receive()


def _watch_peer(connected: socket.socket | None) -> None:
    """Tells the kernel how long a silent peer may stay; a platform that lacks a setting goes without it."""
    if connected is None or connected.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KERNEL_LIMITS:
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
