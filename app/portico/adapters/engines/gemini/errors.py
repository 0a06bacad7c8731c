"""Errors of Gemini, by details, wording, status word and HTTP status, in this order.

A 429 is a rate limit, which passes within a minute, unless the failed quota is a daily one or zero, or the account is
empty: then a retry is useless.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from portico.adapters.engines.wire.faults import reason_by_status, reported_error
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

BY_REASON: Final[Mapping[str, AttemptFailureReason]] = {
    "BILLING_DISABLED": AttemptFailureReason.QUOTA,
    "QUOTA_EXHAUSTED": AttemptFailureReason.QUOTA,
    "RATE_LIMIT_EXCEEDED": AttemptFailureReason.RATE_LIMITED,
    "MODEL_CAPACITY_EXHAUSTED": AttemptFailureReason.OVERLOADED,
    "ACCESS_TOKEN_EXPIRED": AttemptFailureReason.CREDENTIALS,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": AttemptFailureReason.CREDENTIALS,
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": AttemptFailureReason.CREDENTIALS,
    "API_KEY_HTTP_REFERRER_BLOCKED": AttemptFailureReason.CREDENTIALS,
    "API_KEY_INVALID": AttemptFailureReason.CREDENTIALS,
    "API_KEY_IP_ADDRESS_BLOCKED": AttemptFailureReason.CREDENTIALS,
    "API_KEY_SERVICE_BLOCKED": AttemptFailureReason.CREDENTIALS,
    "CONSUMER_INVALID": AttemptFailureReason.CREDENTIALS,
    "CONSUMER_SUSPENDED": AttemptFailureReason.CREDENTIALS,
    "CREDENTIALS_MISSING": AttemptFailureReason.CREDENTIALS,
    "SERVICE_DISABLED": AttemptFailureReason.CREDENTIALS,
}
BY_WORDING: Final = (
    ("input token count", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("exceeds the maximum number of tokens", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("input context is too long", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("payload size exceeds the limit", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("credits are depleted", AttemptFailureReason.QUOTA),
    ("spending cap", AttemptFailureReason.QUOTA),
    ("enable billing", AttemptFailureReason.QUOTA),
    ("requires billing", AttemptFailureReason.QUOTA),
    ("requests per day", AttemptFailureReason.QUOTA),
    (", limit: 0", AttemptFailureReason.QUOTA),
    ("location is not supported", AttemptFailureReason.CREDENTIALS),
    ("api key", AttemptFailureReason.CREDENTIALS),
    ("overloaded", AttemptFailureReason.OVERLOADED),
)
BY_STATUS_WORD: Final[Mapping[str, AttemptFailureReason]] = {
    "UNAUTHENTICATED": AttemptFailureReason.CREDENTIALS,
    "PERMISSION_DENIED": AttemptFailureReason.CREDENTIALS,
    "NOT_FOUND": AttemptFailureReason.MODEL_MISSING,
    "RESOURCE_EXHAUSTED": AttemptFailureReason.RATE_LIMITED,
    "UNAVAILABLE": AttemptFailureReason.OVERLOADED,
    "DEADLINE_EXCEEDED": AttemptFailureReason.TIMED_OUT,
    "CANCELLED": AttemptFailureReason.SERVER_ERROR,
    "INTERNAL": AttemptFailureReason.SERVER_ERROR,
}
DAILY_QUOTA: Final = "perday"
UNKNOWN_STATUS: Final = 500
RETRY_DELAY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def error_of(body: bytes) -> Any:
    """Return the error in a reply's body, on its own or as the only one of a list; None without one."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if isinstance(reply, list) and reply:
        reply = reply[0]
    return reply.get("error") if isinstance(reply, dict) else None


def status_of(error: Any) -> int:
    """Return the status that an error names, 500 where it names none: it came with status 200."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else UNKNOWN_STATUS


def retry_delay(error: Any) -> float | None:
    """Return the seconds to wait, where a detail names them (as `"47s"`)."""
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = RETRY_DELAY.fullmatch(str(detail.get("retryDelay"))) if isinstance(detail, dict) else None
        if delay:
            return float(delay[1])
    return None


def reported_fault(error: Any) -> EngineError:
    """Return the fault of an error that was reported in place of a reply or within one."""
    return reported_error(reason_of(status_of(error), error))


def reason_of(status: int, error: Any) -> AttemptFailureReason:
    """Return the reason of a failure."""
    if not isinstance(error, dict):
        return reason_by_status(status)
    details = error.get("details")
    return (
        _by_details([detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else [])
        or _by_wording(error.get("message"))
        or _looked_up(BY_STATUS_WORD, error.get("status"))
        or reason_by_status(status)
    )


def _by_details(details: list[dict[str, Any]]) -> AttemptFailureReason | None:
    """Return the reason of the first detail that has one; a quota that does not recover soon takes precedence."""
    if any(_is_lasting(identifier, limit) for detail in details for identifier, limit in _quotas(detail)):
        return AttemptFailureReason.QUOTA
    return next((reason for detail in details if (reason := _looked_up(BY_REASON, detail.get("reason")))), None)


def _quotas(detail: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the failed quotas, as pairs of identifier and limit, from both kinds of details that name them."""
    violations, metadata = detail.get("violations"), detail.get("metadata")
    for violation in violations if isinstance(violations, list) else ():
        if isinstance(violation, dict):
            yield violation.get("quotaId"), violation.get("quotaValue")
    if isinstance(metadata, dict):
        yield metadata.get("quota_limit"), metadata.get("quota_limit_value")


def _is_lasting(identifier: Any, limit: Any) -> bool:
    return limit == "0" or (isinstance(identifier, str) and DAILY_QUOTA in identifier.lower())


def _by_wording(message: Any) -> AttemptFailureReason | None:
    wording = message.lower() if isinstance(message, str) else ""
    return next((reason for words, reason in BY_WORDING if words in wording), None)


def _looked_up(table: Mapping[str, AttemptFailureReason], word: Any) -> AttemptFailureReason | None:
    return table.get(word) if isinstance(word, str) else None
