"""Routes of client APIs: their errors have the shape that their clients read, and some read `x-api-key`."""

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from portico.domain.access.channels import AG_UI, ANTHROPIC, OPENAI
from portico.domain.ids import ChannelName
from portico.entrypoints.http.client_apis.errors import ErrorShape
from portico.entrypoints.http.context import ENTRANCE_KEY, RequestContext, context_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ClientRoute(APIRoute):
    """The route of a client API whose endpoint takes the context only and authenticates the caller by itself.

    Like that of `execute` it has no solver of dependencies. The annotations of the endpoint only describe it.
    """

    error_shape: ClassVar[ErrorShape]
    entrance: ClassVar[ChannelName]
    reads_api_key: ClassVar[bool] = False

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Pass by other paths at once. FastAPI's own look costs ten times as much, and several routes come first."""
        return super().matches(scope) if scope["path"].endswith(self.path) else (Match.NONE, {})

    def get_route_handler(self) -> Handler:
        endpoint: Callable[[RequestContext], Coroutine[Any, Any, Response]] = self.endpoint

        async def handle(request: Request) -> Response:
            context = context_of(request)
            context.error_shape, context.reads_api_key = self.error_shape, self.reads_api_key
            request.scope[ENTRANCE_KEY] = self.entrance
            return await endpoint(context)

        return handle


class OpenAiRoute(ClientRoute):
    """A route that OpenAI's clients call."""

    error_shape = ErrorShape.OPENAI
    entrance = OPENAI


class OpenAiReadRoute(APIRoute):
    """A route that OpenAI's clients call, with parameters that FastAPI reads."""

    def get_route_handler(self) -> Handler:
        solve = super().get_route_handler()

        async def handle(request: Request) -> Response:
            context = context_of(request)
            context.error_shape, request.scope[ENTRANCE_KEY] = ErrorShape.OPENAI, OPENAI
            return await solve(request)

        return handle


class AgUiRoute(APIRoute):
    """A route that clients of AG-UI call."""

    def get_route_handler(self) -> Handler:
        solve = super().get_route_handler()

        async def handle(request: Request) -> Response:
            request.scope[ENTRANCE_KEY] = AG_UI
            return await solve(request)

        return handle


class AnthropicRoute(ClientRoute):
    """A route that Anthropic's clients call."""

    error_shape = ErrorShape.ANTHROPIC
    entrance = ANTHROPIC
    reads_api_key = True


class ModelRoute(APIRoute):
    """A route that the clients of both APIs call: those of Anthropic send `anthropic-version`."""

    def get_route_handler(self) -> Handler:
        solve = super().get_route_handler()

        async def handle(request: Request) -> Response:
            context = context_of(request)
            context.error_shape, context.reads_api_key = shape_of_client(context), True
            request.scope[ENTRANCE_KEY] = ANTHROPIC if context.error_shape is ErrorShape.ANTHROPIC else OPENAI
            return await solve(request)

        return handle


def shape_of_client(context: RequestContext) -> ErrorShape:
    """Return the shape that the client reads, by its header `anthropic-version`."""
    is_anthropic = any(name == b"anthropic-version" for name, _ in context.scope["headers"])
    return ErrorShape.ANTHROPIC if is_anthropic else ErrorShape.OPENAI
