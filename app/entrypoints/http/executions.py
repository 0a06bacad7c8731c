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

from app.bootstrap import Service
from app.domain.access import LOCAL
from app.domain.failures import Code, Failure, RequestFailure
from app.entrypoints.http.correlation import correlate, parent_of
from app.entrypoints.http.errors import CLOSE, JSON, Answer
from app.entrypoints.http.forms import Answering, Form, form_of, stream_headers
from app.entrypoints.http.query import Listing, cursor, first_event, path_id, place_of, read_query
from app.entrypoints.http.sse import EventStream, nothing_follows
from app.entrypoints.http.taking import refused, taken
from app.orchestration.executions import Executions, ResumeRequest
from app.orchestration.facade import Calling
from app.orchestration.forking import ForkRequest
from app.orchestration.running import Running

M = TypeVar("M", bound=BaseModel)
EXECUTIONS, SUSPENSIONS = "/v1/executions", "/v1/suspensions"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request about executions, or about the one that its path names."""

    scope: Scope
    service: Service

    @property
    def executions(self) -> Executions:
        return self.service.facade.executions

    @property
    def request_id(self) -> str | None:
        """The id in the path; None where there is none, or what stands there is no id."""
        return path_id(self.scope, "request_id")

    def named(self) -> str:
        """The id in the path. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
        request_id = self.request_id
        if request_id is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "there is no execution of that id", condition="path")
        return request_id

    def answer(self, shown: BaseModel, status: int = 200, *, exclude_none: bool = False) -> Answer:
        """One object."""
        return self.json(shown.model_dump_json(by_alias=True, exclude_none=exclude_none).encode(), status)

    def json(self, body: bytes, status: int = 200) -> Answer:
        """That JSON."""
        ids = correlate(self.scope, self.service.facade.new_id, self.request_id)
        return Answer(status, body, (JSON, *ids.headers()))

    def page(self, data: Sequence[object], following: str | int | None) -> Answer:
        """Some of a collection; `following` is what the page after it begins after, None on the last."""
        return self.json(orjson.dumps({"data": data, "has_more": following is not None, "next": following}))


Reading: TypeAlias = Callable[[Asked], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Simple:
    """A route that is sent no body, as an ASGI application; a Failure is answered as a problem document."""

    answer: Reading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(scope, scope["app"].state.service)
        try:
            answer = await self.answer(asked)
        except Failure as failure:
            answer = refused(scope, failure, asked.request_id)
        await answer(scope, receive, send)


async def listed(asked: Asked) -> Answer:
    """A page of executions, the newest first."""
    query = read_query(asked.scope, Listing)
    after = place_of(LOCAL.tenant, EXECUTIONS, query.after)
    page = await asked.executions.listed(LOCAL.tenant, query.selection, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json(by_alias=True)) for each in page.executions]
    return asked.page(data, cursor(LOCAL.tenant, EXECUTIONS, page.next))


async def suspensions(asked: Asked) -> Answer:
    """All open questions."""
    pending = await asked.executions.suspensions(LOCAL.tenant)
    return asked.json(
        orjson.dumps({"data": [orjson.Fragment(each.model_dump_json(by_alias=True)) for each in pending]})
    )


async def shown(asked: Asked) -> Answer:
    """Where one execution stands."""
    return asked.answer(await asked.executions.show(LOCAL.tenant, asked.named()))


async def events(asked: Asked) -> ASGIApp:
    """Its events, from the place that the client asks for; 204 when there are none left and there will be none.

    A service that is stopping sends everybody elsewhere instead, where what waits may go on.
    """
    request_id = asked.named()
    try:
        after = first_event(asked.scope)
    except RequestFailure:
        await asked.executions.show(LOCAL.tenant, request_id)
        raise
    subscription = await asked.executions.read(LOCAL.tenant, request_id, after=after)
    ids = correlate(asked.scope, asked.service.facade.new_id, request_id)
    readiness = asked.service.readiness
    if subscription.ended and readiness().ready:
        subscription.close()
        return Answer(204, b"", ids.headers())
    return EventStream(subscription, headers=stream_headers(ids), stopping=lambda: not readiness().ready)


async def trace(asked: Asked) -> Answer:
    """What its events tell of it, summed up."""
    return asked.answer(await asked.executions.trace(LOCAL.tenant, asked.named()))


async def cancel(asked: Asked) -> Answer:
    """202 while it is stopping, 200 when it had ended already."""
    request_id = asked.named()
    stops = await asked.executions.cancel(LOCAL.tenant, request_id)
    return asked.answer(await asked.executions.show(LOCAL.tenant, request_id), 202 if stops else 200)


async def replay(asked: Asked) -> Answer:
    """Whether its record tells the same again."""
    return asked.answer(await asked.executions.replay(LOCAL.tenant, asked.named()), exclude_none=True)


READS: Mapping[str, Reading] = MappingProxyType(
    {
        EXECUTIONS: listed,
        f"{EXECUTIONS}/{{request_id}}": shown,
        f"{EXECUTIONS}/{{request_id}}/events": events,
        f"{EXECUTIONS}/{{request_id}}/trace": trace,
        SUSPENSIONS: suspensions,
    }
)
ORDERS: Mapping[str, Reading] = MappingProxyType(
    {f"{EXECUTIONS}/{{request_id}}/cancel": cancel, f"{EXECUTIONS}/{{request_id}}/replay": replay}
)
RESUME = f"{EXECUTIONS}/{{request_id}}/resume"
FORK = f"{EXECUTIONS}/{{request_id}}/fork"


@dataclass(frozen=True, slots=True)
class Following(Generic[M]):
    """A route that is sent a body about an execution that exists, as an ASGI application; what follows runs.

    What is asked for is done once and for all, so whoever leaves before it has come to its end stops nothing.
    """

    model: type[M]
    follow: Callable[[Answering, str, M], Awaitable[ASGIApp]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(scope, scope["app"].state.service)
        began = get_running_loop().time()

        async def followed(body: M) -> ASGIApp:
            return await self.follow(Answering(asked.service, scope, form_of(scope), began), asked.named(), body)

        reply: ASGIApp | None
        try:
            await asked.executions.show(LOCAL.tenant, asked.named())
        except Failure as failure:
            reply = refused(scope, failure, asked.request_id, CLOSE)
        else:
            reply = await taken(scope, receive, model=self.model, answer=followed, request_id=asked.request_id)
        if reply is not None:
            await reply(scope, receive, send)


async def _resumed(answering: Answering, request_id: str, answer: ResumeRequest) -> ASGIApp:
    executions = answering.service.facade.executions
    watch = answering.form is Form.EVENTS
    found = await executions.resume(LOCAL.tenant, request_id, answer, by=LOCAL.user, watch=watch)
    if isinstance(found, Running):
        return await answering.started(found, nothing_follows)
    return await answering.found(found.view) if found.events is None else answering.followed(found.view, found.events)


async def _forked(answering: Answering, request_id: str, asked: ForkRequest) -> ASGIApp:
    trace_id, parent_span_id = parent_of(answering.scope)
    calling = Calling(trace_id, parent_span_id, watch=answering.form is Form.EVENTS)
    running = await answering.service.facade.fork(request_id, asked, LOCAL, calling)
    return await answering.started(running, nothing_follows)


FOLLOWING: Mapping[str, ASGIApp] = MappingProxyType(
    {RESUME: Following(ResumeRequest, _resumed), FORK: Following(ForkRequest, _forked)}
)
