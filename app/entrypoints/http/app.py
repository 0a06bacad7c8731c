"""The HTTP application: routes, what surrounds each of them, and the service they speak to."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.bootstrap.service import Service, open_service
from app.domain.failures import Code, RequestFailure
from app.entrypoints.http.correlation import correlate
from app.entrypoints.http.errors import problem_response
from app.entrypoints.http.middleware import AdmissionMiddleware, CorrelationMiddleware
from app.entrypoints.http.openapi import CONTRACT_VERSION, openapi_document
from app.entrypoints.http.routes.execute import ExecuteRoute
from app.entrypoints.http.routes.executions import BODY_COMMANDS, COMMANDS, QUERIES, BodylessRoute
from app.entrypoints.http.routes.introspection import INTROSPECTION, IntrospectionRoute
from app.entrypoints.http.routes.quote import QuoteRoute
from app.entrypoints.http.routes.sessions import ROUTES as SESSION_ROUTES
from app.settings import Settings

EXECUTE, QUOTE = "/v1/execute", "/v1/quote"
Opener = Callable[[Settings], AbstractAsyncContextManager[Service]]


class Api(FastAPI):
    """FastAPI with a description of its own, and with one route that goes past it.

    What FastAPI puts around a route is a dozen coroutines, which stay for as long as a stream does, and a wrapper
    around every frame it sends. So what posts to `EXECUTE` gets `surrounded`, which has what holds for every answer,
    and nothing else; the router knows the route too, for what it says of other methods. The docs page loads its
    scripts from a CDN; the API needs none of it.
    """

    surrounded: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == EXECUTE and scope["method"] == "POST":
            scope["app"] = self
            await self.surrounded(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            self.openapi_schema = openapi_document()
        return self.openapi_schema


def create_app(settings: Settings, opener: Opener = open_service) -> FastAPI:
    """The application of one service, which its lifespan opens and closes.

    It is meant for uvicorn with `http=BoundedProtocol` of `limits`, and for a server that drains `app.state.service`
    before it closes its listener.
    """
    hosts = settings.server.allowed_hosts
    api = Api(
        title="Portico",
        version=CONTRACT_VERSION,
        routes=_routes(),
        middleware=[
            Middleware(CorrelationMiddleware, new_id=_new_id),
            Middleware(AdmissionMiddleware, new_id=_new_id, allowed_hosts=hosts),
        ],
        exception_handlers={HTTPException: _refuse_route},
        lifespan=_lifespan(settings, opener),
        telemetry=_no_telemetry(),
        redirect_slashes=False,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    api.surrounded = CorrelationMiddleware(
        AdmissionMiddleware(ExecuteRoute(), new_id=_new_id, allowed_hosts=hosts), new_id=_new_id
    )
    return api


def _no_telemetry() -> TelemetryConfig:
    """Spans and metrics are made from events, once, and not by the framework a second time."""
    return {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


def _routes() -> list[BaseRoute]:
    pages = [Route(path, IntrospectionRoute(show), methods=["GET"]) for path, show in INTROSPECTION.items()]
    reads = [Route(path, BodylessRoute(answer), methods=["GET"]) for path, answer in QUERIES.items()]
    orders = {path: BodylessRoute(answer) for path, answer in COMMANDS.items()}
    posts: dict[str, ASGIApp] = {EXECUTE: ExecuteRoute(), QUOTE: QuoteRoute(), **BODY_COMMANDS, **orders}
    sessions = [Route(path, each, methods=[*each.applications]) for path, each in SESSION_ROUTES.items()]
    return [*(Route(path, route, methods=["POST"]) for path, route in posts.items()), *reads, *sessions, *pages]


def _lifespan(settings: Settings, opener: Opener) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opener(settings) as service:
            app.state.service = service
            yield

    return lifespan


def _new_id(scope: Scope) -> str:
    service: Service = scope["app"].state.service
    return service.facade.new_id()


async def _refuse_route(request: Request, refused: HTTPException) -> Response:
    """The answer where no route matches; 405 keeps its Allow header."""
    condition = {404: "path", 405: "method"}[refused.status_code]
    message = "there is nothing under this path" if condition == "path" else "the path has no such method"
    failure = RequestFailure(Code.REQUEST_NOT_FOUND, message, condition=condition)
    answer = problem_response(failure, correlate(request.scope, lambda: _new_id(request.scope)))
    response = Response(answer.body, answer.status, refused.headers)
    response.raw_headers.extend(answer.headers)
    return response
