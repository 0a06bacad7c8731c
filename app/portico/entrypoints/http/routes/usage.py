"""Route of usage: tokens, cost and executions by day, key, user, agent or model."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.openapi import READ_FAILURES, Collection, failures
from portico.entrypoints.http.parameters import UsageQuery
from portico.orchestration.facade import UsageView

router = APIRouter(dependencies=[AUTHENTICATED])


@router.get(
    "/v1/usage",
    operation_id="usage",
    summary="Add up usage",
    response_model=Collection[UsageView],
    responses=failures(*READ_FAILURES),
)
async def show_usage(context: Context, query: Annotated[UsageQuery, Query()]) -> Response:
    """Return the caller's tokens, cost and executions in groups; with `can_view_tenant` those of the whole tenant. An
    attempt is counted within five seconds of its end.
    """
    found = await context.facade.usage.read(context.principal, query.by, since=query.since, until=query.until)
    data = [orjson.Fragment(view.model_dump_json(exclude_unset=True)) for view in found]
    return context.json_response(orjson.dumps({"data": data}))
