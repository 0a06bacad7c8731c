"""Route of the live list of executions and suspensions."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.domain.failures import Code
from portico.entrypoints.http.change_stream import ChangeStreamResponse
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.openapi.responses import READ_FAILURES, change_stream_content, failures
from portico.entrypoints.http.parameters import ChangeQuery, readable_query
from portico.entrypoints.http.sse import STREAM_HEADERS

router = APIRouter(tags=["operations"], dependencies=[AUTHENTICATED])


@router.get(
    "/v1/events",
    operation_id="streamChanges",
    summary="Watch executions and suspensions",
    response_class=Response,
    response_description="What is unfinished, then what changes",
    status_code=200,
    responses={200: {"content": change_stream_content()}, **failures(*READ_FAILURES, Code.REQUEST_RATE_LIMITED)},
    dependencies=[Depends(readable_query)],
)
async def watch_changes(context: Context, query: Annotated[ChangeQuery, Query()]) -> Response:
    """Return a live list as server-sent events: every unfinished execution and open suspension that the caller may read
    (at most 1,000 of each, the newest executions), then `ready`, then what changes, on all replicas. Of one execution
    comes at most one frame in 250 ms, with its latest state; its end comes at once. Frames are `execution`,
    `suspension`, `removed` and `ready`. They have no number: a new connection begins again. A user may have 8 of them.
    """
    reader = await context.service.changes.watch(context.principal, query.session_id)
    return ChangeStreamResponse(
        reader,
        headers=(*STREAM_HEADERS, *context.correlate().headers()),
        is_permitted=context.permission_check,
    )
