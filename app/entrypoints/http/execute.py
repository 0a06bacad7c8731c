"""`POST /v1/execute`: one `SystemRequest` in; its `SystemResponse`, or its events as they happen, out.

A raw ASGI application and not a FastAPI endpoint: the body is read by stricter rules than FastAPI's, and somebody has
to listen for the client's leaving while the execution runs in its own task.
"""

import re
from asyncio import get_running_loop
from collections.abc import Callable, Mapping

import anyio
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Receive, Scope, Send

from app.bootstrap import Service
from app.domain.access import LOCAL
from app.domain.boundary import SystemRequest, SystemResponse
from app.domain.lifecycle import State
from app.entrypoints.http.correlation import Correlation, Header, parent_of
from app.entrypoints.http.errors import JSON, Answer, advice, status_of
from app.entrypoints.http.sse import EventStream
from app.entrypoints.http.taking import taken
from app.orchestration.facade import Running

_RESPONSE = TypeAdapter(SystemResponse)
_UNWANTED = re.compile(rb";q=0(\.0*)?(;|$)")


class Execute:
    """The route, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs one request and answers it, unless the client left first."""
        service: Service = scope["app"].state.service
        began = get_running_loop().time()

        async def started(request: SystemRequest) -> ASGIApp:
            return _answer(service, await _start(service, request, scope), began)

        answer = await taken(scope, receive, started)
        if answer is not None:
            await answer(scope, receive, send)


class Outcome:
    """The answer of a request that waits for the whole response, as an ASGI application.

    A client that leaves before cancels the execution and gets none.
    """

    def __init__(self, running: Running, began: float) -> None:
        self._running = running
        self._began = began

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._client_leaves(receive):
            self._running.cancel()
            return
        response = self._running.response
        if response is None:
            raise RuntimeError("an execution ended without a response")
        await self._answer(response)(scope, receive, send)

    async def _client_leaves(self, receive: Receive) -> bool:
        """Listens until the client leaves, which is True, or the execution is done.

        The cancel is handed to the loop because a scope that a task cancels spends 20 µs on writing down who did it.
        """
        with anyio.CancelScope() as listening:
            self._running.when_done(lambda: _soon(listening.cancel))
            while (await receive())["type"] != "http.disconnect":
                pass
            return self._running.response is None
        return False

    def _answer(self, response: SystemResponse) -> Answer:
        running, error = self._running, response.error
        ids = Correlation(running.request_id, running.trace_id, running.root_span_id)
        headers = (JSON, *ids.headers(), self._timing(), *(() if error is None else advice(error)))
        status = 202 if response.state is State.SUSPENDED else 200
        if error is not None:
            status = status_of(error)
        return Answer(status, _RESPONSE.dump_json(response, by_alias=True), headers)

    def _timing(self) -> Header:
        total = (get_running_loop().time() - self._began) * 1000
        upstream = self._running.upstream_ms
        value = f"total;dur={total:.2f}, upstream;dur={upstream:.2f}, overhead;dur={max(total - upstream, 0):.2f}"
        return b"server-timing", value.encode()


async def _start(service: Service, request: SystemRequest, scope: Scope) -> Running:
    trace_id, parent_span_id = parent_of(scope)
    watch = _wants_events(dict(scope["headers"]))
    return await service.facade.execute(request, LOCAL, trace_id=trace_id, parent_span_id=parent_span_id, watch=watch)


def _answer(service: Service, running: Running, began: float) -> ASGIApp:
    if running.subscription is None:
        return Outcome(running, began)
    return EventStream(running, running.subscription, stopping=lambda: not service.readiness().ready)


def _soon(callback: Callable[[], None]) -> None:
    get_running_loop().call_soon(callback)


def _wants_events(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the client accepts an event stream; whatever else it accepts is answered with JSON."""
    accepted = headers.get(b"accept", b"")
    if b"text/event-stream" not in accepted.lower():
        return False
    ranges = (part.replace(b" ", b"").lower() for part in accepted.split(b","))
    return any(kind.split(b";")[0] == b"text/event-stream" and not _UNWANTED.search(kind) for kind in ranges)
