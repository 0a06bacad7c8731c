"""The routes of sessions: to list, show, change and delete them, and to read what was said.

An id that nobody could have given is unknown, as one is that nobody gave; unknown ids win over whatever else is wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from app.domain.access import LOCAL
from app.domain.failures import Code, Failure, RequestFailure
from app.domain.ids import SessionId
from app.entrypoints.http.body_handler import refusal, with_json_body
from app.entrypoints.http.correlation import correlate
from app.entrypoints.http.errors import CLOSE, WholeResponse
from app.entrypoints.http.query import (
    MessageListQuery,
    SessionListQuery,
    decode_cursor,
    encode_cursor,
    path_id,
    read_query,
)
from app.entrypoints.http.routes.executions import BodylessRoute, RequestContext
from app.orchestration.facade import SessionChanges

SESSIONS = "/v1/sessions"


async def listed(asked: RequestContext) -> WholeResponse:
    """A page of sessions, the one spoken in last first."""
    query = read_query(asked.scope, SessionListQuery)
    after = decode_cursor(LOCAL.tenant, SESSIONS, query.after)
    page = await asked.service.facade.sessions.page(LOCAL.tenant, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json()) for each in page.sessions]
    return asked.page_response(data, encode_cursor(LOCAL.tenant, SESSIONS, page.next))


async def shown(asked: RequestContext) -> WholeResponse:
    """One session."""
    return asked.object_response(await asked.service.facade.sessions.show(LOCAL.tenant, _named(asked)))


async def messages(asked: RequestContext) -> WholeResponse:
    """A page of its messages, the oldest first."""
    session_id, sessions = _named(asked), asked.service.facade.sessions
    try:
        query = read_query(asked.scope, MessageListQuery)
    except RequestFailure:
        await sessions.show(LOCAL.tenant, session_id)
        raise
    page = await sessions.messages(LOCAL.tenant, session_id, after=query.after, limit=query.limit)
    said = [each.model_dump(mode="json", exclude_none=True, exclude={"provider", "kept"}) for each in page.messages]
    return asked.page_response(said, page.next)


async def deleted(asked: RequestContext) -> WholeResponse:
    """Nothing, once it is gone."""
    await asked.service.facade.sessions.delete(LOCAL.tenant, _named(asked))
    return WholeResponse(204, b"", correlate(asked.scope, asked.service.facade.new_id).headers())


@dataclass(frozen=True, slots=True)
class ChangeRoute:
    """The route that changes a session, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = RequestContext(scope, scope["app"].state.service)
        sessions = asked.service.facade.sessions

        async def changed(changes: SessionChanges) -> ASGIApp:
            return asked.object_response(await sessions.update(LOCAL.tenant, _named(asked), changes))

        reply: ASGIApp | None
        try:
            await sessions.show(LOCAL.tenant, _named(asked))
        except Failure as failure:
            reply = refusal(scope, failure, None, CLOSE)
        else:
            reply = await with_json_body(scope, receive, model=SessionChanges, answer=changed)
        if reply is not None:
            await reply(scope, receive, send)


@dataclass(frozen=True, slots=True)
class MethodRoute:
    """One path with an application for each of its methods."""

    applications: Mapping[str, ASGIApp]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self.applications[method](scope, receive, send)


ROUTES: Mapping[str, MethodRoute] = MappingProxyType(
    {
        SESSIONS: MethodRoute({"GET": BodylessRoute(listed)}),
        f"{SESSIONS}/{{session_id}}": MethodRoute(
            {"GET": BodylessRoute(shown), "PATCH": ChangeRoute(), "DELETE": BodylessRoute(deleted)}
        ),
        f"{SESSIONS}/{{session_id}}/messages": MethodRoute({"GET": BodylessRoute(messages)}),
    }
)


def _named(asked: RequestContext) -> SessionId:
    """The id in the path. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
    session_id = path_id(asked.scope, "session_id")
    if session_id is None:
        raise RequestFailure(Code.REQUEST_NOT_FOUND, "no session has this id", condition="path")
    return SessionId(session_id)
