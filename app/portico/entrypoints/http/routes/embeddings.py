"""`POST /v1/embeddings`: vectors of texts by the configured embedder, as OpenAI's clients ask for them."""

from fastapi import APIRouter
from starlette.responses import Response

from portico.domain.failures import Code, invalid_request
from portico.entrypoints.http.body import read_model
from portico.entrypoints.http.client_apis.embeddings import EmbeddingAnswer, EmbeddingRequest, encode
from portico.entrypoints.http.client_apis.errors import MODEL_NOT_FOUND, not_found
from portico.entrypoints.http.client_response import ignored_header, model_names
from portico.entrypoints.http.client_route import OpenAiRoute
from portico.entrypoints.http.context import Context
from portico.entrypoints.http.errors import JSON, WholeResponse
from portico.entrypoints.http.openapi.responses import TRACEPARENT, describe_body, failures

router = APIRouter(tags=["clients"], route_class=OpenAiRoute)
_REFUSALS = (
    *(Code.REQUEST_INVALID, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.REQUEST_NOT_FOUND),
    *(Code.REQUEST_RATE_LIMITED, Code.ACCESS_DENIED, Code.ORCHESTRATION_BUDGET_EXCEEDED, Code.STORAGE_UNAVAILABLE),
    *(Code.INFERENCE_MODEL_UNAVAILABLE, Code.INFERENCE_ENGINE_ERROR, Code.INFERENCE_MALFORMED_RESPONSE),
)


@router.post(
    "/v1/embeddings",
    operation_id="createEmbedding",
    summary="Embed texts like OpenAI's embeddings",
    response_model=EmbeddingAnswer,
    response_description="The vectors",
    responses=failures(*_REFUSALS),
    openapi_extra=describe_body(EmbeddingRequest, TRACEPARENT),
)
async def embeddings(context: Context) -> Response:
    """Return the vectors of up to 256 texts. `model` is the engine of `memory.embedder`, or an alias of it. It takes a
    request, and the tokens and their cost, from the caller's limits, and stands in its usage.
    """
    request = await read_model(context, EmbeddingRequest)
    context.shows_limits = True
    embedder = context.facade.memory.embeddings
    if embedder.name is None or model_names(context).aliased(request.model) != embedder.name:
        raise not_found("model", "must be the engine of memory.embedder, or an alias of it", MODEL_NOT_FOUND)
    if request.dimensions not in {None, embedder.dimension}:
        raise invalid_request(("dimensions", "must be those of memory.dimensions"))
    embedded = await embedder.embed(request.texts, context.principal)
    headers = (JSON, *context.correlate().headers(), *ignored_header(request.ignored))
    tokens = 0 if embedded.charge is None else embedded.charge.tokens
    return WholeResponse(200, encode(embedded.vectors, tokens, request), headers)
