"""What the errors of Anthropic's API mean, by their codes, their wording, their type and their status, in this order.

The wording comes before the type, for the API calls a full context and an empty purse invalid requests.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from app.adapters.engines.statuses import reason_by_status
from app.domain.effects import Reason

BY_CODE: Final[Mapping[str, Reason]] = MappingProxyType(
    {
        "enforced_spend_limit_reached": Reason.QUOTA,
        "contract_spend_limit_reached": Reason.QUOTA,
        "linked_organization_spend_limit_reached": Reason.QUOTA,
        "linked_organization_billing_unavailable": Reason.QUOTA,
        "user_profile_not_billable": Reason.QUOTA,
        "organization_on_hold": Reason.CREDENTIALS,
        "cmek_key_disabled": Reason.CREDENTIALS,
        "cmek_key_network_blocked": Reason.CREDENTIALS,
        "request_body_too_large_after_decoding": Reason.CONTEXT_EXCEEDED,
    }
)
BY_WORDING: Final = (
    ("prompt is too long", Reason.CONTEXT_EXCEEDED),
    ("exceed context limit", Reason.CONTEXT_EXCEEDED),
    ("exceeds the context window", Reason.CONTEXT_EXCEEDED),
    ("credit balance is too low", Reason.QUOTA),
    ("api usage limits", Reason.QUOTA),
    ("spend limit", Reason.QUOTA),
    ("organization has been disabled", Reason.CREDENTIALS),
    ("content filtering policy", Reason.CONTENT_FILTERED),
)
BY_TYPE: Final[Mapping[str, Reason]] = MappingProxyType(
    {
        "authentication_error": Reason.CREDENTIALS,
        "permission_error": Reason.CREDENTIALS,
        "billing_error": Reason.QUOTA,
        "not_found_error": Reason.MODEL_MISSING,
        "request_too_large": Reason.CONTEXT_EXCEEDED,
        "rate_limit_error": Reason.RATE_LIMITED,
        "invalid_request_error": Reason.REFUSED,
        "timeout_error": Reason.TIMED_OUT,
        "overloaded_error": Reason.OVERLOADED,
        "api_error": Reason.SERVER_ERROR,
    }
)
UNNUMBERED: Final = 500
"""The status of an error that came where a reply was expected."""


def error_of(body: bytes) -> Any:
    """The error that a reply's body tells; None where it tells none."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return reply.get("error") if isinstance(reply, dict) else None


def reason_of(status: int, error: Any) -> Reason:
    """Why the provider did not answer."""
    if not isinstance(error, dict):
        return reason_by_status(status)
    details = error.get("details")
    code = _word(details.get("error_code")) if isinstance(details, dict) else ""
    return BY_CODE.get(code) or _by_wording(error) or BY_TYPE.get(_word(error.get("type"))) or reason_by_status(status)


def _by_wording(error: Mapping[str, Any]) -> Reason | None:
    message = _word(error.get("message")).lower()
    return next((reason for words, reason in BY_WORDING if words in message), None)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
