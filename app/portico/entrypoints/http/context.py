"""Request context: the service, the principal, the trace and the ids of one request.

It is made here for every route. Routes of resources depend on `AUTHENTICATED`, so that no request is looked at further
before its caller is known; probes do not.
"""

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope

from portico.bootstrap.service import Service
from portico.domain.access.api_key import ApiKey
from portico.domain.access.channels import Entrance
from portico.domain.access.principal import Principal
from portico.domain.credentials import fault_of
from portico.domain.failures import Failure, StorageFailure, invalid_request
from portico.domain.ids import API, RequestId, SpanId, TraceId
from portico.entrypoints.http.client_apis.errors import ErrorShape
from portico.entrypoints.http.correlation import Correlation, correlate, request_trace
from portico.entrypoints.http.errors import JSON, WholeResponse
from portico.orchestration.facade import Facade
from portico.ports.access import Authenticator

CONTEXT_KEY = "portico.context"
RESOURCE_METADATA_KEY = "portico.resource_metadata"
"""Key of the scope of a request for a protected resource; its value is the URL of the metadata [RFC 9728]."""
ENTRANCE_KEY: Final = "portico.entrance"
"""Key of the scope of a request that came by another channel than `api`; its value is the channel."""
ENTERED_KEY: Final = "portico.entered"
"""Key of the scope of a request whose channel may have changed the caller; its value is the caller."""
CREDENTIALS_KEY: Final = "portico.credentials"
"""Key of the scope of a request of which a header has the value of a credential of tools."""
_NAMING: Final = frozenset({b"portico-user", b"portico-channel"})


@dataclass(slots=True)
class RequestContext:
    """One request as its route sees it.

    `received_at` is a time of the event loop's clock, and `authentication_ms` is how long it took to find the caller.
    `request_id` is the id that the body names, under which a refusal is answered. `body_was_read` tells whether the
    connection can be used for another request, `shows_limits` whether the response has the caller's limits, and
    `refusal` is the failure that it was refused with. A request of a client API has its `error_shape`; some may have
    their credentials in `x-api-key`.
    """

    scope: Scope
    receive: Receive
    service: Service
    received_at: float
    authentication_ms: float = 0.0
    request_id: RequestId | None = None
    body_was_read: bool = False
    shows_limits: bool = False
    refusal: Failure | None = None
    error_shape: ErrorShape | None = None
    reads_api_key: bool = False
    _principal: Principal | None = None

    async def authenticate(self, *, audience: str | None = None) -> None:
        """Find out who calls, and for whom; a token may be for that `audience`, too.

        Raises: AccessFailure; RequestFailure for headers that name no user or channel; StorageFailure.
        """
        if self._principal is None:
            clock = get_running_loop().time
            began_at = clock()
            principal = await self.service.authenticator.authenticate(
                credentials_of(self) if self.reads_api_key else bearer_credentials(self.scope),
                audience=audience,
            )
            is_plain = self.service.channels.is_empty and ENTRANCE_KEY not in self.scope
            is_named = not {name for name, _ in self.scope["headers"]}.isdisjoint(_NAMING)
            if is_named or not is_plain:
                entrance = _named_entrance(self.scope) if is_named else Entrance(self.scope.get(ENTRANCE_KEY, API))
                principal = self.scope[ENTERED_KEY] = self.service.channels.enter(principal, entrance)
            wanted = self.service.credentials.request_headers
            if wanted and not wanted.keys().isdisjoint([name for name, _ in self.scope["headers"]]):
                self.scope[CREDENTIALS_KEY] = True
            self._principal = principal
            self.authentication_ms = (clock() - began_at) * 1000

    @property
    def permission_check(self) -> Callable[[], Awaitable[bool]] | None:
        """Function that tells whether the caller may still read; None if its access cannot end.

        A key can be revoked, and a token expires.
        """
        principal = self._principal or self.principal
        if principal.key_id is None and principal.expires_at is None:
            return None
        return partial(_is_still_permitted, self.service.authenticator, principal)

    @property
    def principal(self) -> Principal:
        """The caller. Only a route that authenticates has one."""
        if self._principal is None:
            raise RuntimeError("the route does not authenticate its callers")
        return self._principal

    @property
    def principal_name(self) -> str | None:
        """The caller for a log: the public id of its key, also of a refused one, else its tenant and user."""
        if self._principal is None:
            key = ApiKey.parse(credentials_of(self) or "")
            return None if key is None else key.key_id
        return self._principal.key_id or f"{self._principal.tenant}/{self._principal.user}"

    @property
    def trace(self) -> tuple[TraceId | None, SpanId | None, bool | None]:
        """The trace that an execution continues, the span above it, and the decision about it; None without one.

        The span is that of the request if it is recorded, else the caller's.
        """
        trace = request_trace(self.scope)
        if trace is None:
            return None, None, None
        return trace.trace_id, trace.span_id or trace.parent_span_id, trace.sampled

    @property
    def records_traces(self) -> bool:
        """True if traces are exported."""
        return self.service.server_spans is not None

    @property
    def facade(self) -> Facade:
        """The facade of the service."""
        return self.service.facade

    def is_stopping(self) -> bool:
        """Return True once the service takes no new work."""
        return not self.service.readiness().ready

    def correlate(self, request_id: RequestId | None = None) -> Correlation:
        """Return the ids of a response that no execution gave."""
        return correlate(self.scope, self.facade.new_id, request_id)

    def json_response(self, body: bytes, status: int = 200, *, request_id: RequestId | None = None) -> Response:
        """Return a response with this JSON."""
        return WholeResponse(status, body, (JSON, *self.correlate(request_id).headers()))

    def object_response(self, view: BaseModel, status: int = 200, *, request_id: RequestId | None = None) -> Response:
        """Return a response with one object."""
        return self.json_response(view.model_dump_json(by_alias=True).encode(), status, request_id=request_id)

    def page_response(
        self, data: Sequence[object], following: str | int | None, *, request_id: RequestId | None = None
    ) -> Response:
        """Return one page of a collection; `following` is the start of the next page, None on the last."""
        page = {"data": data, "has_more": following is not None, "next": following}
        return self.json_response(orjson.dumps(page), request_id=request_id)


async def _is_still_permitted(authenticator: Authenticator, principal: Principal) -> bool:
    """Return False once the caller's key was revoked, or its key or token has expired."""
    try:
        return await authenticator.is_current(principal)
    except StorageFailure:
        return True


def tool_credentials(context: RequestContext) -> Mapping[str, str]:
    """Return the values of credentials that headers of the request have, by the names of these credentials.

    Raises: RequestFailure (REQUEST_INVALID) for a header that is given twice, or that can be no value.
    """
    wanted, found = context.service.credentials.request_headers, dict[bytes, str]()
    for header, text in context.scope["headers"]:
        if header in wanted:
            given = text.decode("latin-1").strip(" ")
            fault = "must be given once" if header in found else fault_of(given)
            if fault is not None:
                raise invalid_request((header.decode(), fault))
            found[header] = given
    return {name: text for header, text in found.items() for name in wanted[header]}


def context_of(request: Request) -> RequestContext:
    """Return the context of the request, which is made at first use."""
    scope = request.scope
    context: RequestContext | None = scope.get(CONTEXT_KEY)
    if context is None:
        service: Service = scope["app"].state.service
        context = RequestContext(scope, request.receive, service, get_running_loop().time())
        scope[CONTEXT_KEY] = context
    return context


def _named_entrance(scope: Scope) -> Entrance:
    """Return the entrance of a request whose headers name a user or a channel. One given several times is not valid."""
    given: dict[bytes, list[str]] = {name: [] for name in _NAMING}
    for name, value in scope["headers"]:
        if name in _NAMING:
            given[name].append(value.decode("latin-1"))
    named = {name: None if not values else values[0] if len(values) == 1 else "" for name, values in given.items()}
    return Entrance(scope.get(ENTRANCE_KEY, API), named[b"portico-channel"], named[b"portico-user"])


def bearer_credentials(scope: Scope) -> str | None:
    """Return the credentials of the Authorization header; None without one of the scheme Bearer [RFC 6750].

    They are empty, and so are no valid ones, if the header is given more than once.
    """
    given = [value for key, value in scope["headers"] if key == b"authorization"]
    if not given:
        return None
    scheme, _, credentials = given[0].decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        return None
    return credentials.strip(" ") if len(given) == 1 else ""


def credentials_of(context: RequestContext) -> str | None:
    """Return the credentials of the request, from each header that it may have them in.

    None without any; empty, and so no valid ones, if there are several.
    """
    bearer = bearer_credentials(context.scope)
    if not context.reads_api_key:
        return bearer
    keys = {value.decode("latin-1").strip(" ") for name, value in context.scope["headers"] if name == b"x-api-key"}
    keys |= set() if bearer is None else {bearer}
    if len(keys) > 1:
        return ""
    return keys.pop() if keys else None


_SCHEME_NAME = "bearer"


class BearerAuthentication(SecurityBase):
    """Dependency that authenticates the caller; FastAPI describes it as the security scheme of its routes."""

    def __init__(self) -> None:
        self.model = HTTPBearer(
            description="An API key (`ptk_…`), or a token of the configured issuer. Without authentication "
            "(`auth.mode` is `none`) it is not needed."
        )
        self.scheme_name = _SCHEME_NAME

    async def __call__(self, request: Request) -> RequestContext:
        context = context_of(request)
        await context.authenticate()
        return context


async def public_context(request: Request) -> RequestContext:
    """Return the context of a request whose caller need not be known."""
    return context_of(request)


_authentication = BearerAuthentication()
AUTHENTICATED: Any = Depends(_authentication)
Context = Annotated[RequestContext, AUTHENTICATED]
PublicContext = Annotated[RequestContext, Depends(public_context)]
