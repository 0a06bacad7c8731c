"""`POST /v1/chat/completions`, as the clients of OpenAI and of servers like it call it."""

from fastapi import APIRouter
from starlette.responses import Response

from portico.entrypoints.http.client_apis.chat_completions import CHAT_COMPLETIONS
from portico.entrypoints.http.client_response import answer
from portico.entrypoints.http.client_route import OpenAiRoute
from portico.entrypoints.http.context import Context
from portico.entrypoints.http.openapi.responses import (
    IDEMPOTENCY_KEY,
    TRACEPARENT,
    client_responses,
    describe_client_body,
)

router = APIRouter(tags=["clients"], route_class=OpenAiRoute)


@router.post(
    "/v1/chat/completions",
    operation_id="createChatCompletion",
    summary="Answer like OpenAI's chat completions",
    response_class=Response,
    responses=client_responses("A `chat.completion`; with `stream`, its chunks and `[DONE]`"),
    openapi_extra=describe_client_body("messages", TRACEPARENT, IDEMPOTENCY_KEY),
)
async def chat_completions(context: Context) -> Response:
    """Run the request and answer as OpenAI's clients expect. `model` is an agent, a route, an engine, an alias, or
    `flow:NAME`. What is ignored is named by the header `portico-ignored`; what cannot be done is refused by name. The
    object `portico` has what these clients cannot say otherwise.
    """
    return await answer(context, CHAT_COMPLETIONS)
