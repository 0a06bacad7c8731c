"""Request context: the service, the principal and the ids of one request, as routes depend on them."""

from asyncio import get_running_loop
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import orjson
from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope

from app.bootstrap.service import Service
from app.domain.access import LOCAL, Principal
from app.domain.failures import Failure
from app.domain.ids import RequestId
from app.entrypoints.http.correlation import Correlation, correlate
from app.entrypoints.http.errors import JSON, WholeResponse
from app.orchestration.facade import Facade

CONTEXT_KEY = "portico.context"


@dataclass(slots=True)
class RequestContext:
    """One request as its route sees it.

    `received_at` is a time of the event loop's clock. `request_id` is the id that the body names, under which a
    refusal is answered. `body_was_read` tells whether the connection can be used for another request, `shows_limits`
    whether the response has the caller's limits, and `refusal` is the failure that it was refused with.
    """

    scope: Scope
    receive: Receive
    service: Service
    principal: Principal
    received_at: float
    request_id: RequestId | None = None
    body_was_read: bool = False
    shows_limits: bool = False
    refusal: Failure | None = None

    @property
    def facade(self) -> Facade:
        """The facade of the service."""
        return self.service.facade

    def is_stopping(self) -> bool:
        """Return True once the service takes no new work."""
        return not self.service.readiness().ready

    def correlate(self, request_id: RequestId | None = None) -> Correlation:
        """Return the ids of a response that no execution gave."""
        return correlate(self.scope, self.facade.new_id, request_id)

    def json_response(self, body: bytes, status: int = 200, *, request_id: RequestId | None = None) -> Response:
        """Return a response with this JSON."""
        return WholeResponse(status, body, (JSON, *self.correlate(request_id).headers()))

    def object_response(self, view: BaseModel, status: int = 200, *, request_id: RequestId | None = None) -> Response:
        """Return a response with one object."""
        return self.json_response(view.model_dump_json(by_alias=True).encode(), status, request_id=request_id)

    def page_response(self, data: Sequence[object], following: str | int | None) -> Response:
        """Return one page of a collection; `following` is the start of the next page, None on the last."""
        return self.json_response(orjson.dumps({"data": data, "has_more": following is not None, "next": following}))


async def request_context(request: Request) -> RequestContext:
    """Return the context of the request, the same one to every dependency and exception handler."""
    return context_of(request)


def context_of(request: Request) -> RequestContext:
    """Return the context of the request, which is made at first use."""
    scope = request.scope
    context: RequestContext | None = scope.get(CONTEXT_KEY)
    if context is None:
        service: Service = scope["app"].state.service
        context = RequestContext(scope, request.receive, service, LOCAL, get_running_loop().time())
        scope[CONTEXT_KEY] = context
    return context


Context = Annotated[RequestContext, Depends(request_context)]
