"""Exception handlers: refusals as problem documents, and nothing for a client that has left."""

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from portico.domain.access.principal import is_permission
from portico.domain.failures import Code, Failure, RequestFailure
from portico.domain.field_errors import invalid_fields
from portico.entrypoints.http.body import invalid_fields_failure
from portico.entrypoints.http.client_errors import refusal_response
from portico.entrypoints.http.context import (
    ENTERED_KEY,
    RESOURCE_METADATA_KEY,
    RequestContext,
    context_of,
    credentials_of,
)
from portico.entrypoints.http.correlation import Header
from portico.entrypoints.http.errors import CLOSE, problem_response, record_refusal
from portico.entrypoints.http.parameters import NOT_FOUND_MESSAGES, request_id_in_path
from portico.orchestration.channels import name_channel


async def refuse(request: Request, failure: Failure) -> Response:
    """Return the failure as a problem document, and record it.

    It carries the request id of the path, else the one of the body. A failure that concerns another execution gives
    its location.
    """
    context, entered = context_of(request), request.scope.get(ENTERED_KEY)
    failure = failure if entered is None else name_channel(failure, entered)
    context.refusal = failure
    correlation = context.correlate(request_id_in_path(request.scope) or context.request_id)
    other_id = failure.details.get("request_id")
    location = () if other_id is None else (location_header(other_id),)
    headers = (*location, *_challenge(context, failure), *_close(context))
    response = refusal_response(context.error_shape, failure, correlation, *headers)
    status, principal = response.status_code, context.principal_name
    record_refusal(request.scope, failure, correlation, status=status, principal=principal)
    return response


async def refuse_parameters(request: Request, invalid: RequestValidationError) -> Response:
    """Refuse parameters that FastAPI found invalid; a malformed id takes precedence, as an unknown one."""
    errors = invalid.errors()
    malformed_ids = [str(error["loc"][1]) for error in errors if error["loc"][0] == "path"]
    if malformed_ids:
        message = NOT_FOUND_MESSAGES[malformed_ids[0]]
        return await refuse(request, RequestFailure(Code.REQUEST_NOT_FOUND, message, condition="path"))
    known = {"properties": dict.fromkeys(_parameters(request))}
    fields = invalid_fields(errors, path_of=lambda error: tuple(map(str, error["loc"][1:])), schema=known)
    return await refuse(request, invalid_fields_failure(fields))


async def refuse_route(request: Request, refused: HTTPException) -> Response:
    """Refuse a path without a route (404) or a method that the path lacks (405, with all methods in Allow)."""
    condition = {404: "path", 405: "method"}[refused.status_code]
    message = "there is nothing at this path" if condition == "path" else "the path does not support this method"
    failure = RequestFailure(Code.REQUEST_NOT_FOUND, message, condition=condition)
    allow = () if condition == "path" else ((b"allow", ", ".join(sorted(_methods(request))).encode()),)
    correlation = context_of(request).correlate()
    record_refusal(request.scope, failure, correlation, status=failure.status)
    return problem_response(failure, correlation, *allow)


async def send_nothing(_request: Request, _disconnect: ClientDisconnect) -> None:
    """Return no response, because the client has left."""


def location_header(request_id: str) -> Header:
    """Return the Location of an execution."""
    return b"location", b"/v1/executions/%b" % request_id.encode()


HANDLERS: Mapping[Any, Callable[[Request, Any], Coroutine[Any, Any, Response | None]]] = MappingProxyType(
    {
        Failure: refuse,
        RequestValidationError: refuse_parameters,
        HTTPException: refuse_route,
        ClientDisconnect: send_nothing,
    }
)


def _challenge(context: RequestContext, failure: Failure) -> tuple[Header, ...]:
    """Return the WWW-Authenticate header of a caller that is not authenticated or not permitted [RFC 6750]."""
    challenge = 'Bearer realm="portico"'
    if failure.code is Code.ACCESS_DENIED:
        # A request may name anything as a tool or a model; a header cannot.
        permission = failure.details.get("permission", "")
        challenge += ', error="insufficient_scope"' + (f', scope="{permission}"' if is_permission(permission) else "")
    elif failure.code is not Code.ACCESS_UNAUTHENTICATED:
        return ()
    elif credentials_of(context) is not None:
        challenge += ', error="invalid_token"'
    metadata_url = context.scope.get(RESOURCE_METADATA_KEY)
    if failure.code is Code.ACCESS_UNAUTHENTICATED and metadata_url is not None:
        challenge += f', resource_metadata="{metadata_url}"'
    return ((b"www-authenticate", challenge.encode()),)


def _methods(request: Request) -> set[str]:
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in matching for method in route.methods or ()}


def _parameters(request: Request) -> list[str]:
    """Return the names of the parameters that the request's route has."""
    route = request.scope["route"]
    return [parameter.alias for parameter in get_flat_params(route.dependant)]


def _close(context: RequestContext) -> tuple[Header, ...]:
    """Return `Connection: close` if the request has a body that was not read to its end."""
    if context.body_was_read:
        return ()
    headers = dict(context.scope["headers"])
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    return (CLOSE,) if has_body else ()
