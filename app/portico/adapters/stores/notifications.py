"""Notifications between replicas on one PostgreSQL: a log has grown, or an execution is to be cancelled.

NOTIFY may be lost with a connection or its sender, so all replicas also poll the tables. Notifications are collected
for a short time, so that a busy replica sends many at once; a replica that is alone sends none about logs. This is a
sink of the event bus, which publishes events after their commit.
"""

from collections.abc import Callable, Sequence

import anyio
import asyncpg

from portico.adapters.stores.postgres import CONNECTION_ERRORS, Connect, Connection
from portico.domain.ids import ExecutionId
from portico.domain.journal.events import STORED_EVENT_TYPES, LiveDelta, StoredEvent
from portico.domain.value import value

_CHANNEL = "portico"
_GATHER_S = 0.02
_RETRY_S = 1.0
RESPONSE_TIMEOUT_S = 5.0
_MAX_PAYLOAD_BYTES = 7_000
"""A NOTIFY payload must have less than 8,000 bytes."""
_MAX_QUEUED = 10_000
_GROWN, _CANCEL = "g", "c"


@value
class NotificationHandlers:
    """Callbacks for notifications of other replicas."""

    on_log_grown: Callable[[ExecutionId], None]
    on_cancel_requested: Callable[[], None]


class PostgresNotifications:
    """Implementation of the `EventSink` port; `run` is its only task. `is_alone` is true without other replicas."""

    def __init__(
        self, connect: Connect, is_alone: Callable[[], bool], *, response_timeout: float = RESPONSE_TIMEOUT_S
    ) -> None:
        """Create notifications that check the connection every `response_timeout` seconds."""
        self.wanted = STORED_EVENT_TYPES
        self._connect = connect
        self._is_alone = is_alone
        self._response_timeout = response_timeout
        self._queued: dict[str, None] = {}
        self._wake_up = anyio.Event()

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        if not self._is_alone():
            self._queue(_GROWN + execution_id)

    def notify_cancel(self, execution_id: ExecutionId) -> None:
        """Notify the owner of the execution that it is to be cancelled."""
        self._queue(_CANCEL + execution_id)

    async def run(self, handlers: NotificationHandlers) -> None:
        """Send and receive notifications until cancelled; reconnect after an error."""
        while True:
            try:
                await self._connect_and_run(handlers)
            except (*CONNECTION_ERRORS, asyncpg.PostgresError):
                await anyio.sleep(_RETRY_S)

    def _queue(self, message: str) -> None:
        if len(self._queued) < _MAX_QUEUED:
            self._queued[message] = None
            self._wake_up.set()

    async def _connect_and_run(self, handlers: NotificationHandlers) -> None:
        connection = await self._connect()
        try:
            await connection.add_listener(_CHANNEL, lambda *payload: _handle(handlers, str(payload[3])))
            handlers.on_cancel_requested()
            while not connection.is_closed():
                with anyio.move_on_after(self._response_timeout):
                    await self._wake_up.wait()
                await anyio.sleep(_GATHER_S)
                await self._send(connection)
        finally:
            connection.terminate()

    async def _send(self, connection: Connection) -> None:
        """Send queued notifications; an empty one checks that the server answers."""
        self._wake_up = anyio.Event()
        messages, size = [""], 0
        while self._queued and size < _MAX_PAYLOAD_BYTES:
            messages.append(next(iter(self._queued)))
            del self._queued[messages[-1]]
            size += len(messages[-1]) + 1
        if self._queued:
            self._wake_up.set()
        with anyio.fail_after(self._response_timeout):
            await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, " ".join(messages[1:]))


def _handle(handlers: NotificationHandlers, payload: str) -> None:
    for message in payload.split():
        if message[0] == _CANCEL:
            handlers.on_cancel_requested()
        else:
            handlers.on_log_grown(ExecutionId(message[1:]))
