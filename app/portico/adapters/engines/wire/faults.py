"""Faults of a provider's replies: malformed ones, and failures by HTTP status and `Retry-After`."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from types import MappingProxyType
from typing import Final

from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Three bytes without a meaning that some servers put before a body."""
REASON_BY_STATUS: Mapping[int, AttemptFailureReason] = MappingProxyType(
    {
        401: AttemptFailureReason.CREDENTIALS,
        402: AttemptFailureReason.QUOTA,
        403: AttemptFailureReason.CREDENTIALS,
        404: AttemptFailureReason.MODEL_MISSING,
        407: AttemptFailureReason.UNREACHABLE,
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
    """Return the reason that a failure status stands for where the body says nothing more. 407 is the proxy's."""
    return REASON_BY_STATUS.get(status) or REASON_BY_STATUS_CLASS.get(status // 100, AttemptFailureReason.MALFORMED)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds to wait, never negative; None without a readable header. Header names are lower case.

    `retry-after-ms` is more exact and takes precedence. A date is compared with the server's own `Date`, so that clocks
    need not agree, and with `now` (Unix seconds) only where it sends none.
    """
    milliseconds = parse_seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = parse_seconds(value)
    if seconds is not None:
        return seconds
    until = parse_date(value)
    if until is None:
        return None
    sent = parse_date(headers.get("date", ""))
    return max(0.0, until - (now if sent is None else sent))


def parse_seconds(text: str) -> float | None:
    """Return a number of seconds; None for what is no finite number, or a negative one."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if isfinite(seconds) and seconds >= 0 else None


def parse_date(text: str) -> float | None:
    """Return a date of HTTP in Unix seconds; None if it is none."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def reported_error(reason: AttemptFailureReason) -> EngineError:
    """Return the fault of an error that the provider reported in its reply. It repeats nothing of the error."""
    return EngineError(reason, "the provider reported an error in its reply")


def malformed_reply(message: str) -> EngineError:
    """Return the fault of a reply that is incomplete or breaks its protocol."""
    return EngineError(AttemptFailureReason.MALFORMED, message)
