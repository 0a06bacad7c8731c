"""Time zones by their names in the IANA database."""

from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


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
