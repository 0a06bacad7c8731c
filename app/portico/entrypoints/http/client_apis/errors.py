"""Errors as clients of OpenAI and Anthropic read them: status, error object, and headers.

The body has the error object of the API and, beside it, the members of a problem document, whose `code` is always the
service's own. Only the status that a client would repeat is changed: what must not happen twice is a 400 for clients
that repeat 409 and 5xx by status alone.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from portico.domain.contract.response import SystemError
from portico.domain.failures import Category, Code, RequestFailure, invalid_request
from portico.domain.value import value
from portico.entrypoints.http.errors import status_of

CLIENT_CODE: Final = "client_code"
"""Key of `details` under which a refusal has the code that clients know for it."""
MODEL_NOT_FOUND: Final = "model_not_found"
PREVIOUS_RESPONSE_NOT_FOUND: Final = "previous_response_not_found"
UNSUPPORTED_PARAMETER: Final = "unsupported_parameter"
_CODES: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.INFERENCE_CONTEXT_EXCEEDED: "context_length_exceeded",
        Code.INFERENCE_CONTENT_FILTERED: "content_filter",
        Code.ACCESS_UNAUTHENTICATED: "invalid_api_key",
        Code.REQUEST_RATE_LIMITED: "rate_limit_exceeded",
    }
)
_FAULTS_OF_THE_REQUEST: Final = frozenset(
    {Category.REQUEST, Category.CONFIGURATION, Category.TOOL, Category.VALIDATION}
)
_BAD_REQUESTS: Final = frozenset({Code.INFERENCE_CONTEXT_EXCEEDED, Code.INFERENCE_CONTENT_FILTERED})
_OPENAI_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        **dict.fromkeys((400, 404, 405, 409, 413, 415), "invalid_request_error"),
        401: "authentication_error",
        403: "permission_error",
        429: "too_many_requests",
    }
)
_ANTHROPIC_TYPES: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
)


class ErrorShape(Enum):
    """The form of errors that the clients of an API read."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@value
class ClientError:
    """A failure as a client API answers it.

    `may_repeat` is False if the request must not be sent again: it acted in a way that cannot be undone, or waits for a
    person.
    """

    error: SystemError
    request_id: str
    may_repeat: bool = True


def must_not_repeat(error: SystemError) -> bool:
    """Return True for an error that follows again from each further request, and leaves something open each time."""
    return error.code is Code.REQUEST_RESUME_REQUIRED


def client_error(error: SystemError, request_id: str, *, has_acted: bool = False) -> ClientError:
    """Return the error of a request. `has_acted` tells that a call ran that must not run twice."""
    return ClientError(error, request_id, may_repeat=not (has_acted or must_not_repeat(error)))


def client_status(failed: ClientError, shape: ErrorShape) -> int:
    """Return the HTTP status of an error."""
    error = failed.error
    status = status_of(error)
    if shape is ErrorShape.OPENAI and not failed.may_repeat:
        return 400
    is_fault = status == 422 and error.category in _FAULTS_OF_THE_REQUEST
    return 400 if is_fault or error.code in _BAD_REQUESTS else status


def openai_error(failed: ClientError) -> dict[str, Any]:
    """Return the error object of OpenAI's APIs: `message`, `type`, `param` and `code`."""
    error = failed.error
    return {
        "message": error.message,
        "type": _openai_type(failed),
        "param": parameter_of(error),
        "code": client_code(error),
    }


def anthropic_error(failed: ClientError) -> dict[str, Any]:
    """Return the error object of Anthropic's API: `type` and `message`."""
    status = client_status(failed, ErrorShape.ANTHROPIC)
    default = "api_error" if status >= 500 else "invalid_request_error"
    return {"type": _ANTHROPIC_TYPES.get(status, default), "message": failed.error.message}


def error_body(failed: ClientError, shape: ErrorShape) -> dict[str, Any]:
    """Return the members of an error's body that the clients of the API read."""
    if shape is ErrorShape.ANTHROPIC:
        return {"type": "error", "error": anthropic_error(failed), "request_id": failed.request_id}
    return {"error": openai_error(failed)}


def client_code(error: SystemError) -> str:
    """Return the code that clients know, else the service's own."""
    named = error.details.get(CLIENT_CODE)
    return named if isinstance(named, str) else _CODES.get(error.code, error.code)


def parameter_of(error: SystemError) -> str | None:
    """Return the path of the field that an error is about, as it was sent; None without one."""
    errors, field = error.details.get("errors"), error.details.get("field")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        field = errors[0].get("field")
    return field if isinstance(field, str) and field else None


def unsupported(parameter: str, message: str) -> RequestFailure:
    """Return the refusal of a parameter that the service does not have."""
    refusal = invalid_request((parameter, message))
    refusal.details[CLIENT_CODE] = UNSUPPORTED_PARAMETER
    return refusal


def not_found(parameter: str, message: str, code: str) -> RequestFailure:
    """Return the refusal (404) of a name that nothing has; `code` is what clients know for it."""
    details = {"errors": [{"field": parameter, "message": message}], CLIENT_CODE: code}
    return RequestFailure(Code.REQUEST_NOT_FOUND, f"{parameter}: {message}", details, condition="path")


def _openai_type(failed: ClientError) -> str:
    known = _OPENAI_TYPES.get(client_status(failed, ErrorShape.OPENAI))
    if known is not None:
        return known
    return "model_error" if failed.error.category is Category.INFERENCE else "server_error"
