"""Errors of the client: one class per category of the service's taxonomy, and failures of the connection."""

import json
from collections.abc import Mapping
from typing import Any, cast

from portico_client.types import SystemResponse


class PorticoError(Exception):
    """A request that the service refused, or an execution that failed.

    `response` is the response of a failed execution, with partial content; None for a refusal. An answer that is none
    of this service, such as the page of a gateway, has the code `UNKNOWN`.
    """

    def __init__(self, status: int, error: Mapping[str, Any], response: SystemResponse | None = None) -> None:
        self.status = status
        """HTTP status; 0 if the failure came as an event."""
        self.code = str(error.get("code", "UNKNOWN"))
        self.category = str(error.get("category", ""))
        self.message = str(error.get("message", f"the answer with status {status} is none of this service"))
        self.details: dict[str, Any] = error.get("details") or {}
        self.retryable = error.get("retryable") is True
        self.request_id: str | None = response["request_id"] if response else error.get("request_id")
        self.response = response
        super().__init__(f"{self.code}: {self.message}")


class InferenceFailure(PorticoError):
    """No engine has answered."""


class ToolFailure(PorticoError):
    """A tool has failed."""


class ConstraintFailure(PorticoError):
    """The answer does not have the required format."""


class ValidationFailure(PorticoError):
    """The answer did not pass the validation."""


class OrchestrationFailure(PorticoError):
    """A limit was reached, or the execution could not go on."""


class ConfigurationFailure(PorticoError):
    """The service is not configured for this."""


class Cancellation(PorticoError):
    """The execution was cancelled."""


class RequestFailure(PorticoError):
    """The request is not valid, names what does not exist, or cannot be accepted now."""


class AccessFailure(PorticoError):
    """The key is not valid, or lacks a permission."""


class StorageFailure(PorticoError):
    """The service's store has failed."""


class ConnectionFailure(Exception):
    """The service could not be reached, or the connection broke for good."""


class TimeoutFailure(ConnectionFailure):
    """The time of the call has passed."""


_CLASSES = {kind.__name__: kind for kind in PorticoError.__subclasses__()}


def error_of_answer(status: int, content: bytes) -> PorticoError:
    """Return the error of an answer that is not a success: a problem document, a failed response, or neither."""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return PorticoError(status, {})
    if isinstance(document.get("error"), dict) and "state" in document:
        return error_of_response(cast("SystemResponse", document), status)
    return _made(status, document, None)


def error_of_response(response: SystemResponse, status: int = 0) -> PorticoError:
    """Return the error of an execution that did not complete."""
    return _made(status, response["error"] or {}, response)


def _made(status: int, error: Mapping[str, Any], response: SystemResponse | None) -> PorticoError:
    return _CLASSES.get(str(error.get("category")), PorticoError)(status, error, response)
