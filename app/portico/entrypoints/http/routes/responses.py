"""The Responses API, as the clients of OpenAI call it.

A route of `/v1/responses/{response_id}` is for an answer that the caller may read or change; any other id is a 404.
"""

from typing import Annotated, Literal

import anyio
import orjson
from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from portico.domain.failures import Code, RequestFailure
from portico.entrypoints.http.client_apis.responses.input_items import input_items, item_page
from portico.entrypoints.http.client_apis.wire_values import invalid
from portico.entrypoints.http.client_route import OpenAiReadRoute, OpenAiRoute
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.openapi.responses import (
    IDEMPOTENCY_KEY,
    READ_FAILURES,
    TRACEPARENT,
    client_responses,
    describe_client_body,
    failures,
)
from portico.entrypoints.http.parameters import DecimalInt, QueryParameters, ReadableQuery
from portico.entrypoints.http.recorded_answer import RecordedAnswerReader, named_response
from portico.entrypoints.http.responses_answer import create

router = APIRouter(tags=["clients"], route_class=OpenAiRoute)
read_router = APIRouter(tags=["clients"], route_class=OpenAiReadRoute, dependencies=[AUTHENTICATED])
RESPONSES = "/v1/responses"
ANSWER = f"{RESPONSES}/{{response_id}}"
CANCEL_SECONDS = 2.0
"""How long a cancel waits for the end."""
ResponseId = Annotated[str, Path(description="Id of an answer.")]


class RetrieveQuery(QueryParameters):
    """Form of an answer that is read later."""

    stream: bool = Field(False, description="True for the frames of the answer, until it ends.")
    starting_after: DecimalInt | None = Field(
        None, description="Only frames after this number, of a background answer."
    )
    include: list[str] = Field([], description="Ignored.")
    include_obfuscation: bool = Field(False, description="Ignored.")


class InputItemsQuery(QueryParameters):
    """Page of input items."""

    limit: DecimalInt = Field(20, ge=1, le=100, description="Maximum number of items.")
    order: Literal["asc", "desc"] = Field("desc", description="`desc`: the last item first.")
    after: str | None = Field(None, description="Only items after this one.")
    include: list[str] = Field([], description="Ignored.")


@router.post(
    RESPONSES,
    operation_id="createResponse",
    summary="Answer like OpenAI's Responses API",
    response_class=Response,
    responses=client_responses("A `response`; with `stream`, its events and `[DONE]`"),
    openapi_extra=describe_client_body("input", TRACEPARENT, IDEMPOTENCY_KEY),
)
async def create_response(context: Context) -> Response:
    """Run the request and answer as OpenAI's clients expect. Tools of the service are those of the tool `{"type":
    "mcp", "server_label": "portico"}`; their calls are `mcp_call` items, and those that need an approval are asked for
    with `mcp_approval_request`. With `background` the answer is read later, also as a stream that reads on.
    """
    return await create(context)


@read_router.get(
    ANSWER,
    operation_id="getResponse",
    summary="Read an answer of the Responses API",
    response_class=Response,
    response_description="The answer as it is by now; with `stream`, its events until it ends",
    responses=failures(*READ_FAILURES),
)
async def retrieve_response(
    context: Context, response_id: ResponseId, _: ReadableQuery, query: Annotated[RetrieveQuery, Query()]
) -> Response:
    """Return an answer. `starting_after` reads on behind a frame of a background answer, on every replica."""
    named = named_response(response_id)
    reader, number = RecordedAnswerReader(context, named.request_id), named.number or 0
    if not query.stream:
        return await reader.json(number)
    if query.starting_after is not None and not (await reader.turns()).header.request.background:
        raise invalid(("starting_after",), "is for an answer that runs in the background")
    return await reader.stream(number, -1 if query.starting_after is None else query.starting_after)


@read_router.post(ANSWER, include_in_schema=False)
async def refuse_command(context: Context, response_id: ResponseId) -> Response:
    """Refuse what OpenAI's API has at such a path and this one has not: `compact` and `input_tokens`."""
    raise RequestFailure(Code.REQUEST_NOT_FOUND, "there is nothing at this path", condition="path")


@read_router.post(
    f"{ANSWER}/cancel",
    operation_id="cancelResponse",
    summary="Cancel an answer of the Responses API",
    response_class=Response,
    response_description="The answer as it is once it has stopped, or after two seconds",
    responses=failures(*READ_FAILURES, Code.STORAGE_SNAPSHOT_INVALID),
)
async def cancel_response(context: Context, response_id: ResponseId) -> Response:
    """Stop an answer that runs, waits in the queue or for a person."""
    named = named_response(response_id)
    reader = RecordedAnswerReader(context, named.request_id)
    await context.facade.executions.cancel(context.principal, named.request_id)
    events = await context.facade.executions.read(context.principal, named.request_id)
    with anyio.move_on_after(CANCEL_SECONDS):
        while not events.ended:
            await events.next()
    events.close()
    return await reader.json(named.number or 0)


@read_router.delete(
    ANSWER,
    operation_id="deleteResponse",
    summary="Delete an answer of the Responses API",
    response_class=Response,
    response_description="The answer is gone, or is once it has stopped",
    responses=failures(*READ_FAILURES, Code.REQUEST_HAS_FORKS, Code.REQUEST_SESSION_BUSY, Code.REQUEST_RESUME_REQUIRED),
)
async def delete_response(context: Context, response_id: ResponseId) -> Response:
    """Cancel an answer if it runs, and delete its execution. One that later answers follow is not deleted."""
    named = named_response(response_id)
    await context.facade.erasure.delete_execution(context.principal, named.request_id, with_forks=False)
    body = {"id": response_id, "object": "response", "deleted": True}
    return context.json_response(orjson.dumps(body), request_id=named.request_id)


@read_router.get(
    f"{ANSWER}/input_items",
    operation_id="listResponseInputItems",
    summary="List the input of an answer of the Responses API",
    response_class=Response,
    response_description="One page of the items of the request",
    responses=failures(*READ_FAILURES),
)
async def list_input_items(
    context: Context, response_id: ResponseId, _: ReadableQuery, query: Annotated[InputItemsQuery, Query()]
) -> Response:
    """Return the items of the request as they were sent, without those of the answers before it."""
    named = named_response(response_id)
    request = await context.facade.records.input(context.principal, named.request_id)
    items = input_items(named.request_id, request.messages)
    page = item_page(items, after=query.after, limit=query.limit, is_descending=query.order == "desc")
    return context.json_response(orjson.dumps(page), request_id=named.request_id)


router.routes.extend(read_router.routes)
