"""The clock of the machine and of the loop."""

import time

import anyio
import pytest

from app.adapters.clock import SystemClock


def test_now_is_unix_time() -> None:
    assert SystemClock().now() == pytest.approx(time.time(), abs=5)


async def test_all_but_now_follows_the_running_loop() -> None:
    clock = SystemClock()
    began = clock.monotonic()
    assert began == anyio.current_time()
    await clock.sleep(600)
    assert clock.monotonic() - began == pytest.approx(600)


async def test_a_callback_is_called_once_when_it_is_due() -> None:
    clock = SystemClock()
    called: list[float] = []
    began = clock.monotonic()
    clock.call_later(2, lambda: called.append(clock.monotonic() - began))
    await clock.sleep(1)
    assert called == []
    await clock.sleep(10)
    assert called == [pytest.approx(2)]


async def test_a_callback_that_was_called_off_is_not_called() -> None:
    clock = SystemClock()
    called: list[bool] = []
    call_off = clock.call_later(2, lambda: called.append(True))
    call_off()
    call_off()
    await clock.sleep(10)
    assert called == []
