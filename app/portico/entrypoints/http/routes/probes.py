"""Probes, which need no key: liveness and readiness; metrics need one on a public listener."""

from typing import Literal

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field
from starlette.responses import PlainTextResponse, Response

from portico.bootstrap.service import Readiness
from portico.domain.access.principal import Permission
from portico.domain.failures import AccessFailure, Code
from portico.entrypoints.http.context import PublicContext, context_of
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.openapi.responses import failures
from portico.settings import is_loopback

router = APIRouter(tags=["operations"])


class Alive(BaseModel):
    """Liveness of the process."""

    alive: Literal[True] = Field(description="Always true.")


@router.get("/livez", operation_id="getLiveness", summary="Check the liveness of the process", response_model=Alive)
async def show_liveness() -> Response:
    """Respond, which proves that the process is alive."""
    return WholeResponse(200, b'{"alive":true}')


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Check the readiness for requests",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Not ready, with the reason"}},
)
async def show_readiness(context: PublicContext) -> Response:
    """Return 200 while the service takes requests, else 503."""
    found = context.service.readiness()
    return WholeResponse(200 if found.ready else 503, found.model_dump_json().encode())


async def metrics_reader(request: Request) -> None:
    """Require the permission for metrics on a public listener that other requests reach, too.

    Raises: AccessFailure; StorageFailure.
    """
    context = context_of(request)
    server = context.service.settings.server
    if server.metrics_port is not None or is_loopback(server.host):
        return
    await context.authenticate()
    if not context.principal.permissions.allows(Permission.READ_METRICS):
        details = {"permission": str(Permission.READ_METRICS)}
        raise AccessFailure(Code.ACCESS_DENIED, "the caller may not read the metrics", details)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Show Prometheus metrics",
    response_class=PlainTextResponse,
    responses=failures(Code.ACCESS_UNAUTHENTICATED, Code.ACCESS_DENIED, Code.REQUEST_NOT_FOUND),
    dependencies=[Depends(metrics_reader)],
)
async def show_metrics(context: PublicContext) -> Response:
    """Return the Prometheus exposition. On a public listener it needs the permission `can_read_metrics`; with
    `server.metrics_port` it is on that port only, and needs none.
    """
    body, media_type = context.service.metrics()
    return WholeResponse(200, body, ((b"content-type", media_type.encode()),))
