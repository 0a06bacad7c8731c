"""What Gemini's errors mean: by their details, their wording, their status word and their HTTP status, in this order.

A 429 is a rate limit, which passes within a minute, unless the quota that failed is one of a day, is nought, or the
money is spent: then it is no use to ask again.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from app.adapters.engines.statuses import reason_by_status
from app.domain.effects import Reason

BY_REASON: Final[Mapping[str, Reason]] = {
    "BILLING_DISABLED": Reason.QUOTA,
    "QUOTA_EXHAUSTED": Reason.QUOTA,
    "RATE_LIMIT_EXCEEDED": Reason.RATE_LIMITED,
    "MODEL_CAPACITY_EXHAUSTED": Reason.OVERLOADED,
    "ACCESS_TOKEN_EXPIRED": Reason.CREDENTIALS,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": Reason.CREDENTIALS,
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": Reason.CREDENTIALS,
    "API_KEY_HTTP_REFERRER_BLOCKED": Reason.CREDENTIALS,
    "API_KEY_INVALID": Reason.CREDENTIALS,
    "API_KEY_IP_ADDRESS_BLOCKED": Reason.CREDENTIALS,
    "API_KEY_SERVICE_BLOCKED": Reason.CREDENTIALS,
    "CONSUMER_INVALID": Reason.CREDENTIALS,
    "CONSUMER_SUSPENDED": Reason.CREDENTIALS,
    "CREDENTIALS_MISSING": Reason.CREDENTIALS,
    "SERVICE_DISABLED": Reason.CREDENTIALS,
}
BY_WORDING: Final = (
    ("input token count", Reason.CONTEXT_EXCEEDED),
    ("exceeds the maximum number of tokens", Reason.CONTEXT_EXCEEDED),
    ("input context is too long", Reason.CONTEXT_EXCEEDED),
    ("payload size exceeds the limit", Reason.CONTEXT_EXCEEDED),
    ("credits are depleted", Reason.QUOTA),
    ("spending cap", Reason.QUOTA),
    ("enable billing", Reason.QUOTA),
    ("requires billing", Reason.QUOTA),
    ("requests per day", Reason.QUOTA),
    (", limit: 0", Reason.QUOTA),
    ("location is not supported", Reason.CREDENTIALS),
    ("api key", Reason.CREDENTIALS),
    ("overloaded", Reason.OVERLOADED),
)
BY_WORD: Final[Mapping[str, Reason]] = {
    "UNAUTHENTICATED": Reason.CREDENTIALS,
    "PERMISSION_DENIED": Reason.CREDENTIALS,
    "NOT_FOUND": Reason.MODEL_MISSING,
    "RESOURCE_EXHAUSTED": Reason.RATE_LIMITED,
    "UNAVAILABLE": Reason.OVERLOADED,
    "DEADLINE_EXCEEDED": Reason.TIMED_OUT,
    "CANCELLED": Reason.SERVER_ERROR,
    "INTERNAL": Reason.SERVER_ERROR,
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


def reason_of(status: int, error: Any) -> Reason:
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


def _by_details(details: list[dict[str, Any]]) -> Reason | None:
    """What the first detail says that says anything; a quota that does not come back soon goes before all."""
    if any(_is_lasting(identifier, limit) for detail in details for identifier, limit in _quotas(detail)):
        return Reason.QUOTA
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


def _by_wording(message: Any) -> Reason | None:
    wording = message.lower() if isinstance(message, str) else ""
    return next((reason for words, reason in BY_WORDING if words in wording), None)


def _by(table: Mapping[str, Reason], word: Any) -> Reason | None:
    return table.get(word) if isinstance(word, str) else None
