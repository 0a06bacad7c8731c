"""What an HTTP status of a provider means where its body says nothing more."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from types import MappingProxyType

from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError

REASON_BY_STATUS: Mapping[int, AttemptFailureReason] = MappingProxyType(
    {
        401: AttemptFailureReason.CREDENTIALS,
        402: AttemptFailureReason.QUOTA,
        403: AttemptFailureReason.CREDENTIALS,
        404: AttemptFailureReason.MODEL_MISSING,
        408: AttemptFailureReason.TIMED_OUT,
        413: AttemptFailureReason.CONTEXT_EXCEEDED,
        429: AttemptFailureReason.RATE_LIMITED,
        529: AttemptFailureReason.OVERLOADED,
    }
)
REASON_BY_STATUS_CLASS: Mapping[int, AttemptFailureReason] = MappingProxyType(
    {3: AttemptFailureReason.UNREACHABLE, 4: AttemptFailureReason.REFUSED, 5: AttemptFailureReason.SERVER_ERROR}
)


def reason_by_status(status: int) -> AttemptFailureReason:
    """Why a reply with that status is no answer; what is no status of HTTP is a malformed reply."""
    return REASON_BY_STATUS.get(status) or REASON_BY_STATUS_CLASS.get(status // 100, AttemptFailureReason.MALFORMED)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds from now, never negative; None where nothing readable is said. Names of headers are lower case.

    `retry-after-ms` is the more exact of the two headers. A date is read against the server's own `Date`, so that
    clocks need not agree, and against `now` (Unix seconds) only where it sends none.
    """
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after", "")
    seconds = _seconds(asked)
    if seconds is not None:
        return seconds
    until = _date(asked)
    if until is None:
        return None
    sent = _date(headers.get("date", ""))
    return max(0.0, until - (now if sent is None else sent))


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if isfinite(seconds) and seconds >= 0 else None


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def malformed_reply(message: str) -> EngineError:
    """The fault of a reply that is not whole or not of its protocol."""
    return EngineError(AttemptFailureReason.MALFORMED, message)
