"""Cron expressions in time zones: both changes of the clock, and what is no expression."""

from datetime import UTC, datetime

import pytest

from portico.capabilities.schedules.cron import Cron, require_cron
from portico.domain.time_zones import require_time_zone

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
FORWARD = {BERLIN: "2026-03-28T12:00", NEW_YORK: "2026-03-07T17:00", LORD_HOWE: "2026-10-03T03:00"}
"""A time in UTC on the day before each zone puts its clock forward: at 2:00 by an hour, on Lord Howe by half of one."""
BACK = {BERLIN: "2026-10-24T12:00", NEW_YORK: "2026-10-31T17:00", LORD_HOWE: "2026-04-04T03:00"}
"""Likewise for the clock that is put back: at 3:00 in Berlin, at 2:00 elsewhere."""


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def times(expression: str, zone: str, after: str, number: int) -> list[str]:
    """Return the next times in UTC as day, hour and minute."""
    found, at = [], seconds(after)
    for _ in range(number):
        following = Cron(expression, zone).next_after(at)
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at, UTC).strftime("%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("zone", "after", "expression", "expected"),
    [
        (BERLIN, FORWARD, "30 2 * * *", ["29 01:00", "30 00:30"]),
        (BERLIN, FORWARD, "0 2,3 * * *", ["29 01:00", "30 00:00"]),
        (BERLIN, FORWARD, "0 3 * * *", ["29 01:00", "30 01:00"]),
        (
            BERLIN,
            FORWARD,
            "0 */2 * * *",
            ["28 13:00", "28 15:00", "28 17:00", "28 19:00", "28 21:00", "28 23:00", "29 02:00"],
        ),
        (BERLIN, FORWARD, "*/10 2 * * *", ["30 00:00", "30 00:10"]),
        (BERLIN, BACK, "30 2 * * *", ["25 00:30", "26 01:30"]),
        (BERLIN, BACK, "0 3 * * *", ["25 02:00", "26 02:00"]),
        (BERLIN, BACK, "*/30 2 * * *", ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "26 01:00"]),
        (NEW_YORK, FORWARD, "30 2 * * *", ["08 07:00", "09 06:30"]),
        (NEW_YORK, FORWARD, "30 1 * * *", ["08 06:30", "09 05:30"]),
        (NEW_YORK, BACK, "30 1 * * *", ["01 05:30", "02 06:30"]),
        (NEW_YORK, BACK, "*/30 1 * * *", ["01 05:00", "01 05:30", "01 06:00", "01 06:30", "02 06:00"]),
        (LORD_HOWE, FORWARD, "15 2 * * *", ["03 15:30", "04 15:15"]),
        (LORD_HOWE, FORWARD, "0 3 * * *", ["03 16:00", "04 16:00"]),
        (LORD_HOWE, BACK, "45 1 * * *", ["04 14:45", "05 15:15"]),
        (LORD_HOWE, BACK, "0 2 * * *", ["04 15:30", "05 15:30"]),
        (LORD_HOWE, BACK, "*/10 2 * * *", ["04 15:30", "04 15:40", "04 15:50", "04 16:00"]),
        (LORD_HOWE, BACK, "*/30 1 * * *", ["04 14:00", "04 14:30", "04 15:00", "05 14:30"]),
    ],
)
def test_a_skipped_time_runs_at_the_change_and_one_that_is_there_twice_runs_once(
    zone: str, after: dict[str, str], expression: str, expected: list[str]
) -> None:
    assert times(expression, zone, after[zone], len(expected)) == expected


def test_a_time_within_the_doubled_hour_is_no_reason_to_run_again() -> None:
    """The search begins in the second pass of the hour; the first one has run."""
    assert times("30 2 * * *", BERLIN, "2026-10-25T01:10", 1) == ["26 01:30"]


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_every_hour_is_every_hour_through_the_whole_year(zone: str) -> None:
    start = seconds("2026-01-01T00:00")
    found = Cron("0 * * * *", zone).latest(start, start + 365 * 86_400, 10_000)
    assert found == [start + hour * 3600 for hour in range(1, 24 * 365 + 1)]


def test_the_latest_times_are_found_without_a_look_at_all() -> None:
    minute = Cron("* * * * *", "UTC")
    now = seconds("2026-11-24T12:00")
    found = minute.latest(now - 20 * 365 * 86_400, now, 100)
    assert (len(found), found[-1], found[0]) == (100, now, now - 99 * 60)
    assert Cron("0 0 1 1 *", "UTC").latest(now - 3 * 365 * 86_400, now, 100) == [
        seconds(f"{year}-01-01T00:00") for year in (2024, 2025, 2026)
    ]
    assert minute.latest(now, now + 30, 100) == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("@daily", "five fields"),
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("0 * * * * *", "five fields"),
        ("0  0 * * *", "five fields"),
        ("0\t0 * * *", "five fields"),
        ("² * * * *", "five fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("0 0 32 * *", "bad day-of-month"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("*/0 * * * *", "bad minute"),
        ("0 0 * * MON#6", "bad day-of-week"),
        (f"{'9' * 300} * * * *", "at most 256"),
        (f"{'9' * 200} * * * *", "bad minute"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        require_cron(expression)


@pytest.mark.parametrize("name", ["", ".", "Europe", "Mars/Olympus", "/etc/passwd", "../../etc/passwd", "UTC\0"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="IANA"):
        require_time_zone(name)
