"""One execution's events as they happen, as server-sent events on raw ASGI.

Theory of operation

1. A recorded event is a frame of `id:`, `event:` and `data:`; a delta has no number and so no `id:`. Frames that wait
   together are sent together, and the frame that ends the execution ends the response with it.
2. The writer only takes from the subscription and sends. All that is rare has a second task beside it, the attendant:
   the client's leaving, a comment after `SILENCE_SECONDS` without a word, and the end of patience with a client that
   takes nothing for `SEND_SECONDS`. They share one timestamp, so a frame costs no timer.
3. A client that leaves cancels the execution. A reader that we drop, because its queue overflowed or it takes
   nothing, does not; the first is told to come back with a `retry:` line, the second is cut off.
4. A subscription that ends without a last event, and whatever ends while the service is stopping, gets that line too.

Refused: a timeout around each wait for the next event, which costs more than the frame it waits for; sse-starlette and
StreamingResponse, which cost a third more a chunk.
"""

from asyncio import get_running_loop
from collections.abc import Callable, Sequence

import anyio
import orjson
from anyio.abc import TaskGroup
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from app.domain.events import LAST, Live, Recorded, wire
from app.entrypoints.http.correlation import Correlation
from app.entrypoints.http.limits import cut_off
from app.orchestration.facade import Running
from app.ports import Subscription

SILENCE_SECONDS = 15.0
SEND_SECONDS = 20.0
KEEP_ALIVE = b": keep-alive\n\n"
RETRY = b"retry: 1000\n\n"


class EventStream:
    """The answer to one reader of one running execution, as an ASGI application. It closes the subscription."""

    def __init__(self, running: Running, subscription: Subscription, *, stopping: Callable[[], bool]) -> None:
        """`stopping` says whether the service is about to end."""
        self._running = running
        self._subscription = subscription
        self._stopping = stopping
        self._now = get_running_loop().time
        self._touched_at = self._now()
        self._sending = False
        self._cut_off = False
        self._over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._running.when_done(self._end_without_response)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers()})
            async with anyio.create_task_group() as group:
                group.start_soon(self._attend, receive, send, group)
                await self._write(send)
                group.cancel_scope.cancel()
        finally:
            self._subscription.close()
        if self._cut_off:
            await cut_off(scope, receive)

    async def _write(self, send: Send) -> None:
        while not self._over:
            await self._put(send, self._frames(await self._subscription.next()))

    def _frames(self, items: Sequence[Recorded | Live]) -> bytes:
        self._over = not items or type(items[-1].event) in LAST
        data = b"".join([frame(item) for item in items])
        return RETRY + data if self._over and (not items or self._stopping()) else data

    async def _put(self, send: Send, data: bytes) -> None:
        self._touched_at = self._now()
        self._sending = True
        await send({"type": "http.response.body", "body": data, "more_body": not self._over})
        self._sending = False

    async def _attend(self, receive: Receive, send: Send, group: TaskGroup) -> None:
        while True:
            with anyio.move_on_after(self._patience()):
                if (await receive())["type"] == "http.disconnect":
                    self._client_left()
                    break
            if self._patience() > 0:
                continue
            if self._sending:
                self._cut_off = True
                break
            self._touched_at = self._now()
            group.start_soon(self._keep_alive, send)
        group.cancel_scope.cancel()

    async def _keep_alive(self, send: Send) -> None:
        if not self._over:
            await self._put(send, KEEP_ALIVE)

    def _client_left(self) -> None:
        """Also said by a server once everything was sent, which cancels nothing."""
        if not self._over:
            self._running.cancel()

    def _end_without_response(self) -> None:
        """A bug ended the execution: no last event comes."""
        if self._running.response is None:
            self._subscription.close()

    def _patience(self) -> float:
        """Seconds until the attendant has to act."""
        return self._touched_at + (SEND_SECONDS if self._sending else SILENCE_SECONDS) - self._now()

    def _headers(self) -> list[tuple[bytes, bytes]]:
        running = self._running
        return [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            (b"location", b"/v1/executions/%b/events" % running.request_id.encode()),
            *Correlation(running.request_id, running.trace_id, running.root_span_id).headers(),
        ]


def frame(item: Recorded | Live) -> bytes:
    """One event as the contract frames it."""
    data = orjson.dumps(wire(item), default=_value)
    name = item.event.type.encode()
    if isinstance(item, Live):
        return b"event: %b\ndata: %b\n\n" % (name, data)
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (item.sequence_number, name, data)


def _value(model: BaseModel) -> orjson.Fragment:
    return orjson.Fragment(model.model_dump_json(by_alias=True))
