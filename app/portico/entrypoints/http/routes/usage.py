"""Routes of figures: usage by day, key, user, agent or model, and executions by state and duration over time."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Collection, failures
from portico.entrypoints.http.parameters import StatisticsQuery, UsageQuery, readable_query
from portico.orchestration.facade import StatisticsView, UsageView

router = APIRouter(dependencies=[AUTHENTICATED])


@router.get(
    "/v1/usage",
    operation_id="getUsage",
    tags=["usage"],
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


@router.get(
    "/v1/stats",
    operation_id="getStatistics",
    tags=["operations"],
    summary="Count executions over time",
    response_model=StatisticsView,
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(readable_query)],
)
async def show_statistics(context: Context, query: Annotated[StatisticsQuery, Query()]) -> Response:
    """Return the stored executions that the caller may read, by the bucket of their creation: how many are in which
    state now, and how long those ran that have ended. A result may be a second old.
    """
    return context.object_response(await context.facade.records.statistics.read(context.principal, query.selection))
