"""Routes of existing executions: list, show, read events, trace, resume, cancel, fork and replay.

A malformed id is a 404 like an unknown one; 404 takes precedence over other errors.
"""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.domain.contract.quote import Quote
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.credentials import NO_CREDENTIALS
from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, CREDENTIALS_KEY, Context, RequestContext, tool_credentials
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.execution_response import ExecutionResponder, event_stream
from portico.entrypoints.http.negotiation import (
    ResponseKind,
    asks_for_json,
    prefers_async,
    request_headers,
    response_kind,
)
from portico.entrypoints.http.openapi.responses import (
    METADATA_FILTER,
    PREFER,
    READ_FAILURES,
    Collection,
    Page,
    describe_body,
    event_page_content,
    execution_responses,
    failures,
)
from portico.entrypoints.http.parameters import (
    AnswerableExecution,
    DeletionQuery,
    EventQuery,
    ExecutionListQuery,
    LastEventId,
    OwnExecution,
    ReadableExecution,
    ReadableQuery,
    RequestIdInPath,
    StepListQuery,
    SuspensionListQuery,
    answerable_execution,
    decode_cursor,
    encode_cursor,
    own_execution,
    readable_query,
)
from portico.entrypoints.http.routes.quote import QUOTE_REFUSALS
from portico.entrypoints.http.sse import FrameEncoder, event_objects
from portico.orchestration.facade import (
    AgentTrace,
    AnswerAccepted,
    BranchTranscript,
    CallOptions,
    ExecutionHandle,
    ExecutionSummary,
    ExecutionView,
    FlowSnapshot,
    ForkRequest,
    ReplayReport,
    ResumeRequest,
    StepSummary,
    StepView,
    SuspensionView,
    summary_of,
)

router = APIRouter(dependencies=[AUTHENTICATED])
EXECUTIONS = "/v1/executions"
EXECUTION = f"{EXECUTIONS}/{{request_id}}"
SUSPENSIONS = "/v1/suspensions"


class StepListPage(Page[StepView | StepSummary, int]):
    """Steps of an execution, whole or in brief; all of them without a limit."""


class ExecutionListPage(Page[ExecutionView | ExecutionSummary, str]):
    """One page of executions, whole or in brief."""


@router.get(
    EXECUTIONS,
    operation_id="listExecutions",
    tags=["executions"],
    summary="List executions, newest first",
    response_model=ExecutionListPage,
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(readable_query)],
    openapi_extra={"parameters": [METADATA_FILTER]},
)
async def list_executions(context: Context, query: Annotated[ExecutionListQuery, Query()]) -> Response:
    """Return one page of the executions that the filters select. A cursor belongs to one order."""
    collection = f"{EXECUTIONS}?order={query.order}"
    after = decode_cursor(context.principal, collection, query.after)
    page = await context.facade.executions.page(context.principal, query.selection, after=after, limit=query.limit)
    shown = [summary_of(view) for view in page.executions] if query.view == "summary" else page.executions
    data = [orjson.Fragment(view.model_dump_json(by_alias=True)) for view in shown]
    return context.page_response(data, encode_cursor(context.principal, collection, page.next))


@router.get(
    EXECUTION,
    operation_id="getExecution",
    tags=["executions"],
    summary="Show an execution",
    response_model=ExecutionView,
    responses=failures(*READ_FAILURES),
)
async def show_execution(context: Context, request_id: RequestIdInPath) -> Response:
    """Return the current status of an execution, and its response once there is one."""
    view = await context.facade.executions.show(context.principal, request_id)
    return context.object_response(view, request_id=request_id)


@router.delete(
    EXECUTION,
    operation_id="deleteExecution",
    tags=["executions"],
    summary="Delete an execution",
    response_class=Response,
    response_description="The execution is gone, with its request, steps, events and answer",
    status_code=204,
    responses={
        202: {"model": ExecutionView, "description": "The execution is stopping; it is deleted at its end"},
        **failures(*READ_FAILURES, Code.REQUEST_HAS_FORKS, Code.REQUEST_SESSION_BUSY, Code.REQUEST_RESUME_REQUIRED),
    },
)
async def delete_execution(
    context: Context, request_id: OwnExecution, _: ReadableQuery, query: Annotated[DeletionQuery, Query()]
) -> Response:
    """Cancel an execution if it runs, and delete it. Its messages are removed from its session, and the steps and
    events of later turns, which have read them, are deleted. Its request id and Idempotency-Key are free afterwards. If
    forks hold copies of its messages, the deletion is refused with their names, unless `forks=delete` deletes these.
    """
    view = await context.facade.executions.show(context.principal, request_id)
    with_forks = query.forks == "delete"
    if await context.facade.erasure.delete_execution(context.principal, request_id, with_forks=with_forks):
        return WholeResponse(204, b"", context.correlate(request_id).headers())
    return context.object_response(view, 202, request_id=request_id)


@router.get(
    f"{EXECUTION}/events",
    operation_id="streamExecutionEvents",
    tags=["executions"],
    summary="Read the events of an execution",
    response_class=Response,
    response_description="The events from there on, live until the execution ends",
    status_code=200,
    responses={
        200: {"content": event_page_content()},
        204: {"description": "The execution has ended, and no events are left"},
        **failures(*READ_FAILURES),
    },
)
async def read_events(
    context: Context,
    request_id: ReadableExecution,
    _: ReadableQuery,
    query: Annotated[EventQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Return the events after the given one as server-sent events: the stored ones, then live ones until the execution
    ends. A service that is stopping ends the stream with a `retry:` line instead of status 204. A client that accepts
    only `application/json` gets one page of the events that are stored so far.
    """
    after = query.after if last_event_id is None else last_event_id
    executions = context.facade.executions
    if asks_for_json(request_headers(context.scope)):
        page = await executions.event_page(context.principal, request_id, query.selection(after))
        return context.page_response(event_objects(page.events), page.next, request_id=request_id)
    subscription = await executions.read(context.principal, request_id, after=after or 0, types=query.type_names)
    correlation = context.correlate(request_id)
    if subscription.ended and not context.is_stopping():
        subscription.close()
        return WholeResponse(204, b"", correlation.headers())
    return event_stream(context, subscription, correlation, encoder=FrameEncoder(query.type_names))


@router.get(
    f"{EXECUTION}/trace",
    operation_id="getExecutionTrace",
    tags=["executions"],
    summary="Summarise an execution",
    response_model=AgentTrace,
    responses=failures(*READ_FAILURES),
)
async def show_trace(context: Context, request_id: RequestIdInPath) -> Response:
    """Return a summary of the events of an execution: its stages, attempts and tool calls."""
    trace = await context.facade.executions.trace(context.principal, request_id)
    return context.object_response(trace, request_id=request_id)


@router.get(
    f"{EXECUTION}/input",
    operation_id="getExecutionInput",
    tags=["executions"],
    summary="Show the request of an execution",
    response_model=SystemRequest,
    responses=failures(*READ_FAILURES),
)
async def show_input(context: Context, request_id: RequestIdInPath) -> Response:
    """Return the request as it was admitted: with the model of its session and the text of its named grammar, and that
    of a fork with its overrides.
    """
    request = await context.facade.records.input(context.principal, request_id)
    body = request.model_dump_json(by_alias=True, exclude_none=True).encode()
    return context.json_response(body, request_id=request_id)


@router.get(
    f"{EXECUTION}/transcript",
    operation_id="getExecutionTranscript",
    tags=["executions"],
    summary="Show the conversations of an execution",
    response_model=Collection[BranchTranscript],
    responses=failures(*READ_FAILURES, Code.STORAGE_SNAPSHOT_INVALID),
)
async def show_transcript(context: Context, request_id: RequestIdInPath) -> Response:
    """Return the conversation of each branch that has asked a model, as far as it is recorded: the outermost first,
    then those of nested agents, steps, replicas and nodes. What a guard withheld is not shown.
    """
    found = await context.facade.records.transcripts(context.principal, request_id)
    body = orjson.dumps({"data": [each.model_dump(mode="json") for each in found]})
    return context.json_response(body, request_id=request_id)


@router.get(
    f"{EXECUTION}/steps",
    operation_id="listExecutionSteps",
    tags=["executions"],
    summary="List the steps of an execution",
    response_model=StepListPage,
    responses=failures(*READ_FAILURES),
)
async def list_steps(
    context: Context, request_id: ReadableExecution, _: ReadableQuery, query: Annotated[StepListQuery, Query()]
) -> Response:
    """Return the steps that are recorded so far, in the order in which they ended: what was asked, what was answered,
    and what it took.
    """
    page = await context.facade.records.steps(context.principal, request_id, query.selection)
    data = [orjson.Fragment(step.model_dump_json()) for step in page.steps]
    return context.page_response(data, page.next, request_id=request_id)


@router.get(
    f"{EXECUTION}/snapshot",
    operation_id="getFlowSnapshot",
    tags=["executions"],
    summary="Show where a flow stands",
    response_model=FlowSnapshot,
    responses=failures(*READ_FAILURES, Code.STORAGE_SNAPSHOT_INVALID),
)
async def show_snapshot(context: Context, request_id: RequestIdInPath) -> Response:
    """Return the snapshot of an execution of mode `flow`: its state in order, open suspensions, the conversations of
    its agents, steps and usage; while it runs, at the end of its last wave. `FlowRuntime.from_snapshot` goes on from
    there. With a graph that has changed since, the snapshot cannot be made.
    """
    snapshot = await context.facade.records.snapshot(context.principal, request_id)
    return context.object_response(snapshot, request_id=request_id)


@router.get(
    SUSPENSIONS,
    operation_id="listSuspensions",
    tags=["suspensions"],
    summary="List open suspensions, those of the oldest execution first",
    response_model=Page[SuspensionView, str],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(readable_query)],
)
async def list_suspensions(context: Context, query: Annotated[SuspensionListQuery, Query()]) -> Response:
    """Return one page of the open suspensions that the caller asked for or may answer. Of another user's suspension the
    `value` has the call only.
    """
    after = decode_cursor(context.principal, SUSPENSIONS, query.after)
    page = await context.facade.records.suspensions(context.principal, query.selection, after=after, limit=query.limit)
    data = [orjson.Fragment(view.model_dump_json(by_alias=True)) for view in page.suspensions]
    return context.page_response(data, encode_cursor(context.principal, SUSPENSIONS, page.next))


@router.post(
    f"{EXECUTION}/resume",
    operation_id="resumeExecution",
    tags=["suspensions"],
    summary="Answer an open suspension",
    response_model=SystemResponse,
    responses={
        **execution_responses(
            "The execution completed",
            "Other suspensions are open, or other users must approve the call; without a body for the execution of "
            "another user",
        ),
        204: {"description": "The answer to a suspension of another user's execution was accepted"},
    },
    openapi_extra=describe_body(ResumeRequest, PREFER),
)
async def resume_execution(
    context: Context,
    request_id: AnswerableExecution,
    body: Annotated[ResumeRequest, json_body(ResumeRequest, after=answerable_execution)],
) -> Response:
    """Accept the answer, once. The execution continues when no suspension is left open; the response has the same
    three forms as that of execute. It continues even if the client leaves. `question` and `flow` are answered by
    the user who asked, `approval` and `unknown_outcome` by each user of the tenant with `can_approve`, to whom the
    execution of another user is not shown.

    An approval may change the `arguments`, and may give a `grant`: later calls of the tool then run unasked. Where a
    rule needs several `approvers`, the suspension stays open until so many users have approved the same arguments.
    """
    responder = ExecutionResponder(context, _response_kind(context))
    subscribe = responder.kind is ResponseKind.EVENTS
    credentials = tool_credentials(context) if CREDENTIALS_KEY in context.scope else NO_CREDENTIALS
    resumed = await context.facade.executions.resume(
        context.principal, request_id, body, subscribe=subscribe, credentials=credentials
    )
    if isinstance(resumed, AnswerAccepted):
        status = 202 if resumed.is_pending else 204
        return WholeResponse(status, b"", context.correlate(request_id).headers())
    if isinstance(resumed, ExecutionHandle):
        return await responder.respond(resumed)
    if resumed.events is None:
        return await responder.existing(resumed.view)
    return event_stream(context, resumed.events, responder.correlation(resumed.view))


@router.post(
    f"{EXECUTION}/fork",
    operation_id="forkExecution",
    tags=["executions"],
    summary="Fork an execution at one of its steps",
    response_model=SystemResponse,
    responses=execution_responses("The new execution completed", "The new execution is suspended"),
    openapi_extra=describe_body(ForkRequest, PREFER),
)
async def fork_execution(
    context: Context,
    request_id: OwnExecution,
    body: Annotated[ForkRequest, json_body(ForkRequest, after=own_execution)],
) -> Response:
    """Start a new execution with the first `from_step` top-level steps as they were recorded, which do not run again;
    the overrides apply to the steps after them. `edits` give other results to tool calls of the last inherited step:
    the model reads them instead of the recorded ones, and nothing runs for them. The new execution is journaled, and
    `caused_by` of its events names this one. With a `session_id` it takes a turn in that session: its messages are
    added to the session, but it does not see the session's history. It continues even if the client leaves.
    """
    context.shows_limits = True
    responder = ExecutionResponder(context, _response_kind(context))
    trace_id, parent_span_id, sampled = context.trace
    options = CallOptions(
        trace_id,
        parent_span_id,
        sampled,
        subscribe=responder.kind is ResponseKind.EVENTS,
        authentication_ms=context.authentication_ms,
        credentials=tool_credentials(context) if CREDENTIALS_KEY in context.scope else NO_CREDENTIALS,
    )
    return await responder.respond(await context.facade.fork(request_id, body, context.principal, options))


@router.post(
    f"{EXECUTION}/fork/quote",
    operation_id="quoteFork",
    tags=["executions"],
    summary="Compute the upper bounds of a fork",
    response_model=Quote,
    response_description="The upper bounds of what the fork runs itself",
    responses=failures(*QUOTE_REFUSALS, Code.REQUEST_IN_PROGRESS, Code.REQUEST_RESUME_UNEXPECTED),
    openapi_extra=describe_body(ForkRequest),
)
async def quote_fork(
    context: Context,
    request_id: OwnExecution,
    body: Annotated[ForkRequest, json_body(ForkRequest, after=own_execution)],
) -> Response:
    """Return the quote of the whole request of the fork without the inferences and calls that it inherits. Nothing runs
    and nothing is stored. What `fork` would refuse is refused in the same way.
    """
    return context.object_response(await context.facade.quote_fork(request_id, body, context.principal))


@router.post(
    f"{EXECUTION}/cancel",
    operation_id="cancelExecution",
    tags=["executions"],
    summary="Cancel an execution",
    response_model=ExecutionView,
    response_description="The execution had already ended",
    responses={
        202: {"model": ExecutionView, "description": "The execution is stopping"},
        **failures(*READ_FAILURES, Code.STORAGE_SNAPSHOT_INVALID),
    },
)
async def cancel_execution(context: Context, request_id: RequestIdInPath) -> Response:
    """Stop an execution that runs, waits in the queue or is suspended."""
    is_stopping = await context.facade.executions.cancel(context.principal, request_id)
    view = await context.facade.executions.show(context.principal, request_id)
    return context.object_response(view, 202 if is_stopping else 200, request_id=request_id)


@router.post(
    f"{EXECUTION}/replay",
    operation_id="replayExecution",
    tags=["executions"],
    summary="Replay a record offline",
    response_model=ReplayReport,
    response_description="The result of the replay",
    responses=failures(*READ_FAILURES, Code.REQUEST_IN_PROGRESS, Code.STORAGE_SNAPSHOT_INVALID),
)
async def replay_execution(context: Context, request_id: RequestIdInPath) -> Response:
    """Run the record of an execution again, without any effect, and compare every step with the recorded one."""
    report = await context.facade.executions.replay(context.principal, request_id)
    body = report.model_dump_json(by_alias=True, exclude_none=True).encode()
    return context.json_response(body, request_id=request_id)


def _response_kind(context: RequestContext) -> ResponseKind:
    headers = request_headers(context.scope)
    return response_kind(headers, background=prefers_async(headers))
