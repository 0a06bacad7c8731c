"""`POST /v1/quote`: one `SystemRequest` in; the most that it can come to out. Nothing runs."""

from starlette.types import Receive, Scope, Send

from app.bootstrap.service import Service
from app.domain.access import LOCAL
from app.domain.contract.request import SystemRequest
from app.entrypoints.http.body_handler import with_json_body
from app.entrypoints.http.correlation import correlate
from app.entrypoints.http.errors import JSON, WholeResponse


class QuoteRoute:
    """The route, as an ASGI application. What execute refuses before it begins is refused here in the same way."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service

        async def quoted(request: SystemRequest) -> WholeResponse:
            found = await service.facade.quote(request, LOCAL)
            ids = correlate(scope, service.facade.new_id, request.request_id)
            return WholeResponse(200, found.model_dump_json().encode(), (JSON, *ids.headers()))

        answer = await with_json_body(scope, receive, model=SystemRequest, answer=quoted)
        if answer is not None:
            await answer(scope, receive, send)
