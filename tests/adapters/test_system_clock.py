"""System clock."""

import asyncio
import time

import anyio
import pytest

from portico.adapters.system import SystemClock


def test_now_is_unix_time() -> None:
    assert SystemClock().now() == pytest.approx(time.time(), abs=5)


def test_monotonic_is_the_clock_of_asyncio_loops() -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        before, between, after = loop.time(), SystemClock().monotonic(), loop.time()
    finally:
        loop.close()
    assert before <= between <= after


async def test_sleep_uses_the_time_of_the_running_loop() -> None:
    began = anyio.current_time()
    await SystemClock().sleep(600)
    assert anyio.current_time() - began == pytest.approx(600)


async def test_a_callback_is_called_once_at_its_time() -> None:
    clock = SystemClock()
    called: list[float] = []
    now = asyncio.get_running_loop().time
    began = now()
    clock.call_later(2, lambda: called.append(now() - began))
    await clock.sleep(1)
    assert called == []
    await clock.sleep(10)
    assert called == [pytest.approx(2)]


async def test_a_cancelled_callback_is_not_called() -> None:
    clock = SystemClock()
    called: list[bool] = []
    call_off = clock.call_later(2, lambda: called.append(True))
    call_off()
    call_off()
    await clock.sleep(10)
    assert called == []
