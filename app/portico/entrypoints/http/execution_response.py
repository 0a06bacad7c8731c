"""Responses of executions: the whole response, an event stream, or the location of the execution."""

from asyncio import get_running_loop
from collections.abc import Callable

from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from portico.domain.contract.response import SystemResponse
from portico.domain.lifecycle import State
from portico.domain.value import replace, value
from portico.entrypoints.http.client_apis.stream import DENIED
from portico.entrypoints.http.context import RequestContext
from portico.entrypoints.http.correlation import Correlation, Header
from portico.entrypoints.http.errors import JSON, WholeResponse, retry_headers, status_of
from portico.entrypoints.http.exception_handlers import location_header
from portico.entrypoints.http.negotiation import ResponseKind
from portico.entrypoints.http.protocol import DisconnectListener
from portico.entrypoints.http.sse import (
    STREAM_HEADERS,
    EventEncoder,
    EventStreamResponse,
    FrameEncoder,
    PermissionCheck,
)
from portico.orchestration.facade import Accepted, CatchUpSubscription, ExecutionHandle, ExecutionView
from portico.ports.events import Subscription

PREFERENCE_APPLIED: Header = (b"preference-applied", b"respond-async")
REPLAYED: Header = (b"idempotency-replayed", b"true")
_RESPONSE = TypeAdapter(SystemResponse)
Show = Callable[..., WholeResponse]
"""Function that shows a response with its correlation and further headers."""


@value
class ExecutionResponder:
    """The responses to one request about an execution."""

    context: RequestContext
    kind: ResponseKind

    async def respond(self, handle: ExecutionHandle, on_disconnect: Callable[[], None] | None = None) -> Response:
        """Return the response of a running execution; its location if another replica continues it.

        `on_disconnect` is called if the client leaves before its end. Raises: ClientDisconnect; AccessFailure
        (ACCESS_UNAUTHENTICATED) if the client's access ends before that.
        """
        if self.kind is ResponseKind.LOCATION:
            return await self._accepted(handle)
        if handle.subscription is None:
            return await self.whole(handle, on_disconnect)
        return event_stream(
            self.context, handle.subscription, correlation_of(self.context, handle), on_disconnect=on_disconnect
        )

    async def existing(self, view: ExecutionView, *extra: Header) -> Response:
        """Return the response that an execution has already; its location if there is none."""
        if self.kind is ResponseKind.LOCATION or view.response is None:
            return self.accepted(view, self.correlation(view), *extra)
        correlation = self.correlation(view)
        with_suspensions = view.response.model_copy(update={"suspensions": view.suspensions})
        return system_response(with_suspensions, correlation, self._server_timing(0.0), *extra)

    async def stored_events(self, view: ExecutionView, *extra: Header) -> Response:
        """Return all events of an execution that has ended or is suspended."""
        log = await self.context.facade.executions.events(self.context.principal, view.request_id)
        correlation = self.correlation(view)
        return event_stream(self.context, CatchUpSubscription(log, 0, None), correlation, *extra)

    def accepted(self, view: ExecutionView, correlation: Correlation, *extra: Header) -> WholeResponse:
        """Return the location and the status of an execution."""
        location = location_header(view.request_id)
        headers = (JSON, *correlation.headers(), self._server_timing(0.0), location, PREFERENCE_APPLIED, *extra)
        return WholeResponse(202, view.model_dump_json(by_alias=True).encode(), headers)

    async def whole(
        self, handle: ExecutionHandle, on_disconnect: Callable[[], None] | None, show: Show | None = None
    ) -> WholeResponse:
        """Return the response of an execution once it has one, as `show` shows it. Raises: as `respond`."""
        listener = DisconnectListener(self.context.scope, self.context.receive)
        handle.add_done_callback(listener.wake)
        is_permitted = self.context.permission_check
        if is_permitted is None:
            has_left = await listener.wait()
        else:
            has_left = await _wait_while_permitted(handle, listener, on_disconnect, PermissionCheck(is_permitted))
        if has_left and handle.response is None:
            if on_disconnect is not None:
                on_disconnect()
            raise ClientDisconnect
        response = handle.response
        if response is not None:
            timing = self._server_timing(handle.upstream_ms)
            return (show or system_response)(response, correlation_of(self.context, handle), timing)
        if not self.context.is_stopping():
            raise RuntimeError("an execution ended without a response")
        return await self._accepted(handle)

    async def _accepted(self, handle: ExecutionHandle) -> WholeResponse:
        view = await self.context.facade.executions.show(self.context.principal, handle.request_id)
        return self.accepted(view, correlation_of(self.context, handle))

    def correlation(self, view: ExecutionView) -> Correlation:
        """Return the ids of an execution that has not been started by this request, with its trace if it is known."""
        fresh = self.context.correlate(view.request_id)
        if view.response is None or view.response.trace_id == fresh.trace_id:
            return fresh
        span_id = self.context.facade.new_id().replace("-", "")[-16:]
        return Correlation(fresh.request_id, view.response.trace_id, span_id)

    def _server_timing(self, upstream_ms: float) -> Header:
        total = (get_running_loop().time() - self.context.received_at) * 1000
        value = f"total;dur={total:.2f}, upstream;dur={upstream_ms:.2f}, overhead;dur={max(total - upstream_ms, 0):.2f}"
        return b"server-timing", value.encode()


async def _wait_while_permitted(
    handle: ExecutionHandle,
    listener: DisconnectListener,
    on_disconnect: Callable[[], None] | None,
    permission: PermissionCheck,
) -> bool:
    """Return True once the client has left, False once the execution is done. Raises: AccessFailure."""
    permission.start(listener.wake)
    try:
        while not await listener.wait():
            if handle.is_done:
                return False
            if await permission.has_ended() and not handle.is_done:
                if on_disconnect is not None:
                    on_disconnect()
                raise replace(DENIED)
        return True
    finally:
        permission.stop()


def system_response(response: SystemResponse, correlation: Correlation, *extra: Header) -> WholeResponse:
    """Return the response as JSON, with the status of its state or of its error."""
    error, headers = response.error, (*correlation.headers(), *extra)
    status = 202 if response.state is State.SUSPENDED else 200
    if error is not None:
        status, headers = status_of(error), (*headers, *retry_headers(error))
    return WholeResponse(status, _RESPONSE.serializer.to_json(response, by_alias=True), (JSON, *headers))


def event_stream(
    context: RequestContext,
    events: Subscription,
    correlation: Correlation,
    *extra: Header,
    on_disconnect: Callable[[], None] | None = None,
    encoder: EventEncoder | None = None,
) -> EventStreamResponse:
    """Return the events as they happen, as the encoder writes them.

    The Location header tells where they can be read again.
    """
    return EventStreamResponse(
        events,
        encoder or FrameEncoder(),
        headers=(*event_stream_headers(correlation), *extra),
        is_stopping=context.is_stopping,
        on_disconnect=on_disconnect,
        is_permitted=context.permission_check,
    )


def event_stream_headers(correlation: Correlation) -> tuple[Header, ...]:
    """Return the headers of a stream of events."""
    return (
        *STREAM_HEADERS,
        (b"location", b"/v1/executions/%b/events" % correlation.request_id.encode()),
        *correlation.headers(),
    )


def correlation_of(context: RequestContext, started: ExecutionHandle | Accepted) -> Correlation:
    """Return the ids of a started execution."""
    request_id = started.view.request_id if isinstance(started, Accepted) else started.request_id
    is_recorded = started.sampled and context.records_traces
    return Correlation(request_id, started.trace_id, started.root_span_id, is_recorded)
