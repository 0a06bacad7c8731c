"""`POST /v1/messages` and its count of tokens, as Anthropic's clients call them."""

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from portico.entrypoints.http.client_apis.messages import MESSAGES
from portico.entrypoints.http.client_response import answer, count_tokens
from portico.entrypoints.http.client_route import AnthropicRoute
from portico.entrypoints.http.context import Context
from portico.entrypoints.http.openapi.responses import (
    IDEMPOTENCY_KEY,
    TRACEPARENT,
    client_responses,
    describe_client_body,
)

router = APIRouter(tags=["clients"], route_class=AnthropicRoute)


@router.post(
    "/v1/messages",
    operation_id="createMessage",
    summary="Answer like Anthropic's Messages",
    response_class=Response,
    responses=client_responses("A `message`; with `stream`, its events"),
    openapi_extra=describe_client_body("messages", TRACEPARENT, IDEMPOTENCY_KEY),
)
async def messages(context: Context) -> Response:
    """Run the request and answer as Anthropic's clients expect. `model` is an agent, a route, an engine, an alias, or
    `flow:NAME`. The credentials may be in `x-api-key`. What is ignored is named by the header `portico-ignored`; what
    cannot be done is refused by name. The object `portico` has what these clients cannot say otherwise.
    """
    return await answer(context, MESSAGES)


@router.post(
    "/v1/messages/count_tokens",
    operation_id="countMessageTokens",
    summary="Count the tokens of a request like Anthropic's Messages",
    response_class=Response,
    responses=client_responses("`input_tokens`, an estimate"),
    openapi_extra=describe_client_body("messages", TRACEPARENT),
)
async def count_message_tokens(context: Context) -> Response:
    """Return the estimated tokens that the first inference of the request reads. Nothing runs."""
    tokens = await count_tokens(context, MESSAGES)
    return context.json_response(orjson.dumps({"input_tokens": tokens}))
