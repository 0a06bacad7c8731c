"""The three forms in which an execution is answered: by its response, by its events, or by where it is to be found.

Where a client asks for events and for `respond-async` it gets events: they begin at once, and a preference may be left
unheeded [RFC 7240]. The execution is one in the background all the same, so that it outlives its client.
"""

import re
from asyncio import get_running_loop
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import anyio
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Receive, Scope, Send

from app.bootstrap.service import Service
from app.domain.access import LOCAL
from app.domain.contract.response import SystemResponse
from app.domain.failures import Code, RequestFailure
from app.domain.lifecycle import State
from app.entrypoints.http.body_handler import location_header, refusal
from app.entrypoints.http.correlation import Correlation, Header, correlate
from app.entrypoints.http.errors import JSON, WholeResponse, retry_headers, status_of
from app.entrypoints.http.protocol import waker
from app.entrypoints.http.sse import EventStreamResponse
from app.orchestration.facade import CatchUpSubscription, ExecutionHandle, ExecutionView
from app.ports.events import Subscription

APPLIED: Header = (b"preference-applied", b"respond-async")
REPLAYED: Header = (b"idempotency-replayed", b"true")
_RESPONSE = TypeAdapter(SystemResponse)
_UNWANTED = re.compile(rb";q=0(\.0*)?(;|$)")


class ResponseKind(Enum):
    """What a client wants to be answered with."""

    RESPONSE = auto()
    EVENTS = auto()
    LOCATION = auto()


def response_kind(scope: Scope, *, background: bool = False) -> ResponseKind:
    """The form that the headers ask for; `background` is what the body says."""
    if _wants_events(list_header(scope, b"accept")):
        return ResponseKind.EVENTS
    return ResponseKind.LOCATION if background or prefers_async(scope) else ResponseKind.RESPONSE


def prefers_async(scope: Scope) -> bool:
    """Whether the client prefers not to wait."""
    preferences = list_header(scope, b"prefer").lower().split(b",")
    return any(each.partition(b";")[0].strip() == b"respond-async" for each in preferences)


def list_header(scope: Scope, name: bytes) -> bytes:
    """A header whose value is a list, which may come in several lines; the name is lower case."""
    return b",".join([value for key, value in scope["headers"] if key == name])


@dataclass(frozen=True, slots=True)
class Responder:
    """How one request is answered. `began` is when it came, by the loop's clock."""

    service: Service
    scope: Scope
    kind: ResponseKind
    began: float

    async def respond(self, running: ExecutionHandle, leave: Callable[[], None]) -> ASGIApp:
        """The answer of an execution that runs; a client that leaves before its end does `leave`."""
        if self.kind is ResponseKind.LOCATION:
            return self.accepted(await self.service.facade.executions.show(LOCAL.tenant, running.request_id))
        if running.subscription is None:
            return AwaitedResponse(self, running, leave)
        return self._followed(running, running.subscription, leave)

    async def existing(self, view: ExecutionView, *extra: Header) -> ASGIApp:
        """The answer of one that this request did not start: the response that it has."""
        if self.kind is ResponseKind.LOCATION or view.response is None:
            return self.accepted(view, *extra)
        ids = self._ids(view.request_id, view.response)
        open_questions = view.response.model_copy(update={"suspensions": view.suspensions})
        return json_response(open_questions, *ids.headers(), self.server_timing(0.0), *extra)

    def event_stream(self, view: ExecutionView, events: Subscription) -> EventStreamResponse:
        """The events of one that does not run here, as they come."""
        ids = correlate(self.scope, self.service.facade.new_id, view.request_id)
        return EventStreamResponse(events, headers=stream_headers(ids), stopping=self.stopping)

    async def stored_event_stream(self, view: ExecutionView, response: SystemResponse, *extra: Header) -> ASGIApp:
        """All events of one that ended or is suspended."""
        log = await self.service.facade.executions.events(LOCAL.tenant, view.request_id)
        kept = CatchUpSubscription(log, 0, None)
        headers = stream_headers(self._ids(view.request_id, response), *extra)
        return EventStreamResponse(kept, headers=headers, stopping=self.stopping)

    def stopping(self) -> bool:
        """Whether the service is about to end."""
        return not self.service.readiness().ready

    def server_timing(self, upstream_ms: float) -> Header:
        """How long it took until now, and who took it."""
        total = (get_running_loop().time() - self.began) * 1000
        value = f"total;dur={total:.2f}, upstream;dur={upstream_ms:.2f}, overhead;dur={max(total - upstream_ms, 0):.2f}"
        return b"server-timing", value.encode()

    def accepted(self, view: ExecutionView, *extra: Header) -> WholeResponse:
        """Where it is to be found."""
        ids = correlate(self.scope, self.service.facade.new_id, view.request_id)
        headers = (JSON, *ids.headers(), self.server_timing(0.0), location_header(view.request_id), APPLIED, *extra)
        return WholeResponse(202, view.model_dump_json(by_alias=True).encode(), headers)

    def _followed(
        self, running: ExecutionHandle, subscription: Subscription, leave: Callable[[], None]
    ) -> EventStreamResponse:
        headers = stream_headers(correlation_of(running))
        return EventStreamResponse(subscription, headers=headers, stopping=self.stopping, leave=leave)

    def _ids(self, request_id: str, response: SystemResponse) -> Correlation:
        fresh = correlate(self.scope, self.service.facade.new_id, request_id)
        return Correlation(request_id, response.trace_id, fresh.span_id)


class AwaitedResponse:
    """The answer of a request that waits for the whole response, as an ASGI application.

    A client that leaves before gets none. An execution that goes on elsewhere, since the service stops, has none yet.
    """

    def __init__(self, answering: Responder, running: ExecutionHandle, leave: Callable[[], None]) -> None:
        self._answering = answering
        self._running = running
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._client_leaves(scope, receive):
            self._leave()
            return
        await self._answer(scope)(scope, receive, send)

    async def _client_leaves(self, scope: Scope, receive: Receive) -> bool:
        """Listens until the client leaves, which is True, or the execution is done.

        A task that is cancelled costs five times what one costs that is woken, so that is for other servers.
        """
        wake = waker(scope)
        if wake is not None:
            return await self._listen(receive, wake)
        with anyio.CancelScope() as listening:
            return await self._listen(receive, listening.cancel)
        return False

    async def _listen(self, receive: Receive, wake: Callable[[], None]) -> bool:
        done = False

        def end() -> None:
            nonlocal done
            done = True
            wake()

        self._running.add_done_callback(end)
        while not done:
            if (await receive())["type"] == "http.disconnect":
                return self._running.response is None
        return False

    def _answer(self, scope: Scope) -> WholeResponse:
        running = self._running
        if running.response is not None:
            timing = self._answering.server_timing(running.upstream_ms)
            return json_response(running.response, *correlation_of(running).headers(), timing)
        if not self._answering.stopping():
            raise RuntimeError("an execution ended without a response")
        stopped = "this replica is stopping, another one goes on with the execution"
        details = {"request_id": running.request_id}
        left = RequestFailure(Code.REQUEST_SHUTTING_DOWN, stopped, details, retry_after=1.0)
        return refusal(scope, left, running.request_id)


def json_response(response: SystemResponse, *headers: Header) -> WholeResponse:
    """The response, with the status that its state or its error has."""
    error = response.error
    status = 202 if response.state is State.SUSPENDED else 200
    if error is not None:
        status, headers = status_of(error), (*headers, *retry_headers(error))
    return WholeResponse(status, _RESPONSE.serializer.to_json(response, by_alias=True), (JSON, *headers))


def correlation_of(running: ExecutionHandle) -> Correlation:
    """What an execution's own answer is known by."""
    return Correlation(running.request_id, running.trace_id, running.root_span_id)


def stream_headers(ids: Correlation, *extra: Header) -> tuple[Header, ...]:
    """The headers of an event stream, which says where it can be read again."""
    return (
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        (b"location", b"/v1/executions/%b/events" % ids.request_id.encode()),
        *ids.headers(),
        *extra,
    )


def _wants_events(accepted: bytes) -> bool:
    """Whether the client accepts an event stream; whatever else it accepts is answered with JSON."""
    if b"text/event-stream" not in accepted.lower():
        return False
    ranges = (part.replace(b" ", b"").lower() for part in accepted.split(b","))
    return any(kind.split(b";")[0] == b"text/event-stream" and not _UNWANTED.search(kind) for kind in ranges)
