"""Deadline: its time counts from its start and starts again after a wait."""

import pytest

from portico.orchestration.execution.branches import Deadline
from tests.support.virtual_time import VirtualClock


async def test_it_passes_once_after_its_seconds(clock: VirtualClock) -> None:
    passed: list[float] = []
    began = clock.monotonic()
    with (deadline := Deadline(clock, 10.0, lambda: passed.append(clock.monotonic() - began))):
        await clock.sleep(4)
        assert deadline.seconds_left == pytest.approx(6)
        await clock.sleep(20)
        assert deadline.seconds_left == 0.0
    assert passed == [pytest.approx(10)]


async def test_what_was_waited_before_it_is_begun_again_does_not_count(clock: VirtualClock) -> None:
    passed: list[float] = []
    began = clock.monotonic()
    with (deadline := Deadline(clock, 10.0, lambda: passed.append(clock.monotonic() - began))):
        await clock.sleep(9)
        deadline.restart()
        assert deadline.seconds_left == pytest.approx(10)
        await clock.sleep(20)
    assert passed == [pytest.approx(19)]


async def test_the_time_that_is_withheld_begins_before_it_and_may_be_used_afterwards(clock: VirtualClock) -> None:
    passed: list[tuple[str, float]] = []
    began = clock.monotonic()

    def note(name: str) -> None:
        passed.append((name, clock.monotonic() - began))

    with (deadline := Deadline(clock, 100.0, lambda: note("end"))):
        deadline.withhold(30.0, lambda: note("limit"))
        assert deadline.seconds_left == pytest.approx(90)
        await clock.sleep(95)
        assert deadline.seconds_left == 0.0
        deadline.use_reserve(10.0)
        assert deadline.seconds_left == pytest.approx(10)
        await clock.sleep(100)
    assert passed == [("limit", pytest.approx(90))]


async def test_what_is_withheld_is_not_announced_once_it_was_left(clock: VirtualClock) -> None:
    passed: list[str] = []
    with (deadline := Deadline(clock, 100.0, lambda: passed.append("end"))):
        deadline.withhold(5.0, lambda: passed.append("limit"))
    await clock.sleep(200)
    assert passed == []


async def test_once_it_was_left_nothing_is_called(clock: VirtualClock) -> None:
    passed: list[float] = []
    with pytest.raises(ValueError, match="left"), Deadline(clock, 10.0, lambda: passed.append(0.0)):
        raise ValueError("left")
    await clock.sleep(20)
    assert passed == []
