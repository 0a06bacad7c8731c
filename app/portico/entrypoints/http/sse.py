"""The events of one execution as server-sent events, on raw ASGI.

Theory of operation

1. A stored event is a frame of `id:`, `event:` and `data:`; a delta has no number and so no `id:`. Frames that are
   ready together are sent together, and the frame that ends the execution also ends the response.
2. One task does everything. It sends what is queued already, batch by batch. From then on it waits for the client's
   disconnect, and is woken by new events and by the timer that breaks `SILENCE_SECONDS` without a frame. Sending to a
   server that has room never waits.
3. To a server without room, or one that does not tell, sending waits for up to `SEND_SECONDS`. The connection of a
   client that takes nothing for as long is aborted.
4. `on_disconnect` defines what a leaving client means. A reader that is dropped because its queue overflowed, or
   because it takes nothing, did not leave; the first gets a `retry:` line. An encoder that ends the stream before its
   events counts as a client that leaves.
5. A stream that ends without a final event, or while the service is stopping, ends with that line too.
6. The stream of a caller whose access can end asks every `PERMISSION_SECONDS` whether it has, and ends then, without
   that line. The execution goes on under the rights that it was admitted with.

Rejected: a second task that takes from the subscription and sends, which costs as much a chunk as reading it from the
provider; a timeout around each wait; sse-starlette and StreamingResponse, which cost a third more a chunk.
"""

from abc import ABC, abstractmethod
from asyncio import TimerHandle, get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import anyio
import orjson
from anyio.lowlevel import checkpoint
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from portico.domain.journal.events import (
    EVENT_FIELDS,
    RESTING_EVENTS,
    WIRE_NAMES,
    ConstraintRepaired,
    CorrelationContext,
    Event,
    FallbackTransition,
    InferenceStart,
    LiveDelta,
    LiveEvent,
    PassEnd,
    StepEnd,
    StepStart,
    StoredEvent,
    ToolContent,
    ToolProgress,
    ToolStart,
    ValidationEnd,
    format_timestamp,
)
from portico.entrypoints.http.correlation import Header
from portico.entrypoints.http.protocol import DisconnectListener, abort_connection, flow_control
from portico.ports.events import Subscription

SILENCE_SECONDS = 15.0
SEND_SECONDS = 20.0
PERMISSION_SECONDS = 1.0
"""Short enough for a revocation to end a stream within 5 seconds, together with the age of a key in memory."""
KEEP_ALIVE = b": keep-alive\n\n"
RETRY = b"retry: 1000\n\n"
STREAM_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_LIVE = b'event: %b\ndata: {"type":"%b",%b,"timestamp":"%b",%b\n\n'
_OBJECT = b'{"sequence_number":%d,"type":"%b",%b,"timestamp":"%b",%b'
_EVENT = b"id: %d\nevent: %b\ndata: " + _OBJECT + b"\n\n"


class EventEncoder(Protocol):
    """Encoder of one stream: the frames of its events, and its last words."""

    @property
    def is_over(self) -> bool:
        """True once the frames so far end the stream, although events may follow."""
        ...

    def encode(self, items: Sequence[StoredEvent | LiveDelta]) -> bytes:
        """Return the frames of these events, one after the other."""
        ...

    def end(self, items: Sequence[StoredEvent | LiveDelta], *, is_stopping: bool) -> bytes:
        """Return the frames of the last events that the subscription has, and what is said about how it ended."""
        ...

    def denied(self) -> bytes:
        """Return the last words to a reader who may not read any more."""
        ...


class FrameSource(Protocol):
    """Source of frames, which tells when there are more."""

    def notify(self, callback: Callable[[], None] | None) -> None:
        """Call back when there are more frames, or no more are to come."""
        ...

    def close(self) -> None:
        """End it. A second call has no effect."""
        ...


SourceT = TypeVar("SourceT", bound=FrameSource)


class FrameStreamResponse(Response, ABC, Generic[SourceT]):
    """The response to one reader of a source of frames. It closes the source."""

    media_type = "text/event-stream"
    needs_successor = False
    """True while the source has ended and another one has to follow it."""

    def __init__(
        self, source: SourceT, headers: Sequence[Header], is_permitted: Callable[[], Awaitable[bool]] | None
    ) -> None:
        """Prepare the response. `is_permitted` tells whether the client may still read; without it nothing changes."""
        self.status_code = 200
        self.background = None
        self.raw_headers = [*headers]
        self.ended = False
        self._source = source
        self._loop = get_running_loop()
        self._permission = None if is_permitted is None else PermissionCheck(is_permitted)
        self._sent_at = self._loop.time()
        self._silence_timer: TimerHandle | None = None

    @abstractmethod
    def next_data(self) -> bytes | None:
        """Return the frames that are queued, or a keep-alive that is due; None if there is neither.

        They are empty if the reader wants none of them. After the last ones the response has `ended`.
        """

    def left(self) -> None:
        """Act on a client that left before the end."""

    async def succeed(self, wake: Callable[[], None]) -> None:
        """Go on with the source that follows one which has ended, if a stream has several."""
        raise NotImplementedError

    def denied(self) -> bytes:
        """Return the last words to a reader who may not read any more."""
        return b""

    def due_keep_alive(self) -> bytes | None:
        """Return a keep-alive if nothing was sent for `SILENCE_SECONDS`."""
        return KEEP_ALIVE if self._loop.time() >= self._sent_at + SILENCE_SECONDS else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listener = DisconnectListener(scope, receive)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            self._source.notify(listener.wake)
            self._watch_silence(listener.wake)
            if self._permission is not None:
                self._permission.start(listener.wake)
            await self._send_events(scope, listener, send)
        finally:
            if self._silence_timer is not None:
                self._silence_timer.cancel()
            if self._permission is not None:
                self._permission.stop()
            self._source.notify(None)
            self._source.close()

    async def _send_events(self, scope: Scope, listener: DisconnectListener, send: Send) -> None:
        flow, has_caught_up = flow_control(scope), False
        while not self.ended:
            if self.needs_successor:
                await self.succeed(listener.wake)
            elif has_caught_up and await listener.wait():
                self.left()
                return
            if self._permission is not None and await self._permission.has_ended():
                await _is_sent_in_time(send, {"type": "http.response.body", "body": self.denied()})
                return
            data = self.next_data()
            if data is None:
                has_caught_up = True
                continue
            if not data and not self.ended:
                await checkpoint()
                continue
            message: Message = {"type": "http.response.body", "body": data, "more_body": not self.ended}
            if flow is not None and not flow.write_paused:
                await send(message)
            elif not await _is_sent_in_time(send, message):
                await abort_connection(scope, listener.receive)
                return
            self._sent_at = self._loop.time()
            if not has_caught_up:  # between the batches of a long log other tasks have their turn
                await checkpoint()

    def _watch_silence(self, wake: Callable[[], None]) -> None:
        """Wake the task if nothing was sent for `SILENCE_SECONDS`, and look again when that may be so."""
        now, due = self._loop.time(), self._sent_at + SILENCE_SECONDS
        if now >= due:
            wake()
            due = now + SILENCE_SECONDS
        self._silence_timer = self._loop.call_at(due, self._watch_silence, wake)


class EventStreamResponse(FrameStreamResponse[Subscription]):
    """The response to one reader of one execution. It closes the subscription."""

    def __init__(
        self,
        subscription: Subscription,
        encoder: EventEncoder,
        *,
        headers: Sequence[Header],
        is_stopping: Callable[[], bool],
        on_disconnect: Callable[[], None] | None = None,
        is_permitted: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare the response. `on_disconnect` is called if the client leaves before the end of the events, and if the
        encoder ends the stream before them.

        `is_permitted` tells whether the client may still read; without it, nothing changes that.
        """
        super().__init__(subscription, headers, is_permitted)
        self._is_stopping = is_stopping
        self._on_disconnect = on_disconnect
        self._encoder = encoder

    def next_data(self) -> bytes | None:
        items = self._source.take()
        self.ended = self._source.ended
        if not items and not self.ended:
            return self.due_keep_alive()
        if self.ended:
            return self._encoder.end(items, is_stopping=self._is_stopping())
        data = self._encoder.encode(items)
        if self._encoder.is_over:
            self.ended = True
            self.left()
        return data

    def left(self) -> None:
        if self._on_disconnect is not None:
            self._on_disconnect()

    def denied(self) -> bytes:
        return self._encoder.denied()


class PermissionCheck:
    """Repeated check whether the client may still read; between two checks it counts as permitted."""

    def __init__(self, is_permitted: Callable[[], Awaitable[bool]]) -> None:
        self._is_permitted = is_permitted
        self._is_due = False
        self._loop = get_running_loop()
        self._timer: TimerHandle | None = None

    def start(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever a check is due, until stopped."""
        self._timer = self._loop.call_later(PERMISSION_SECONDS, self._remind, wake)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def has_ended(self) -> bool:
        """Return True once a check that was due found that the client may no longer read."""
        if not self._is_due:
            return False
        self._is_due = False
        return not await self._is_permitted()

    def _remind(self, wake: Callable[[], None]) -> None:
        self._is_due = True
        self.start(wake)
        wake()


def event_objects(items: Sequence[StoredEvent]) -> list[orjson.Fragment]:
    """Return the events as the objects that are the `data` of their frames."""
    encoder = FrameEncoder()
    return [orjson.Fragment(encoder.object(item)) for item in items]


_NO_STEP_NAME = b',"step_name":null'
_OPTIONAL: Final = frozenset({"replica", "client", "pass_number", "deployment"})
"""Fields of events that are absent without a value."""
_WITH_OPTIONAL: Final = (
    *(FallbackTransition, InferenceStart, ToolStart, ConstraintRepaired),
    *(ValidationEnd, StepStart, StepEnd, PassEnd),
)
"""Events that have such fields."""


class FrameEncoder:
    """Encoder of events into frames of the contract. Ids that consecutive events share are encoded once.

    With `types` it leaves out all events but these.
    """

    is_over = False

    def __init__(self, types: frozenset[str] | None = None) -> None:
        self._types = types
        self._correlation: CorrelationContext | None = None
        self._ids = b""

    def object(self, item: StoredEvent) -> bytes:
        """Return one event as an object."""
        name, at = item.event.type.encode(), format_timestamp(item.at).encode()
        return _OBJECT % (item.sequence_number, name, self._ids_of(item), at, _event_fields(item.event))

    def _ids_of(self, item: StoredEvent) -> bytes:
        if item.correlation is not self._correlation:
            self._correlation = item.correlation
            self._ids = orjson.dumps(item.correlation)[1:-1].removesuffix(_NO_STEP_NAME)
        return self._ids

    def end(self, items: Sequence[StoredEvent | LiveDelta], *, is_stopping: bool) -> bytes:
        """Return the frames of the last events; with a `retry:` line if they do not end, or the service is stopping."""
        data = self.encode(items)
        if not (items and type(items[-1].event) in RESTING_EVENTS):
            return data + RETRY
        return RETRY + data if is_stopping else data

    def denied(self) -> bytes:
        """Return nothing."""
        return b""

    def encode(self, items: Sequence[StoredEvent | LiveDelta]) -> bytes:
        """Return the frames of these events, one after the other."""
        frames = []
        for item in items:
            if self._types is not None and item.event.type not in self._types:
                continue
            if item.correlation is not self._correlation:
                self._correlation = item.correlation
                self._ids = orjson.dumps(item.correlation)[1:-1].removesuffix(_NO_STEP_NAME)
            name, at = item.event.type.encode(), format_timestamp(item.at).encode()
            if isinstance(item, LiveDelta):
                frames.append(_LIVE % (name, name, self._ids, at, _live_fields(item.event)))
            else:
                number, fields = item.sequence_number, _event_fields(item.event)
                frames.append(_EVENT % (number, name, number, name, self._ids, at, fields))
        return b"".join(frames)


def _live_fields(delta: LiveEvent) -> bytes:
    """Return the live event's own fields as the rest of an object; a field without a value is absent."""
    if isinstance(delta, ToolContent):
        content: dict[str, object] = {"result": delta.result}
        if delta.result is None:
            content = {"arguments": delta.arguments}
        if delta.client:
            content["client"] = True
        return orjson.dumps({"tool_call_id": delta.tool_call_id, **content})[1:]
    if isinstance(delta, ToolProgress):
        return orjson.dumps(delta)[1:]
    fields: dict[str, object] = {"segment": delta.segment, "offset": delta.offset}
    if delta.text is not None:
        fields["text"] = delta.text
    elif delta.reasoning is not None:
        fields["reasoning"] = delta.reasoning
    else:
        fields["value"] = delta.value
    return orjson.dumps(fields)[1:]


def _event_fields(event: Event) -> bytes:
    """Return the event's own fields as the rest of an object; those in `_OPTIONAL` are absent without a value."""
    if isinstance(event, _WITH_OPTIONAL):
        named = {
            WIRE_NAMES.get(name, name): value
            for name in EVENT_FIELDS[type(event)]
            if ((value := getattr(event, name)) is not None and value is not False) or name not in _OPTIONAL
        }
        return orjson.dumps(named)[1:]
    return orjson.dumps(event, default=_model_json)[1:]


def _model_json(model: BaseModel) -> orjson.Fragment:
    return orjson.Fragment(model.model_dump_json(by_alias=True))


async def _is_sent_in_time(send: Send, message: Message) -> bool:
    """Send the message; return False if the client did not take it in time."""
    with anyio.move_on_after(SEND_SECONDS) as patience:
        await send(message)
    return not patience.cancelled_caught
