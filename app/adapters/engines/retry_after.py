"""How long a provider asks to be left alone, in every form it is said."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
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
