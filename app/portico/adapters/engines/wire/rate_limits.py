"""Rate limits that providers report in the headers of their replies, in the forms of OpenAI and of Anthropic.

OpenAI's reset is a duration such as `12ms`, `1m3.5s` or a number of seconds; Anthropic's is a time [RFC 3339], which is
compared with the `Date` of the same reply, so that clocks need not agree.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from portico.adapters.engines.wire.faults import parse_date, parse_seconds

_OPENAI_KINDS: Final = ("requests", "tokens")
_ANTHROPIC_KINDS: Final = ("requests", "tokens", "input-tokens", "output-tokens")
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")
_UNIT_S: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_until_reset(headers: Mapping[str, str], now: float) -> float | None:
    """Return after how many seconds the last of the used-up limits is reset; None if none is used up.

    What is not readable, negative or in the past counts for nothing. Header names are lower case.
    """
    return max((seconds for seconds in _resets(headers, now) if seconds > 0), default=None)


def _resets(headers: Mapping[str, str], now: float) -> Iterator[float]:
    for kind in _OPENAI_KINDS:
        if _is_used_up(headers.get(f"x-ratelimit-remaining-{kind}")):
            yield _duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
    for kind in _ANTHROPIC_KINDS:
        if _is_used_up(headers.get(f"anthropic-ratelimit-{kind}-remaining")):
            until = _timestamp(headers.get(f"anthropic-ratelimit-{kind}-reset", ""))
            sent = parse_date(headers.get("date", ""))
            yield until - (now if sent is None else sent)


def _is_used_up(remaining: str | None) -> bool:
    return remaining is not None and parse_seconds(remaining) == 0


def _duration(text: str) -> float:
    """Return the seconds of a duration; 0 if it is none."""
    seconds = parse_seconds(text)
    if seconds is not None:
        return seconds
    if not _DURATION.fullmatch(text):
        return 0.0
    return sum(float(amount) * _UNIT_S[unit] for amount, unit in _PART.findall(text))


def _timestamp(text: str) -> float:
    """Return a time in Unix seconds; 0 if it is none, or one without a time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return 0.0 if time.tzinfo is None else time.timestamp()
