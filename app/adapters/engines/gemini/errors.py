"""What Gemini's errors mean: by their details, their wording, their status word and their HTTP status, in this order.

A 429 is a rate limit, which passes within a minute, unless the quota that failed is one of a day, is nought, or the
money is spent: then it is no use to ask again.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from app.adapters.engines.wire.faults import reason_by_status
from app.domain.model_call import AttemptFailureReason

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
BY_WORD: Final[Mapping[str, AttemptFailureReason]] = {
    "UNAUTHENTICATED": AttemptFailureReason.CREDENTIALS,
    "PERMISSION_DENIED": AttemptFailureReason.CREDENTIALS,
    "NOT_FOUND": AttemptFailureReason.MODEL_MISSING,
    "RESOURCE_EXHAUSTED": AttemptFailureReason.RATE_LIMITED,
    "UNAVAILABLE": AttemptFailureReason.OVERLOADED,
    "DEADLINE_EXCEEDED": AttemptFailureReason.TIMED_OUT,
    "CANCELLED": AttemptFailureReason.SERVER_ERROR,
    "INTERNAL": AttemptFailureReason.SERVER_ERROR,
}
OF_A_DAY: Final = "perday"
UNNUMBERED: Final = 500
DELAY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def error_of(body: bytes) -> Any:
    """The error that a reply's body tells, on its own or as the only one of a list; None where it tells none."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if isinstance(reply, list) and reply:
        reply = reply[0]
    return reply.get("error") if isinstance(reply, dict) else None


def status_of(error: Any) -> int:
    """The status that an error names in itself, 500 where it names none: it came with a status that is no error."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else UNNUMBERED


def retry_delay(error: Any) -> float | None:
    """The seconds after which it may be asked again, where a detail says so (as `"47s"`)."""
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = DELAY.fullmatch(str(detail.get("retryDelay"))) if isinstance(detail, dict) else None
        if delay:
            return float(delay[1])
    return None


def reason_of(status: int, error: Any) -> AttemptFailureReason:
    """Why the provider did not answer."""
    if not isinstance(error, dict):
        return reason_by_status(status)
    details = error.get("details")
    return (
        _by_details([detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else [])
        or _by_wording(error.get("message"))
        or _by(BY_WORD, error.get("status"))
        or reason_by_status(status)
    )


def _by_details(details: list[dict[str, Any]]) -> AttemptFailureReason | None:
    """What the first detail says that says anything; a quota that does not come back soon goes before all."""
    if any(_is_lasting(identifier, limit) for detail in details for identifier, limit in _quotas(detail)):
        return AttemptFailureReason.QUOTA
    return next((reason for detail in details if (reason := _by(BY_REASON, detail.get("reason")))), None)


def _quotas(detail: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The quotas that failed, as pairs of identifier and limit, from either kind of detail that names them."""
    violations, metadata = detail.get("violations"), detail.get("metadata")
    for violation in violations if isinstance(violations, list) else ():
        if isinstance(violation, dict):
            yield violation.get("quotaId"), violation.get("quotaValue")
    if isinstance(metadata, dict):
        yield metadata.get("quota_limit"), metadata.get("quota_limit_value")


def _is_lasting(identifier: Any, limit: Any) -> bool:
    return limit == "0" or (isinstance(identifier, str) and OF_A_DAY in identifier.lower())


def _by_wording(message: Any) -> AttemptFailureReason | None:
    wording = message.lower() if isinstance(message, str) else ""
    return next((reason for words, reason in BY_WORDING if words in wording), None)


def _by(table: Mapping[str, AttemptFailureReason], word: Any) -> AttemptFailureReason | None:
    return table.get(word) if isinstance(word, str) else None
