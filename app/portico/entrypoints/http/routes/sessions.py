"""Routes of sessions: list, show, update and delete them, and read their messages.

A malformed id is a 404 like an unknown one; 404 takes precedence over other errors.
"""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.domain.contract.messages import Message
from portico.domain.contract.response import public_message
from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Page, describe_body, failures
from portico.entrypoints.http.parameters import (
    DeletionQuery,
    MessageListQuery,
    OwnSession,
    ReadableQuery,
    ReadableSession,
    SessionIdInPath,
    SessionListQuery,
    decode_cursor,
    encode_cursor,
    own_session,
    readable_query,
)
from portico.orchestration.facade import SessionChanges, SessionView

router = APIRouter(tags=["sessions"], dependencies=[AUTHENTICATED])
SESSIONS = "/v1/sessions"
SESSION = f"{SESSIONS}/{{session_id}}"


@router.get(
    SESSIONS,
    operation_id="listSessions",
    summary="List sessions, last used first",
    response_model=Page[SessionView, str],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(readable_query)],
)
async def list_sessions(context: Context, query: Annotated[SessionListQuery, Query()]) -> Response:
    """Return one page of the sessions."""
    after = decode_cursor(context.principal, SESSIONS, query.after)
    page = await context.facade.sessions.page(context.principal, after=after, limit=query.limit)
    data = [orjson.Fragment(view.model_dump_json()) for view in page.sessions]
    return context.page_response(data, encode_cursor(context.principal, SESSIONS, page.next))


@router.get(
    SESSION,
    operation_id="getSession",
    summary="Show a session",
    response_model=SessionView,
    responses=failures(*READ_FAILURES),
)
async def show_session(context: Context, session_id: SessionIdInPath) -> Response:
    """Return one session."""
    return context.object_response(await context.facade.sessions.show(context.principal, session_id))


@router.patch(
    SESSION,
    operation_id="updateSession",
    summary="Update the data of a session",
    response_model=SessionView,
    response_description="The updated session",
    responses=failures(*READ_FAILURES, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA),
    openapi_extra=describe_body(SessionChanges),
)
async def update_session(
    context: Context,
    session_id: OwnSession,
    body: Annotated[SessionChanges, json_body(SessionChanges, after=own_session)],
) -> Response:
    """Replace the given fields of a session; null removes a value."""
    return context.object_response(await context.facade.sessions.update(context.principal, session_id, body))


@router.delete(
    SESSION,
    operation_id="deleteSession",
    summary="Delete a session",
    response_class=Response,
    response_description="The session is gone, with its messages, its executions and their events",
    status_code=204,
    responses=failures(*READ_FAILURES, Code.REQUEST_HAS_FORKS),
)
async def delete_session(
    context: Context, session_id: OwnSession, _: ReadableQuery, query: Annotated[DeletionQuery, Query()]
) -> Response:
    """Stop the executions of a session, then delete it. Forks of its executions that are not in the session hold copies
    of its messages: the deletion is refused with their names, unless `forks=delete` deletes them, too.
    """
    await context.facade.erasure.delete_session(context.principal, session_id, with_forks=query.forks == "delete")
    return WholeResponse(204, b"", context.correlate().headers())


@router.get(
    f"{SESSION}/messages",
    operation_id="listSessionMessages",
    summary="List the messages of a session, oldest first",
    response_model=Page[Message, int],
    responses=failures(*READ_FAILURES),
)
async def list_messages(
    context: Context,
    session_id: ReadableSession,
    _: ReadableQuery,
    query: Annotated[MessageListQuery, Query()],
) -> Response:
    """Return one page of the messages of a session."""
    page = await context.facade.sessions.messages(context.principal, session_id, after=query.after, limit=query.limit)
    return context.page_response([public_message(message) for message in page.messages], page.next)
