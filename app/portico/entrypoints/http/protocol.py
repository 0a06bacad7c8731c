"""Server protocol: uvicorn's HTTP protocol with deadlines, byte limits and a mark on surplus connections.

uvicorn bounds none of these. A request that is incomplete `RECEIVE_SECONDS` after its first byte, or a connection that
sends nothing for as long, is closed without a response; an application that is reading sees a disconnect. The kernel
detects a vanished peer within `PEER_SECONDS`, because it acknowledges neither data nor keep-alive probes. Connections
beyond uvicorn's `limit_concurrency` are marked, so that the application can refuse their requests. All of this needs
`http=BoundedProtocol` where uvicorn is started; any other server bounds only the size of a body, and a proxy in front
must do the rest.
"""

import socket
from asyncio import BaseTransport, BufferedProtocol, TimerHandle
from typing import Any, Final, cast

import anyio
from starlette.types import Receive, Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

RECEIVE_SECONDS = 30.0
HEAD_BYTES = 65_536
PEER_SECONDS = 30
FRAMING_PER_BODY_BYTE = 16
_EXTENSION = "portico.connection"
_KERNEL_LIMITS = (
    ("TCP_USER_TIMEOUT", PEER_SECONDS * 1000),
    ("TCP_KEEPIDLE", PEER_SECONDS // 2),
    ("TCP_KEEPINTVL", PEER_SECONDS // 6),
    ("TCP_KEEPCNT", 3),
)


_READ_BUFFER: Final = memoryview(bytearray(HEAD_BYTES))
"""The read buffer of all connections, safe because a read is parsed before the next one.

asyncio's own buffer per connection costs several times the read itself.
"""


class BoundedProtocol(HttpToolsProtocol, BufferedProtocol):
    """uvicorn's protocol with a deadline and a byte limit for everything but bodies, and a mark on surplus connections.

    The application finds the connection in the scope's extensions. With slots its own attributes are none of the thirty
    that CPython keeps without a table of their names for each object, which would take 1.7 kB for each connection.
    """

    __slots__ = ("_deadline_timer", "_extension", "_framing_bytes", "_receiving", "_unanswered")

    def get_buffer(self, sizehint: int) -> memoryview:
        return _READ_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_READ_BUFFER[:nbytes]))

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(Any, transport))
        limit, self.limit_concurrency = self.limit_concurrency, None
        surplus = limit is not None and len(self.connections) > limit
        self._extension = {
            _EXTENSION: {
                "abort": self.transport.abort,
                "surplus": surplus,
                "flow": self.flow,
                "wake": self._wake,
            }
        }
        self._unanswered: list[RequestResponseCycle] = []
        self._receiving = True
        self._framing_bytes = 0
        self._deadline_timer: TimerHandle | None = None
        _set_kernel_limits(transport.get_extra_info("socket"))
        self._arm_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every request of the connection; uvicorn notifies only the newest, which may still be queued.

        Afterwards nothing here refers to the connection, so that it is freed without a garbage collection.
        """
        self._disarm_deadline()
        super().connection_lost(exc)
        for cycle in self._unanswered:
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        self._extension.clear()

    def data_received(self, data: bytes) -> None:
        self._framing_bytes += len(data)
        super().data_received(data)
        if not self._receiving:
            self._disarm_deadline()
        elif self._framing_bytes > HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif self._deadline_timer is None:
            self._arm_deadline()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving = True
        cast(Any, self.scope)["extensions"] = self._extension

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

    def _wake(self) -> None:
        for cycle in self._unanswered:
            cycle.message_event.set()

    def _arm_deadline(self) -> None:
        self._deadline_timer = self.loop.call_later(RECEIVE_SECONDS, self._expire)

    def _disarm_deadline(self) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    def _expire(self) -> None:
        """Close the connection, unless the application had paused reading."""
        if self.flow.read_paused:
            self._arm_deadline()
        else:
            self.transport.abort()


def is_surplus(scope: Scope) -> bool:
    """Return True for a request on a connection beyond the limit."""
    return bool(_connection(scope).get("surplus", False))


def flow_control(scope: Scope) -> FlowControl | None:
    """Return what tells whether sending on the request's connection would wait; None under another server."""
    flow: FlowControl | None = _connection(scope).get("flow")
    return flow


async def abort_connection(scope: Scope, receive: Receive) -> None:
    """Close the request's connection and drop unsent data; do nothing under another server."""
    abort = _connection(scope).get("abort")
    if abort is not None:
        abort()
        await receive()


class DisconnectListener:
    """A wait for the client's disconnect that `wake` interrupts.

    `BoundedProtocol` wakes a waiting `receive` without a cancellation, which costs a fifth of one. Under any other
    server the wait is cancelled.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.receive = receive
        self._wake_server = _connection(scope).get("wake")
        self._wait_scope: anyio.CancelScope | None = None
        self._woken = False

    def wake(self) -> None:
        """Make the current or the next `wait` return."""
        if self._woken:
            return
        self._woken = True
        if self._wake_server is not None:
            self._wake_server()
        elif self._wait_scope is not None:
            self._wait_scope.cancel()

    async def wait(self) -> bool:
        """Return True once the client has left, False once woken."""
        if self._wake_server is None:
            return await self._wait_with_cancellation()
        while not self._woken:
            if (await self.receive())["type"] == "http.disconnect":
                return True
        self._woken = False
        return False

    async def _wait_with_cancellation(self) -> bool:
        with anyio.CancelScope() as self._wait_scope:
            while not self._woken:
                if (await self.receive())["type"] == "http.disconnect":
                    return True
        self._wait_scope, self._woken = None, False
        return False


def _connection(scope: Scope) -> dict[str, Any]:
    found: dict[str, Any] = scope.get("extensions", {}).get(_EXTENSION, {})
    return found


def _set_kernel_limits(connected: socket.socket | None) -> None:
    """Limit how long a silent peer may stay connected, with the options that the platform has."""
    if connected is None or connected.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KERNEL_LIMITS:
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
