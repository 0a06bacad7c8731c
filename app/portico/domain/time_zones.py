"""Time zones by their names in the IANA database, and times as RFC 3339 writes them."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_S: Final = 86_400.0
"""Seconds of a day."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def require_time_zone(name: str) -> str:
    """Return the name. Raises: ValueError if no time zone has it."""
    time_zone(name)
    return name


@lru_cache(maxsize=1_024)
def time_zone(name: str) -> ZoneInfo:
    """Return the time zone of that name. Raises: ValueError if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone of the IANA database, as Europe/Berlin") from None


def require_time(text: str) -> str:
    """Return the text. Raises: ValueError if it is not a time of RFC 3339, with its offset."""
    unix_seconds(text)
    return text


def unix_seconds(text: str) -> float:
    """Return the time that a text of RFC 3339 names. Raises: ValueError if it names none."""
    if _TIME.fullmatch(text):
        with suppress(ValueError, OverflowError):
            return datetime.fromisoformat(text.upper()).astimezone(UTC).timestamp()
    raise ValueError("must be a time of RFC 3339 with its offset, as 2026-12-01T08:00:00Z")
