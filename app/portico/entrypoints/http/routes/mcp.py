"""`/mcp`: the MCP server over HTTP, behind the SDK's transport.

The caller is known, and the body is read and strictly JSON, before the SDK sees a request. Refusals until then are
problem documents; from then on errors are those of the protocol.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import orjson
from mcp import types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from portico.bootstrap.service import Service
from portico.domain.access.channels import MCP as MCP_CHANNEL
from portico.domain.access.principal import Permission, Principal
from portico.domain.credentials import NO_CREDENTIALS
from portico.domain.failures import AccessFailure, Code, RequestFailure
from portico.domain.strict_json import StrictJsonError, loads
from portico.entrypoints.http.body import read_body
from portico.entrypoints.http.context import (
    CONTEXT_KEY,
    CREDENTIALS_KEY,
    ENTRANCE_KEY,
    RESOURCE_METADATA_KEY,
    RequestContext,
    context_of,
    tool_credentials,
)
from portico.entrypoints.http.errors import JSON, WholeResponse
from portico.entrypoints.mcp.calls import CallRules
from portico.entrypoints.mcp.server import PorticoServer, RequestCaller
from portico.entrypoints.person_waits import WaitingRequests
from portico.orchestration.facade import CallOptions
from portico.settings import Settings

MCP: Final = "/mcp"
METADATA: Final = "/.well-known/oauth-protected-resource"
SESSION_SECONDS: Final = 600.0
MAX_SESSIONS: Final = 1_000
SESSIONS_OF_USER: Final = 50
CHECK_SECONDS: Final = 1.0
"""Time between two looks at whether an open stream may stay open."""
_SESSION_ID: Final = b"mcp-session-id"
_SPACE: Final = b" \t"
_SCOPES_OF_OBJECTS: Final = ("agent:*", "model:*", "tool:*")


class BoundSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, of which one user has at most `SESSIONS_OF_USER`."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        own = sum(each == requestor for each in self._session_owners.values())
        return None if own >= SESSIONS_OF_USER else super()._admit_session(requestor)


class McpEndpoint:
    """ASGI application of `/mcp`, while the service runs that it is `opened` for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._origins = frozenset(settings.mcp.origins)
        self._resource = resource_of(settings)
        self._metadata_url = None if self._resource is None else f"{settings.server.public_url}{METADATA}{MCP}"
        self._sessions: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def opened(self, service: Service) -> AsyncIterator[None]:
        """Answer requests with that service."""
        settings = self._settings
        rules = CallRules(
            wait=settings.mcp.wait,
            max_depth=settings.limits.json_depth,
            self_approval=settings.policy.self_approval,
            cancels=settings.mcp.has_sessions(settings.storage),
            waiting=WaitingRequests(settings.mcp.waiting),
            is_stopping=lambda: not service.readiness().ready,
        )
        server = PorticoServer(service.facade, settings.mcp.expose, rules, caller_of)
        self._sessions = BoundSessions(
            server.build(),
            stateless=not settings.mcp.has_sessions(settings.storage),
            session_idle_timeout=SESSION_SECONDS,
            max_sessions=MAX_SESSIONS,
            max_request_body_size=settings.limits.body_bytes,
        )
        async with self._sessions.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._sessions is not None  # noqa: S101 - requests come while the service is open
        context = context_of(Request(scope, receive))
        scope[RESOURCE_METADATA_KEY] = self._metadata_url
        self._require_origin(scope)
        scope[ENTRANCE_KEY] = MCP_CHANNEL
        await context.authenticate(audience=self._resource)
        scope["user"] = _user(context.principal)
        if scope["method"] == "GET":
            await self._stream(context, send)
            return
        begins = scope["method"] == "POST" and not any(name == _SESSION_ID for name, _ in scope["headers"])
        if begins and context.is_stopping():
            raise RequestFailure(Code.REQUEST_SHUTTING_DOWN, "the service is stopping", retry_after=1)
        if scope["method"] == "POST":
            body = await read_body(dict(scope["headers"]), receive, self._settings.limits.body_bytes)
            context.body_was_read = True
            try:
                loads(body, max_depth=self._settings.limits.json_depth)
            except StrictJsonError as error:
                await _parse_error(error, context)(scope, receive, send)
                return
            receive = _replayed(body, receive)
        scope["headers"] = [(name, value.strip(_SPACE)) for name, value in scope["headers"]]  # [RFC 9110, section 5.5]
        await self._sessions.handle_request(scope, receive, send)

    async def _stream(self, context: RequestContext, send: Send) -> None:
        """Serve a stream of a session until the client leaves, the service stops, or the caller loses its access."""
        assert self._sessions is not None  # noqa: S101 - as above
        if context.is_stopping():
            raise RequestFailure(Code.REQUEST_SHUTTING_DOWN, "the service is stopping", retry_after=1)
        is_permitted = context.permission_check
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while True:
                    await anyio.sleep(CHECK_SECONDS)
                    if context.is_stopping() or (is_permitted is not None and not await is_permitted()):
                        group.cancel_scope.cancel()

            stream = _Stream(send)
            group.start_soon(watch)
            await self._sessions.handle_request(context.scope, context.receive, stream.send)
            group.cancel_scope.cancel()
        await stream.end()

    def _require_origin(self, scope: Scope) -> None:
        """Refuse the pages of other hosts. Raises: AccessFailure (ACCESS_DENIED)."""
        origin = dict(scope["headers"]).get(b"origin", b"").decode("latin-1").lower()
        if origin and origin not in self._origins and not self._is_allowed(origin):
            raise AccessFailure(Code.ACCESS_DENIED, "pages of this origin may not call: it is none of mcp.origins")

    def _is_allowed(self, origin: str) -> bool:
        try:
            netloc = urlsplit(origin).netloc
        except ValueError:
            return False
        name, _, port = netloc.rpartition(":")
        host = name if port.isdigit() and name else netloc
        allowed = [pattern.lower() for pattern in self._settings.allowed_hosts]
        return "*" in allowed or host in allowed or any(host.endswith(each[1:]) for each in allowed if each[:2] == "*.")


class _Stream:
    """A response that can be ended from outside of the application that sends it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_open = False

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        await self._send(message)
        self._is_open = message["type"] == "http.response.start" or message.get("more_body", False)

    async def end(self) -> None:
        """End the response if it has begun and not ended."""
        if self._is_open:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def mcp_routes(endpoint: McpEndpoint, settings: Settings) -> list[Route]:
    """Return the route of that endpoint and, if tokens can be for it, those of its metadata [RFC 9728]."""
    routes = [Route(MCP, endpoint, methods=["POST", "GET", "DELETE"])]
    resource = resource_of(settings)
    if resource is None:
        return routes
    metadata = orjson.dumps(
        {
            "resource": resource,
            "authorization_servers": [settings.auth.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": sorted([*Permission, *_SCOPES_OF_OBJECTS]),
        }
    )

    async def show_metadata(request: Request) -> Response:
        return context_of(request).json_response(metadata)

    return [*routes, *(Route(path, show_metadata, methods=["GET"]) for path in (METADATA, METADATA + MCP))]


def resource_of(settings: Settings) -> str | None:
    """Return the identifier of `/mcp` for the issuer of tokens [RFC 9728]; None if there is none."""
    return f"{settings.server.public_url}{MCP}" if settings.auth.mode == "jwt" else None


def caller_of(context: ServerRequestContext[Any, Any]) -> RequestCaller:
    """Return who sends a request of the protocol: the caller of the HTTP request that carries it."""
    assert context.request is not None  # noqa: S101 - this transport gives each its request
    http: RequestContext = context.request.scope[CONTEXT_KEY]
    trace_id, parent_span_id, sampled = http.trace
    options = CallOptions(
        trace_id,
        parent_span_id,
        sampled,
        subscribe=context.meta is not None and context.meta.get("progress_token") is not None,
        authentication_ms=http.authentication_ms,
        credentials=tool_credentials(http) if CREDENTIALS_KEY in http.scope else NO_CREDENTIALS,
    )
    return RequestCaller(http.principal, options)


def _user(principal: Principal) -> AuthenticatedUser:
    """Return the owner of a session for the SDK, which compares the name and the subject."""
    return AuthenticatedUser(AccessToken(token="", client_id=principal.tenant, scopes=[], subject=principal.user))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body again, and then what follows."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


def _parse_error(error: StrictJsonError, context: RequestContext) -> WholeResponse:
    message = f"the body is not acceptable JSON: {error.reason}"
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": types.PARSE_ERROR, "message": message}}
    return WholeResponse(400, orjson.dumps(body), (JSON, *context.correlate().headers()))
