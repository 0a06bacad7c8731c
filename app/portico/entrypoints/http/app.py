"""HTTP application: the routes, the middleware around them, and the service that they call."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from copy import copy
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.bootstrap.service import Service, open_service
from portico.domain.value import value
from portico.entrypoints.http.client_apis.responses import responses_api
from portico.entrypoints.http.exception_handlers import HANDLERS
from portico.entrypoints.http.middleware import AdmissionMiddleware, CorrelationMiddleware, Listeners
from portico.entrypoints.http.routes import (
    access,
    ag_ui,
    changes,
    chat_completions,
    console,
    credentials,
    docs,
    embeddings,
    execute,
    executions,
    files,
    grants,
    introspection,
    memory,
    messages,
    models,
    probes,
    quote,
    responses,
    schedules,
    sessions,
    usage,
    webhooks,
)
from portico.entrypoints.http.trace_front import TraceFront
from portico.entrypoints.person_waits import WaitingRequests
from portico.settings import Settings, is_loopback

_EXPOSED_HEADERS: Final = (
    *("location", "x-should-retry", "portico-ignored", "preference-applied", "retry-after", "ratelimit"),
    *("ratelimit-policy", "idempotency-replayed", "traceparent", "x-request-id", "server-timing"),
)
"""Headers of responses that pages of other origins may read."""
ServiceOpener = Callable[[Settings], AbstractAsyncContextManager[Service]]


class PorticoApi(FastAPI):
    """FastAPI with a description that adds what the routes cannot declare, and a page of it that needs no network.

    While traces are exported, requests come in at its `front`.
    """

    front: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.front is None or scope["type"] != "http":
            await super().__call__(scope, receive, send)
        else:
            scope["app"] = self
            await self.front(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            from portico.entrypoints.http.openapi.document import openapi_document  # noqa: PLC0415 - asked for by few

            self.openapi_schema = openapi_document(self)
        return self.openapi_schema


def create_app(settings: Settings, opener: ServiceOpener = open_service) -> FastAPI:
    """Return the application of one service, which its lifespan opens and closes.

    It is made for uvicorn with `http=BoundedProtocol`, and for a server that drains `app.state.service` before it
    closes its listener.
    """
    mcp = _mcp_parts(settings)
    app = PorticoApi(
        title="Portico",
        version=version("portico"),
        routes=[*_api_routes(), *_pages(settings), *mcp.routes],
        middleware=[
            Middleware(CorrelationMiddleware, new_id=_new_id),
            *_cors(settings),
            Middleware(AdmissionMiddleware, new_id=_new_id, listeners=_listeners(settings)),
        ],
        exception_handlers=dict(HANDLERS),
        lifespan=_lifespan(settings, opener, mcp.opened),
        telemetry=_no_telemetry(),
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    app.state.waiting = WaitingRequests(settings.ingress.waiting)
    return app


def _cors(settings: Settings) -> list[Middleware]:
    """Return what lets the pages of the configured origins call the service; nothing without such origins."""
    origins = settings.server.cors_origins
    if not origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("GET", "POST", "PATCH", "PUT", "DELETE"),
        allow_headers=["*"],
        expose_headers=_EXPOSED_HEADERS,
        max_age=600,
    )
    return [cors]


def _listeners(settings: Settings) -> Listeners:
    server = settings.server
    return Listeners(settings.allowed_hosts, server.metrics_port, is_public=not is_loopback(server.metrics_host))


def _no_telemetry() -> TelemetryConfig:
    """Turn off FastAPI's own spans and metrics, because both are made from events."""
    return {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}


@cache
def _api_routes() -> Sequence[BaseRoute]:
    """Return the routes of all routers, and HEAD for every GET; made once, since each takes a millisecond.

    `include_router` would match every request twice, once in the application and once in the router.
    """
    modules = (
        execute,
        chat_completions,
        messages,
        responses,
        ag_ui,
        embeddings,
        models,
        quote,
        executions,
        credentials,
        grants,
        changes,
        sessions,
        files,
        memory,
        schedules,
        access,
        usage,
        webhooks,
        introspection,
        probes,
        docs,
    )
    routes = [route for module in modules for route in module.router.routes]
    heads = [_head_of(route) for route in routes if isinstance(route, APIRoute) and "GET" in (route.methods or ())]
    return (*routes, *heads)


def _head_of(route: APIRoute) -> APIRoute:
    """Return the same route for HEAD, which the description leaves out."""
    head = copy(route)
    head.methods, head.include_in_schema = {"HEAD"}, False
    return head


def _pages(settings: Settings) -> Sequence[BaseRoute]:
    """Return the routes of the console, if it is enabled."""
    return console.console_routes() if settings.console.enabled else ()


def _nothing_opened(_: Service) -> AbstractAsyncContextManager[None]:
    return nullcontext()


@value
class _McpParts:
    """Routes of the MCP server, and what runs while they are served."""

    routes: Sequence[BaseRoute] = ()
    opened: Callable[[Service], AbstractAsyncContextManager[None]] = _nothing_opened


def _mcp_parts(settings: Settings) -> _McpParts:
    """Return the parts of the MCP server, whose libraries are imported only if it is enabled."""
    if not settings.mcp.enabled:
        return _McpParts()
    from portico.entrypoints.http.routes.mcp import McpEndpoint, mcp_routes  # noqa: PLC0415 - see above

    endpoint = McpEndpoint(settings)
    return _McpParts(mcp_routes(endpoint, settings), endpoint.opened)


def _lifespan(
    settings: Settings, opener: ServiceOpener, opened: Callable[[Service], AbstractAsyncContextManager[None]]
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opener(settings) as service, opened(service):
            app.state.service = service
            app.state.responses_api = responses_api(service.facade.now)
            with _front(app, service):
                yield

    return lifespan


@contextmanager
def _front(app: FastAPI, service: Service) -> Iterator[None]:
    """Let requests come in at a front while traces are exported."""
    spans = service.server_spans
    if spans is None or not isinstance(app, PorticoApi):
        yield
        return
    plain = app.middleware_stack = app.middleware_stack or app.build_middleware_stack()
    with spans.instrumented(app) as recorded:
        app.front = TraceFront(plain, recorded, spans.decide)
        try:
            yield
        finally:
            app.front = None


def _new_id(scope: Scope) -> str:
    service: Service = scope["app"].state.service
    return service.facade.new_id()
