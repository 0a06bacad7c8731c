"""Errors of Anthropic's API, by code, wording, type and status, in this order.

The wording comes before the type, since the API reports a full context and an empty account as invalid requests.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.engines.wire.faults import reason_by_status, reported_error
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

BY_CODE: Final[Mapping[str, AttemptFailureReason]] = MappingProxyType(
    {
        "enforced_spend_limit_reached": AttemptFailureReason.QUOTA,
        "contract_spend_limit_reached": AttemptFailureReason.QUOTA,
        "linked_organization_spend_limit_reached": AttemptFailureReason.QUOTA,
        "linked_organization_billing_unavailable": AttemptFailureReason.QUOTA,
        "user_profile_not_billable": AttemptFailureReason.QUOTA,
        "organization_on_hold": AttemptFailureReason.CREDENTIALS,
        "cmek_key_disabled": AttemptFailureReason.CREDENTIALS,
        "cmek_key_network_blocked": AttemptFailureReason.CREDENTIALS,
        "request_body_too_large_after_decoding": AttemptFailureReason.CONTEXT_EXCEEDED,
    }
)
BY_WORDING: Final = (
    ("prompt is too long", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("exceed context limit", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("exceeds the context window", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("credit balance is too low", AttemptFailureReason.QUOTA),
    ("api usage limits", AttemptFailureReason.QUOTA),
    ("spend limit", AttemptFailureReason.QUOTA),
    ("organization has been disabled", AttemptFailureReason.CREDENTIALS),
    ("content filtering policy", AttemptFailureReason.CONTENT_FILTERED),
)
BY_TYPE: Final[Mapping[str, AttemptFailureReason]] = MappingProxyType(
    {
        "authentication_error": AttemptFailureReason.CREDENTIALS,
        "permission_error": AttemptFailureReason.CREDENTIALS,
        "billing_error": AttemptFailureReason.QUOTA,
        "not_found_error": AttemptFailureReason.MODEL_MISSING,
        "request_too_large": AttemptFailureReason.CONTEXT_EXCEEDED,
        "rate_limit_error": AttemptFailureReason.RATE_LIMITED,
        "invalid_request_error": AttemptFailureReason.REFUSED,
        "timeout_error": AttemptFailureReason.TIMED_OUT,
        "overloaded_error": AttemptFailureReason.OVERLOADED,
        "api_error": AttemptFailureReason.SERVER_ERROR,
    }
)
UNKNOWN_STATUS: Final = 500
"""The status of an error that was reported in place of a reply."""


def error_of(body: bytes) -> Any:
    """Return the error in a reply's body; None without one."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return reply.get("error") if isinstance(reply, dict) else None


def reason_of(status: int, error: Any) -> AttemptFailureReason:
    """Return the reason of a failure."""
    if not isinstance(error, dict):
        return reason_by_status(status)
    details = error.get("details")
    code = _text(details.get("error_code")) if isinstance(details, dict) else ""
    return BY_CODE.get(code) or _by_wording(error) or BY_TYPE.get(_text(error.get("type"))) or reason_by_status(status)


def reported_fault(error: Any) -> EngineError:
    """Return the fault of an error that was reported in place of a reply or within one."""
    return reported_error(reason_of(UNKNOWN_STATUS, error))


def _by_wording(error: Mapping[str, Any]) -> AttemptFailureReason | None:
    message = _text(error.get("message")).lower()
    return next((reason for words, reason in BY_WORDING if words in message), None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
