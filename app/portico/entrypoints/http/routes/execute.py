"""`POST /v1/execute`: runs one `SystemRequest` and answers with its response, its events or its location."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import request_response

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.credentials import NO_CREDENTIALS
from portico.entrypoints.http.body import json_body, read_model
from portico.entrypoints.http.context import CREDENTIALS_KEY, Context, RequestContext, context_of, tool_credentials
from portico.entrypoints.http.execution_response import REPLAYED, ExecutionResponder, correlation_of
from portico.entrypoints.http.negotiation import ResponseKind, prefers_async, request_headers, response_kind
from portico.entrypoints.http.openapi.responses import (
    IDEMPOTENCY_KEY,
    PREFER,
    TRACEPARENT,
    describe_body,
    execution_responses,
)
from portico.entrypoints.http.parameters import parse_idempotency_key
from portico.orchestration.facade import Accepted, CallOptions, ExecutionView
from portico.ports.tracing import TRACE_KEY


class ExecuteRoute(APIRoute):
    """The route of `execute`, without FastAPI's solver of dependencies, which makes 80 calls a request.

    The annotations of the endpoint only describe it. Without dependencies it needs none of the stacks that FastAPI
    keeps for their ends as long as a response lasts, so its application is the one of Starlette.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = request_response(self.get_route_handler())

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint: Callable[[RequestContext, SystemRequest], Coroutine[Any, Any, Response]] = self.endpoint

        async def handle(request: Request) -> Response:
            context = context_of(request)
            return await endpoint(context, await read_model(context, SystemRequest))

        return handle


router = APIRouter(tags=["executions"], route_class=ExecuteRoute)


@router.post(
    "/v1/execute",
    operation_id="execute",
    summary="Run one request",
    response_model=SystemResponse,
    responses=execution_responses("The execution completed", "The execution is suspended"),
    openapi_extra=describe_body(SystemRequest, TRACEPARENT, PREFER, IDEMPOTENCY_KEY),
)
async def execute(context: Context, body: Annotated[SystemRequest, json_body(SystemRequest)]) -> Response:
    """Answer with the response; with events as they happen for `Accept: text/event-stream`; or at once for
    `Prefer: respond-async`, `background` or `run_at`, the time at which it starts. `on_disconnect` defines what
    happens when the client leaves.
    """
    context.shows_limits = True
    headers = request_headers(context.scope)
    is_async = prefers_async(headers)
    in_background = is_async or body.background or body.run_at is not None
    responder = ExecutionResponder(context, response_kind(headers, background=in_background))
    has_trace = headers.traceparent or TRACE_KEY in context.scope
    trace_id, parent_span_id, sampled = context.trace if has_trace else (None, None, None)
    options = CallOptions(
        trace_id=trace_id,
        parent_span_id=parent_span_id,
        sampled=sampled,
        subscribe=responder.kind is ResponseKind.EVENTS,
        idempotency_key=parse_idempotency_key(headers.idempotency_key) if headers.idempotency_key else None,
        background=is_async,
        authentication_ms=context.authentication_ms,
        credentials=tool_credentials(context) if CREDENTIALS_KEY in context.scope else NO_CREDENTIALS,
    )
    started = await context.facade.execute(body, context.principal, options)
    if isinstance(started, Accepted):
        return responder.accepted(started.view, correlation_of(context, started))
    if isinstance(started, ExecutionView):
        return await _repeat(responder, started)
    return await responder.respond(started, None if started.outlives_client else started.cancel)


async def _repeat(responder: ExecutionResponder, first: ExecutionView) -> Response:
    """Return the response of the first request with the same idempotency key."""
    if responder.kind is ResponseKind.EVENTS and first.response is not None:
        return await responder.stored_events(first, REPLAYED)
    return await responder.existing(first, REPLAYED)
