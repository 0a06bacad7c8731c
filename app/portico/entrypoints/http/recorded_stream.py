"""Streams of recorded answers: what runs in the background, and what is read on later.

An event tells that more is recorded; what it is has to be read. `RecordedEvents` hands an event on once the turns that
it tells of are read, so that a stream has one source and the encoder needs no wait.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
from starlette.types import Receive, Scope, Send

from portico.domain.contract.response import SystemError
from portico.domain.failures import Failure
from portico.domain.journal.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    InferenceEnd,
    InferenceStart,
    LiveDelta,
    StoredEvent,
)
from portico.domain.journal.header import ClientView
from portico.entrypoints.http.client_apis.errors import client_error
from portico.entrypoints.http.client_apis.responses.answer import ResponsesShown
from portico.entrypoints.http.client_apis.responses.recorded import RecordedAnswer, RecordedAnswers
from portico.entrypoints.http.client_apis.responses.recorded_frames import RecordedFrames
from portico.entrypoints.http.client_apis.stream import DENIED, DROPPED, STOPPING
from portico.entrypoints.http.correlation import Header
from portico.entrypoints.http.sse import EventStreamResponse
from portico.orchestration.facade import RecordedTurns
from portico.ports.events import Subscription

_TELLING: Final = (
    InferenceStart,
    InferenceEnd,
    ExecutionSuspended,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionCancelled,
)
"""Events after which there may be more to read."""


class RecordedEvents:
    """Implements `ports.events.Subscription` over another one, with the turns as they are recorded by then.

    `run` has to run while it is read.
    """

    def __init__(
        self, events: Subscription, first: RecordedTurns, read: Callable[[], Awaitable[RecordedTurns]]
    ) -> None:
        self.turns = first
        self._events = events
        self._read = read
        self._queue: list[StoredEvent | LiveDelta] = []
        self._has_ended = False
        self._callback: Callable[[], None] | None = None

    async def run(self) -> None:
        """Read until the events end. A failure to read ends them, too."""
        try:
            while items := await self._events.next():
                stored = [item for item in items if isinstance(item.event, _TELLING)]
                if stored:
                    self.turns = await self._read()
                    self._queue += stored
                    self._call_back()
        except Failure:
            self._events.close()
        self._has_ended = True
        self._call_back()

    async def next(self) -> Sequence[StoredEvent | LiveDelta]:
        """Wait for events and return all that are queued; none at the end."""
        while not self._queue and not self.ended:
            arrived = anyio.Event()
            self.notify(arrived.set)
            await arrived.wait()
        return self.take()

    def notify(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback

    def take(self) -> Sequence[StoredEvent | LiveDelta]:
        taken, self._queue = self._queue, []
        return taken

    @property
    def ended(self) -> bool:
        return self._has_ended and not self._queue

    @property
    def overflowed(self) -> bool:
        return self._events.overflowed

    def close(self) -> None:
        self._events.close()

    def _call_back(self) -> None:
        if self._callback is not None:
            self._callback()


class RecordedStream:
    """Implements `EventEncoder` for one recorded answer behind the number `after`."""

    def __init__(
        self, events: RecordedEvents, shown: ResponsesShown, view: ClientView, number: int, after: int
    ) -> None:
        self._events = events
        self._view = view
        self._number = number
        self._frames = RecordedFrames(self._answer(), shown, after)

    @property
    def is_over(self) -> bool:
        return self._frames.is_over

    def encode(self, items: Sequence[StoredEvent | LiveDelta]) -> bytes:
        """Return the frames of what is recorded by now; the events only tell that there may be more."""
        return self._frames.encode(self._answer()) if items else b""

    def end(self, items: Sequence[StoredEvent | LiveDelta], *, is_stopping: bool) -> bytes:
        """Return the last frames, and an error if the answer goes on."""
        data = self.encode(items)
        return data if self.is_over else data + self._failed(STOPPING if is_stopping else DROPPED)

    def denied(self) -> bytes:
        """Return the error for a reader who may not read any more."""
        return self._failed(DENIED)

    def _failed(self, failure: Failure) -> bytes:
        turns = self._events.turns
        failed = client_error(SystemError.of(failure), turns.header.request_id, has_acted=turns.has_acted)
        return self._frames.failed(failed)

    def _answer(self) -> RecordedAnswer:
        answer = RecordedAnswers(self._events.turns, self._view).answer(self._number)
        assert answer is not None  # noqa: S101 - an answer that was there once stays
        return answer


class RecordedStreamResponse(EventStreamResponse):
    """The response to one reader of a recorded answer."""

    def __init__(
        self,
        events: RecordedEvents,
        stream: RecordedStream,
        *,
        headers: Sequence[Header],
        is_stopping: Callable[[], bool],
        is_permitted: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        super().__init__(events, stream, headers=headers, is_stopping=is_stopping, is_permitted=is_permitted)
        self._recorded = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._recorded.run)
            await super().__call__(scope, receive, send)
            group.cancel_scope.cancel()
