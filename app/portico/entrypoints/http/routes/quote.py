"""`POST /v1/quote`: the upper bounds of one `SystemRequest`, without running it."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from portico.domain.contract.quote import Quote
from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.openapi.responses import TRACEPARENT, describe_body, failures

router = APIRouter(tags=["executions"], dependencies=[AUTHENTICATED])
QUOTE_REFUSALS = (
    *(Code.REQUEST_INVALID, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.REQUEST_OVERLOADED),
    *(Code.REQUEST_NOT_FOUND, Code.REQUEST_RESUME_UNEXPECTED, Code.REQUEST_RESUME_REQUIRED),
    *(Code.ACCESS_DENIED, Code.TOOL_NOT_FOUND, Code.ORCHESTRATION_BUDGET_EXCEEDED, Code.CONFIG_SCHEMA_REQUIRED),
    *(Code.CONFIG_SCHEMA_INVALID, Code.CONFIG_GRAMMAR_INVALID, Code.CONFIG_GRAMMAR_NOT_FOUND),
    *(Code.STORAGE_UNAVAILABLE, Code.ORCHESTRATION_INVALID_TRANSITION),
)
"""The refusals of a request before it is an execution, and internal errors."""


@router.post(
    "/v1/quote",
    operation_id="quote",
    summary="Compute the upper bounds of a request",
    response_model=Quote,
    response_description="The upper bounds",
    responses=failures(*QUOTE_REFUSALS),
    openapi_extra=describe_body(SystemRequest, TRACEPARENT),
)
async def quote(context: Context, body: Annotated[SystemRequest, json_body(SystemRequest)]) -> Response:
    """Return upper bounds that the state machines, the limits and the engines' context windows guarantee. Nothing
    runs. A request that execute would refuse before it starts is refused in the same way.
    """
    bounds = await context.facade.quote(body, context.principal)
    return context.object_response(bounds, request_id=body.request_id)
