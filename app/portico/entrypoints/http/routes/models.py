"""`GET /v1/models`: the names that a client API takes as `model`, as the clients of OpenAI and Anthropic read them."""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path
from starlette.responses import Response

from portico.domain.failures import Code
from portico.entrypoints.http.client_apis.errors import MODEL_NOT_FOUND, not_found
from portico.entrypoints.http.client_apis.models import AGENT, listed_models, model_list, model_object
from portico.entrypoints.http.client_route import ModelRoute, shape_of_client
from portico.entrypoints.http.context import AUTHENTICATED, Context, RequestContext
from portico.entrypoints.http.openapi.responses import failures

router = APIRouter(tags=["clients"], route_class=ModelRoute, dependencies=[AUTHENTICATED])
_OBJECT: Mapping[str, Any] = {"content": {"application/json": {"schema": {"type": "object"}}}}


@router.get(
    "/v1/models",
    operation_id="listModels",
    summary="List the models of the client APIs",
    response_class=Response,
    response_description="The names that the caller may use, sorted, as the header `anthropic-version` decides",
    responses={200: dict(_OBJECT), **failures(Code.STORAGE_UNAVAILABLE)},
)
async def list_models(context: Context) -> Response:
    """Return every agent, route and engine that the caller may use, each flow as `flow:NAME`, and exact aliases."""
    return context.json_response(orjson.dumps(model_list(_names(context), shape_of_client(context))))


@router.get(
    "/v1/models/{model:path}",
    operation_id="getModel",
    summary="Show a model of the client APIs",
    response_class=Response,
    response_description="The model, as the header `anthropic-version` decides",
    responses={200: dict(_OBJECT), **failures(Code.REQUEST_NOT_FOUND, Code.STORAGE_UNAVAILABLE)},
)
async def show_model(
    context: Context, model: Annotated[str, Path(description="A name from GET /v1/models.")]
) -> Response:
    """Return one of the models that the caller may use."""
    names, agent = _names(context), model.removeprefix(AGENT)
    is_agent = agent != model and agent in names and agent in context.facade.introspection.models.served.agents
    if model not in names and not is_agent:
        raise not_found("model", "must be a name from GET /v1/models", MODEL_NOT_FOUND)
    return context.json_response(orjson.dumps(model_object(model, shape_of_client(context))))


def _names(context: RequestContext) -> list[str]:
    permitted = context.facade.introspection.models.permitted(context.principal.permissions)
    return listed_models(context.service.settings.ingress.models, permitted)
