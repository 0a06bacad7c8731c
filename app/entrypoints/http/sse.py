"""One execution's events as they happen, as server-sent events on raw ASGI.

Theory of operation

1. A recorded event is a frame of `id:`, `event:` and `data:`; a delta has no number and so no `id:`. Frames that wait
   together are sent together, and the frame that ends the execution ends the response with it.
2. One task listens for the client's leaving and for `SILENCE_SECONDS` without a word. What arrives meanwhile is sent
   past it, in one step and without waking it, as long as the server has room; that is the usual case by far.
3. Without room the task stops listening and sends, waiting at most `SEND_SECONDS` for a client that takes nothing.
   A server that does not say whether there is room is always sent to in that way.
4. What it means that a client leaves says whoever made the stream. A reader that we drop, because its queue
   overflowed or it takes nothing, did not leave; the first is told to come back with a `retry:` line, the second is
   cut off.
5. A stream that ends without a last event, and whatever ends while the service is stopping, gets that line too.

Refused: a task that takes from the subscription and sends, which costs as much a chunk as reading it upstream; a
timeout around each wait; sse-starlette and StreamingResponse, which cost a third more a chunk.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Sequence

import anyio
import orjson
from anyio.lowlevel import checkpoint
from pydantic import BaseModel
from starlette.types import Message, Receive, Scope, Send

from app.domain.journal.events import (
    EVENT_FIELDS,
    RESTING_EVENTS,
    ConstraintRepaired,
    CorrelationContext,
    Event,
    InferenceDelta,
    InferenceStart,
    LiveDelta,
    StoredEvent,
    ValidationEnd,
    format_timestamp,
)
from app.entrypoints.http.correlation import Header
from app.entrypoints.http.protocol import abort_connection, can_write
from app.ports.events import Subscription

SILENCE_SECONDS = 15.0
SEND_SECONDS = 20.0
KEEP_ALIVE = b": keep-alive\n\n"
RETRY = b"retry: 1000\n\n"
_DELTA = b'event: inference.delta\ndata: {"type":"inference.delta",%b,"timestamp":"%b",%b\n\n'
_EVENT = b'id: %d\nevent: %b\ndata: {"sequence_number":%d,"type":"%b",%b,"timestamp":"%b",%b\n\n'
_SENT = object()


def keep_running() -> None:
    """What it means for an execution that somebody leaves who only reads it."""


class EventStreamResponse:
    """The answer to one reader of one execution, as an ASGI application. It closes the subscription."""

    def __init__(
        self,
        subscription: Subscription,
        *,
        headers: Sequence[Header],
        stopping: Callable[[], bool],
        leave: Callable[[], None] = keep_running,
    ) -> None:
        """`stopping` says whether the service is about to end; `leave` is what follows when the client leaves early."""
        self._subscription = subscription
        self._headers = headers
        self._stopping = stopping
        self._leave = leave
        self._frames = FrameEncoder()
        self._loop = get_running_loop()
        self._sent_at = self._loop.time()
        self._scope: anyio.CancelScope | None = None
        self._woken = False
        self._over = False
        self._fault: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        self._has_room = can_write(scope)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*self._headers]})
            self._subscription.notify(self._wake)
            while not self._over:
                message = self._message() or self._keep_alive()
                if message is None:
                    if await self._client_leaves(receive):
                        break
                elif not await self._takes(message):
                    await abort_connection(scope, receive)
                    break
        finally:
            self._subscription.notify(None)
            self._subscription.close()

    async def _client_leaves(self, receive: Receive) -> bool:
        """Listens until the client leaves, which is True, or this task has to send or to end."""
        with anyio.CancelScope(deadline=self._sent_at + SILENCE_SECONDS) as self._scope:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not self._over:
                self._leave()
            return True
        self._scope = None
        if self._fault is not None:
            raise self._fault
        return False

    async def _takes(self, message: Message) -> bool:
        """Whether the client takes it in time. Others have their turn, for a server that has room does not wait."""
        with anyio.move_on_after(SEND_SECONDS) as patience:
            await self._send(message)
            await checkpoint()
        self._sent_at = self._loop.time()
        return not patience.cancelled_caught

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._arrived)

    def _arrived(self) -> None:
        """Sends what waits while the task listens. Behind the end of a response a server wakes it by itself [ASGI]."""
        self._woken = False
        if self._scope is None:
            return
        try:
            if self._has_room():
                self._send_at_once()
                return
        except Exception as fault:  # noqa: BLE001 - the task raises it, whose stream it breaks; the loop would only log it
            self._fault = fault
        self._scope.cancel()

    def _send_at_once(self) -> None:
        """Waiting for room is all that a server's `send` waits for."""
        message = self._message()
        if message is not None:
            self._sent_at = self._loop.time()
            if next(self._send(message).__await__(), _SENT) is not _SENT:
                raise RuntimeError("the server waits although it has room")

    def _message(self) -> Message | None:
        items = self._subscription.take()
        self._over = self._subscription.ended
        if not items and not self._over:
            return None
        data = self._frames.encode(items)
        if self._over and (not items or type(items[-1].event) not in RESTING_EVENTS or self._stopping()):
            data = RETRY + data
        return _body(data, more=not self._over)

    def _keep_alive(self) -> Message | None:
        silent = self._loop.time() >= self._sent_at + SILENCE_SECONDS
        return _body(KEEP_ALIVE) if silent and not self._over else None


_OUTSIDE_A_PLAN = b',"step_name":null'


class FrameEncoder:
    """Events as the contract frames them. The ids that an event shares with the one before are encoded once."""

    def __init__(self) -> None:
        self._correlation: CorrelationContext | None = None
        self._ids = b""

    def encode(self, items: Sequence[StoredEvent | LiveDelta]) -> bytes:
        """The frames of these events, one after the other."""
        return b"".join(map(self._frame, items))

    def _frame(self, item: StoredEvent | LiveDelta) -> bytes:
        if item.correlation is not self._correlation:
            self._correlation = item.correlation
            self._ids = orjson.dumps(item.correlation)[1:-1].removesuffix(_OUTSIDE_A_PLAN)
        at = format_timestamp(item.at).encode()
        if isinstance(item, LiveDelta):
            return _DELTA % (self._ids, at, _said(item.event))
        name, number = item.event.type.encode(), item.sequence_number
        return _EVENT % (number, name, number, name, self._ids, at, _fields(item.event))


def _said(delta: InferenceDelta) -> bytes:
    """The delta's own fields as the rest of an object; what it lacks is absent."""
    told = {"segment": delta.segment, "offset": delta.offset}
    if delta.text is not None:
        told["text"] = delta.text
    elif delta.reasoning is not None:
        told["reasoning"] = delta.reasoning
    else:
        told["value"] = delta.value
    return orjson.dumps(told)[1:]


def _fields(event: Event) -> bytes:
    """The event's own fields as the rest of an object; a replica is absent where there is none."""
    if isinstance(event, InferenceStart | ConstraintRepaired | ValidationEnd) and event.replica is None:
        return orjson.dumps({name: getattr(event, name) for name in EVENT_FIELDS[type(event)] if name != "replica"})[1:]
    return orjson.dumps(event, default=_value)[1:]


def _value(model: BaseModel) -> orjson.Fragment:
    return orjson.Fragment(model.model_dump_json(by_alias=True))


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
