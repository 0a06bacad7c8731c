"""What replicas on one PostgreSQL tell each other at once: which logs have grown, and what is to be cancelled.

A word may be lost, with a connection or with whoever said it: everybody looks at the tables from time to time as well.
Words wait for each other a little, so that a busy replica says many at once; the bus of a replica that is alone says
none. It is a sink of the bus, which publishes what is committed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
import asyncpg

from app.adapters.stores.postgres import CONNECTION_ERRORS, Connect, Connection
from app.domain.ids import ExecutionId
from app.domain.journal.events import LiveDelta, StoredEvent

_CHANNEL = "portico"
_GATHER_S = 0.02
_RETRY_S = 1.0
_ANSWERS_WITHIN_S = 5.0
_MOST_BYTES = 7_000
"""PostgreSQL takes less than 8,000 in one word."""
_WAITING = 10_000
_GROWN, _CANCEL = "g", "c"


@dataclass(frozen=True, slots=True)
class NotificationHandlers:
    """Who is told what the other replicas say."""

    on_log_grown: Callable[[ExecutionId], None]
    on_cancel_requested: Callable[[], None]


class PostgresNotifications:
    """Implements `ports.EventSink`; `run` is its only task. `alone` says whether there is nobody to tell."""

    def __init__(self, connect: Connect, alone: Callable[[], bool]) -> None:
        self._connect = connect
        self._alone = alone
        self._waiting: dict[str, None] = {}
        self._something = anyio.Event()

    def publish(self, execution_id: ExecutionId, items: Sequence[StoredEvent | LiveDelta]) -> None:
        if type(items[-1]) is not LiveDelta and not self._alone():
            self._say(_GROWN + execution_id)

    def notify_cancel(self, execution_id: ExecutionId) -> None:
        """Tells its owner that it is to be cancelled."""
        self._say(_CANCEL + execution_id)

    async def run(self, heard: NotificationHandlers) -> None:
        """Says and hears until it is cancelled; over a connection that broke, or was refused a word, nothing more."""
        while True:
            try:
                await self._converse(heard)
            except (*CONNECTION_ERRORS, asyncpg.PostgresError):
                await anyio.sleep(_RETRY_S)

    def _say(self, word: str) -> None:
        if len(self._waiting) < _WAITING:
            self._waiting[word] = None
            self._something.set()

    async def _converse(self, heard: NotificationHandlers) -> None:
        connection = await self._connect()
        try:
            await connection.add_listener(_CHANNEL, lambda *told: _hear(heard, str(told[3])))
            heard.on_cancel_requested()
            while not connection.is_closed():
                with anyio.move_on_after(_ANSWERS_WITHIN_S):
                    await self._something.wait()
                await anyio.sleep(_GATHER_S)
                await self._tell(connection)
        finally:
            connection.terminate()

    async def _tell(self, connection: Connection) -> None:
        """Says what waits; an empty word finds out whether anybody is there."""
        self._something = anyio.Event()
        words, size = [""], 0
        while self._waiting and size < _MOST_BYTES:
            words.append(next(iter(self._waiting)))
            del self._waiting[words[-1]]
            size += len(words[-1]) + 1
        if self._waiting:
            self._something.set()
        with anyio.fail_after(_ANSWERS_WITHIN_S):
            await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, " ".join(words[1:]))


def _hear(heard: NotificationHandlers, told: str) -> None:
    for word in told.split():
        if word[0] == _CANCEL:
            heard.on_cancel_requested()
        else:
            heard.on_log_grown(ExecutionId(word[1:]))
