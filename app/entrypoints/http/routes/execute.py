"""`POST /v1/execute`: one `SystemRequest` in; its `SystemResponse`, its events as they happen, or its place, out.

A raw ASGI application and not a FastAPI endpoint: the body is read by stricter rules than FastAPI's, and somebody has
to listen for the client's leaving while the execution runs in its own task.
"""

import re
from asyncio import get_running_loop

from starlette.types import ASGIApp, Receive, Scope, Send

from app.bootstrap.service import Service
from app.domain.access import LOCAL
from app.domain.contract.request import SystemRequest
from app.domain.failures import Code, RequestFailure
from app.domain.ids import IdempotencyKey
from app.entrypoints.http.body_handler import with_json_body
from app.entrypoints.http.correlation import caller_trace
from app.entrypoints.http.negotiation import REPLAYED, Responder, ResponseKind, prefers_async, response_kind
from app.entrypoints.http.sse import keep_running
from app.orchestration.facade import Accepted, CallOptions, ExecutionView

IDEMPOTENCY_KEY = "Idempotency-Key"
_KEY = re.compile(rb"[!-~]{1,255}")


class ExecuteRoute:
    """The route, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs one request and answers it, unless the client left first."""
        service: Service = scope["app"].state.service
        began = get_running_loop().time()

        async def started(request: SystemRequest) -> ASGIApp:
            answering = Responder(service, scope, response_kind(scope, background=request.background), began)
            found = await service.facade.execute(request, LOCAL, _calling(answering))
            if isinstance(found, Accepted):
                return answering.accepted(found.view)
            if isinstance(found, ExecutionView):
                return await _again(answering, found)
            return await answering.respond(found, keep_running if found.outlives_client else found.cancel)

        answer = await with_json_body(scope, receive, model=SystemRequest, answer=started)
        if answer is not None:
            await answer(scope, receive, send)


def _calling(answering: Responder) -> CallOptions:
    trace_id, parent_span_id = caller_trace(answering.scope)
    return CallOptions(
        trace_id=trace_id,
        parent_span_id=parent_span_id,
        subscribe=answering.kind is ResponseKind.EVENTS,
        idempotency_key=_idempotency_key(answering.scope),
        background=prefers_async(answering.scope),
    )


async def _again(answering: Responder, first: ExecutionView) -> ASGIApp:
    """What the first request of that key was answered."""
    if answering.kind is ResponseKind.EVENTS and first.response is not None:
        return await answering.stored_event_stream(first, first.response, REPLAYED)
    return await answering.existing(first, REPLAYED)


def _idempotency_key(scope: Scope) -> IdempotencyKey | None:
    """Raises: RequestFailure (REQUEST_INVALID) for what cannot be one."""
    given: list[bytes] = [value for key, value in scope["headers"] if key == b"idempotency-key"]
    if not given:
        return None
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        what = "must be given once, as 1 to 255 visible ASCII characters"
        errors = [{"field": IDEMPOTENCY_KEY, "message": what}]
        raise RequestFailure(Code.REQUEST_INVALID, f"{IDEMPOTENCY_KEY} {what}", {"errors": errors})
    return IdempotencyKey(given[0].decode())
