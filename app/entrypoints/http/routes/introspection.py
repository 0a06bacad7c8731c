"""What is registered here, and whether it runs: the routes that only read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from app.bootstrap.service import Service
from app.domain.diagrams import machines
from app.domain.failures import TAXONOMY, FailureRow
from app.entrypoints.http.errors import JSON, WholeResponse


@dataclass(frozen=True, slots=True)
class IntrospectionRoute:
    """A route that shows a piece of the service, as an ASGI application."""

    show: Callable[[Service], WholeResponse]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.show(scope["app"].state.service)(scope, receive, send)


def tools(service: Service) -> WholeResponse:
    """Registered tools."""
    return _collection(_dumped(service.facade.introspection.tools()))


def engines(service: Service) -> WholeResponse:
    """Configured engines."""
    return _collection(_dumped(service.facade.introspection.engines()))


def errors(_: Service) -> WholeResponse:
    """The taxonomy, in its own order."""
    return _collection([_code(row) for row in TAXONOMY.values()])


def state_machines(_: Service) -> WholeResponse:
    """The lifecycles and the fallback grid."""
    return _collection(machines())


def liveness(_: Service) -> WholeResponse:
    """Whether the process answers: that it does is the answer."""
    return WholeResponse(200, b'{"alive":true}')


def readiness(service: Service) -> WholeResponse:
    """Whether it takes work; 503 says that it does not."""
    found = service.readiness()
    return WholeResponse(200 if found.ready else 503, found.model_dump_json().encode())


def metrics(service: Service) -> WholeResponse:
    """The Prometheus exposition."""
    body, media_type = service.metrics()
    return WholeResponse(200, body, ((b"content-type", media_type.encode()),))


INTROSPECTION: Mapping[str, Callable[[Service], WholeResponse]] = MappingProxyType(
    {
        "/v1/tools": tools,
        "/v1/engines": engines,
        "/v1/errors": errors,
        "/v1/machines": state_machines,
        "/livez": liveness,
        "/readyz": readiness,
        "/metrics": metrics,
    }
)


def _collection(data: Sequence[Any]) -> WholeResponse:
    return WholeResponse(200, orjson.dumps({"data": data}), (JSON,))


def _dumped(views: Sequence[BaseModel]) -> list[dict[str, Any]]:
    return [view.model_dump(mode="json", by_alias=True) for view in views]


def _code(row: FailureRow) -> dict[str, Any]:
    return {
        "code": row.code,
        "category": row.category,
        "meaning": row.meaning,
        "recovery": row.recovery,
        "variants": row.variants,
    }
