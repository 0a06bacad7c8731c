"""`POST /v1/execute`: runs one `SystemRequest` and answers with its response, its events or its location."""

from typing import Annotated

from fastapi import APIRouter, Request
from starlette.responses import Response

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import SECURED, context_of
from portico.entrypoints.http.execution_response import REPLAYED, ExecutionResponder, correlation_of
from portico.entrypoints.http.negotiation import ResponseKind, prefers_async, response_kind
from portico.entrypoints.http.openapi import IDEMPOTENCY_KEY, PREFER, TRACEPARENT, describe_body, execution_responses
from portico.entrypoints.http.parameters import idempotency_key
from portico.orchestration.facade import Accepted, CallOptions, ExecutionView

router = APIRouter()  # reading the body authenticates the caller; another dependency would cost 11 µs


@router.post(
    "/v1/execute",
    operation_id="execute",
    summary="Run one request",
    response_model=SystemResponse,
    responses=execution_responses("The execution completed", "The execution is suspended"),
    openapi_extra={**describe_body(SystemRequest, TRACEPARENT, PREFER, IDEMPOTENCY_KEY), **SECURED},
)
async def execute(
    request: Request,
    body: Annotated[SystemRequest, json_body(SystemRequest)],
) -> Response:
    """Answer with the response; with events as they happen for `Accept: text/event-stream`; or at once for
    `Prefer: respond-async` or `background`. `on_disconnect` defines what happens when the client leaves.
    """
    context = context_of(request)  # as a dependency it would cost another 15 µs
    context.shows_limits = True
    scope, facade = context.scope, context.facade
    responder = ExecutionResponder(context, response_kind(scope, background=body.background))
    is_async = prefers_async(scope)
    trace_id, parent_span_id, sampled = context.trace
    options = CallOptions(
        trace_id=trace_id,
        parent_span_id=parent_span_id,
        sampled=sampled,
        subscribe=responder.kind is ResponseKind.EVENTS,
        idempotency_key=idempotency_key(scope),
        background=is_async,
        authentication_ms=context.authentication_ms,
    )
    started = await facade.execute(body, context.principal, options)
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
