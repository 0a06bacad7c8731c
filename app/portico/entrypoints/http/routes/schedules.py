"""Routes of schedules: list, store, show and delete them, list their runs, and run one now."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Page, describe_body, failures
from portico.entrypoints.http.parameters import (
    OwnSchedule,
    ScheduleListQuery,
    ScheduleNameInPath,
    ScheduleRunsQuery,
    decode_cursor,
    encode_cursor,
    readable_query,
)
from portico.entrypoints.http.routes.quote import QUOTE_REFUSALS
from portico.orchestration.schedules import ScheduleRequest, ScheduleRunView, ScheduleView, StartedRun

router = APIRouter(tags=["schedules"], dependencies=[AUTHENTICATED])
SCHEDULES = "/v1/schedules"
SCHEDULE = f"{SCHEDULES}/{{schedule_name}}"
RUNS = f"{SCHEDULE}/runs"


@router.get(
    SCHEDULES,
    operation_id="listSchedules",
    summary="List schedules, by name",
    response_model=Page[ScheduleView, str],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(readable_query)],
)
async def list_schedules(context: Context, query: Annotated[ScheduleListQuery, Query()]) -> Response:
    """Return one page of the caller's schedules, with `can_view_tenant` of those of its tenant."""
    after = decode_cursor(context.principal, SCHEDULES, query.after)
    page = await context.service.schedules.page(context.principal, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json(by_alias=True)) for each in page.schedules]
    return context.page_response(data, encode_cursor(context.principal, SCHEDULES, page.next))


@router.put(
    SCHEDULE,
    operation_id="putSchedule",
    summary="Store a schedule",
    response_model=ScheduleView,
    response_description="The schedule, in place of an earlier one",
    responses={
        201: {"model": ScheduleView, "description": "The schedule, which is new"},
        **failures(*QUOTE_REFUSALS, *READ_FAILURES, Code.REQUEST_ID_CONFLICT, Code.REQUEST_RATE_LIMITED),
    },
    openapi_extra=describe_body(ScheduleRequest),
)
async def put_schedule(
    context: Context, schedule_name: ScheduleNameInPath, body: Annotated[ScheduleRequest, json_body(ScheduleRequest)]
) -> Response:
    """Store a schedule under a name of one's own. A request that execute would refuse is refused here.

    Its runs have the rights that the caller's key has then; those of a token hold for 30 days.
    """
    view, is_new = await context.service.schedules.put(context.principal, schedule_name, body)
    return context.object_response(view, 201 if is_new else 200)


@router.get(
    SCHEDULE,
    operation_id="getSchedule",
    summary="Show a schedule",
    response_model=ScheduleView,
    responses=failures(*READ_FAILURES),
)
async def show_schedule(context: Context, schedule_name: ScheduleNameInPath) -> Response:
    """Return a schedule with its next time, the last one, and the quote of one run."""
    return context.object_response(await context.service.schedules.show(context.principal, schedule_name))


@router.delete(
    SCHEDULE,
    operation_id="deleteSchedule",
    summary="Delete a schedule",
    response_class=Response,
    response_description="The schedule is gone, with the list of its runs; the executions stay",
    status_code=204,
    responses=failures(*READ_FAILURES, Code.ACCESS_DENIED),
)
async def delete_schedule(context: Context, schedule_name: OwnSchedule) -> Response:
    """Delete a schedule of one's own. A run that has begun goes on."""
    await context.service.schedules.delete(context.principal, schedule_name)
    return WholeResponse(204, b"", context.correlate().headers())


@router.get(
    RUNS,
    operation_id="listScheduleRuns",
    summary="List the runs of a schedule, the latest first",
    response_model=Page[ScheduleRunView, str],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(readable_query)],
)
async def list_runs(
    context: Context, schedule_name: ScheduleNameInPath, query: Annotated[ScheduleRunsQuery, Query()]
) -> Response:
    """Return one page of what became of its times."""
    listed = f"{SCHEDULES}/{schedule_name}/runs"
    after = decode_cursor(context.principal, listed, query.after)
    page = await context.service.schedules.runs(context.principal, schedule_name, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json()) for each in page.runs]
    return context.page_response(data, encode_cursor(context.principal, listed, page.next))


@router.post(
    RUNS,
    operation_id="runSchedule",
    summary="Run a schedule now",
    response_model=StartedRun,
    response_description="The run waits for its turn",
    status_code=202,
    responses=failures(*QUOTE_REFUSALS, *READ_FAILURES, Code.REQUEST_RATE_LIMITED, Code.REQUEST_SHUTTING_DOWN),
)
async def run_schedule(context: Context, schedule_name: OwnSchedule) -> Response:
    """Run a schedule of one's own now, paused or not, also while earlier runs have not ended."""
    return context.object_response(await context.service.schedules.start(context.principal, schedule_name), 202)
