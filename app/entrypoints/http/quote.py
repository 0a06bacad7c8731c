"""`POST /v1/quote`: one `SystemRequest` in; the most that it can come to out. Nothing runs."""

from starlette.types import Receive, Scope, Send

from app.bootstrap import Service
from app.domain.access import LOCAL
from app.domain.boundary import SystemRequest
from app.entrypoints.http.correlation import correlate
from app.entrypoints.http.errors import JSON, Answer
from app.entrypoints.http.taking import taken


class Quote:
    """The route, as an ASGI application. What execute refuses before it begins is refused here in the same way."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service

        async def quoted(request: SystemRequest) -> Answer:
            found = await service.facade.quote(request, LOCAL)
            ids = correlate(scope, service.facade.new_id, request.request_id)
            return Answer(200, found.model_dump_json().encode(), (JSON, *ids.headers()))

        answer = await taken(scope, receive, quoted)
        if answer is not None:
            await answer(scope, receive, send)
