"""The routes of executions that exist: to list, show, read, resume, cancel, replay and fork them.

An id that nobody could have given is unknown, as one is that nobody gave; unknown ids win over whatever else is wrong.
"""

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from app.bootstrap.service import Service
from app.domain.access import LOCAL
from app.domain.failures import Code, Failure, RequestFailure
from app.domain.ids import RequestId
from app.entrypoints.http.body_handler import refusal, with_json_body
from app.entrypoints.http.correlation import caller_trace, correlate
from app.entrypoints.http.errors import CLOSE, JSON, WholeResponse
from app.entrypoints.http.negotiation import Responder, ResponseKind, response_kind, stream_headers
from app.entrypoints.http.query import (
    ExecutionListQuery,
    decode_cursor,
    encode_cursor,
    last_read_event,
    path_id,
    read_query,
)
from app.entrypoints.http.sse import EventStreamResponse, keep_running
from app.orchestration.facade import CallOptions, ExecutionHandle, Executions, ForkRequest, ResumeRequest

M = TypeVar("M", bound=BaseModel)
EXECUTIONS, SUSPENSIONS = "/v1/executions", "/v1/suspensions"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request about executions, or about the one that its path names."""

    scope: Scope
    service: Service

    @property
    def executions(self) -> Executions:
        return self.service.facade.executions

    @property
    def request_id(self) -> RequestId | None:
        """The id in the path; None where there is none, or what stands there is no id."""
        found = path_id(self.scope, "request_id")
        return None if found is None else RequestId(found)

    def require_id(self) -> RequestId:
        """The id in the path. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
        request_id = self.request_id
        if request_id is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "no execution has this id", condition="path")
        return request_id

    def object_response(self, shown: BaseModel, status: int = 200, *, exclude_none: bool = False) -> WholeResponse:
        """One object."""
        return self.json_response(shown.model_dump_json(by_alias=True, exclude_none=exclude_none).encode(), status)

    def json_response(self, body: bytes, status: int = 200) -> WholeResponse:
        """That JSON."""
        ids = correlate(self.scope, self.service.facade.new_id, self.request_id)
        return WholeResponse(status, body, (JSON, *ids.headers()))

    def page_response(self, data: Sequence[object], following: str | int | None) -> WholeResponse:
        """Some of a collection; `following` is what the page after it begins after, None on the last."""
        return self.json_response(orjson.dumps({"data": data, "has_more": following is not None, "next": following}))


Reading: TypeAlias = Callable[[RequestContext], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class BodylessRoute:
    """A route that is sent no body, as an ASGI application; a Failure is answered as a problem document."""

    answer: Reading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = RequestContext(scope, scope["app"].state.service)
        try:
            answer = await self.answer(asked)
        except Failure as failure:
            answer = refusal(scope, failure, asked.request_id)
        await answer(scope, receive, send)


async def listed(asked: RequestContext) -> WholeResponse:
    """A page of executions, the newest first."""
    query = read_query(asked.scope, ExecutionListQuery)
    after = decode_cursor(LOCAL.tenant, EXECUTIONS, query.after)
    page = await asked.executions.page(LOCAL.tenant, query.selection, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json(by_alias=True)) for each in page.executions]
    return asked.page_response(data, encode_cursor(LOCAL.tenant, EXECUTIONS, page.next))


async def suspensions(asked: RequestContext) -> WholeResponse:
    """All open questions."""
    pending = await asked.executions.suspensions(LOCAL.tenant)
    return asked.json_response(
        orjson.dumps({"data": [orjson.Fragment(each.model_dump_json(by_alias=True)) for each in pending]})
    )


async def shown(asked: RequestContext) -> WholeResponse:
    """Where one execution stands."""
    return asked.object_response(await asked.executions.show(LOCAL.tenant, asked.require_id()))


async def events(asked: RequestContext) -> ASGIApp:
    """Its events, from the place that the client asks for; 204 when there are none left and there will be none.

    A service that is stopping sends everybody elsewhere instead, where what waits may go on.
    """
    request_id = asked.require_id()
    try:
        after = last_read_event(asked.scope)
    except RequestFailure:
        await asked.executions.show(LOCAL.tenant, request_id)
        raise
    subscription = await asked.executions.read(LOCAL.tenant, request_id, after=after)
    ids = correlate(asked.scope, asked.service.facade.new_id, request_id)
    readiness = asked.service.readiness
    if subscription.ended and readiness().ready:
        subscription.close()
        return WholeResponse(204, b"", ids.headers())
    return EventStreamResponse(subscription, headers=stream_headers(ids), stopping=lambda: not readiness().ready)


async def trace(asked: RequestContext) -> WholeResponse:
    """What its events tell of it, summed up."""
    return asked.object_response(await asked.executions.trace(LOCAL.tenant, asked.require_id()))


async def cancel(asked: RequestContext) -> WholeResponse:
    """202 while it is stopping, 200 when it had ended already."""
    request_id = asked.require_id()
    stops = await asked.executions.cancel(LOCAL.tenant, request_id)
    return asked.object_response(await asked.executions.show(LOCAL.tenant, request_id), 202 if stops else 200)


async def replay(asked: RequestContext) -> WholeResponse:
    """Whether its record tells the same again."""
    return asked.object_response(await asked.executions.replay(LOCAL.tenant, asked.require_id()), exclude_none=True)


QUERIES: Mapping[str, Reading] = MappingProxyType(
    {
        EXECUTIONS: listed,
        f"{EXECUTIONS}/{{request_id}}": shown,
        f"{EXECUTIONS}/{{request_id}}/events": events,
        f"{EXECUTIONS}/{{request_id}}/trace": trace,
        SUSPENSIONS: suspensions,
    }
)
COMMANDS: Mapping[str, Reading] = MappingProxyType(
    {f"{EXECUTIONS}/{{request_id}}/cancel": cancel, f"{EXECUTIONS}/{{request_id}}/replay": replay}
)
RESUME = f"{EXECUTIONS}/{{request_id}}/resume"
FORK = f"{EXECUTIONS}/{{request_id}}/fork"


@dataclass(frozen=True, slots=True)
class CommandRoute(Generic[M]):
    """A route that is sent a body about an execution that exists, as an ASGI application; what follows runs.

    What is asked for is done once and for all, so whoever leaves before it has come to its end stops nothing.
    """

    model: type[M]
    follow: Callable[[Responder, RequestId, M], Awaitable[ASGIApp]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = RequestContext(scope, scope["app"].state.service)
        began = get_running_loop().time()

        async def followed(body: M) -> ASGIApp:
            return await self.follow(
                Responder(asked.service, scope, response_kind(scope), began), asked.require_id(), body
            )

        reply: ASGIApp | None
        try:
            await asked.executions.show(LOCAL.tenant, asked.require_id())
        except Failure as failure:
            reply = refusal(scope, failure, asked.request_id, CLOSE)
        else:
            reply = await with_json_body(scope, receive, model=self.model, answer=followed, request_id=asked.request_id)
        if reply is not None:
            await reply(scope, receive, send)


async def _resumed(answering: Responder, request_id: RequestId, answer: ResumeRequest) -> ASGIApp:
    executions = answering.service.facade.executions
    watch = answering.kind is ResponseKind.EVENTS
    found = await executions.resume(LOCAL.tenant, request_id, answer, by=LOCAL.user, subscribe=watch)
    if isinstance(found, ExecutionHandle):
        return await answering.respond(found, keep_running)
    return (
        await answering.existing(found.view)
        if found.events is None
        else answering.event_stream(found.view, found.events)
    )


async def _forked(answering: Responder, request_id: RequestId, asked: ForkRequest) -> ASGIApp:
    trace_id, parent_span_id = caller_trace(answering.scope)
    calling = CallOptions(trace_id, parent_span_id, subscribe=answering.kind is ResponseKind.EVENTS)
    running = await answering.service.facade.fork(request_id, asked, LOCAL, calling)
    return await answering.respond(running, keep_running)


BODY_COMMANDS: Mapping[str, ASGIApp] = MappingProxyType(
    {RESUME: CommandRoute(ResumeRequest, _resumed), FORK: CommandRoute(ForkRequest, _forked)}
)
