"""Monitor of the event loop's delay."""

import asyncio

import anyio
import pytest

from portico.adapters.telemetry.loop_lag import watch_loop_lag
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop


class Watch:
    """A monitor with the delays that it reported."""

    def __init__(self) -> None:
        self.observed: list[float] = []
        self.warned: list[float] = []

    async def run(self) -> None:
        await watch_loop_lag(VirtualClock(), self.observed.append, self.warned.append, threshold=0.25)


def _block(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(seconds)


async def test_a_loop_that_keeps_up_has_no_lag() -> None:
    watch = Watch()
    with anyio.move_on_after(10.1):
        await watch.run()
    assert watch.observed == [pytest.approx(0, abs=1e-6)] * 20
    assert watch.warned == []


async def test_a_blocked_loop_is_measured_and_warned_of() -> None:
    watch = Watch()
    asyncio.get_running_loop().call_later(1.25, _block, 5.0)
    with anyio.move_on_after(10):
        await watch.run()
    assert max(watch.observed) == pytest.approx(4.75, abs=0.01)
    assert watch.warned == [pytest.approx(4.75, abs=0.01)]


async def test_a_little_lag_is_measured_without_a_warning() -> None:
    watch = Watch()
    asyncio.get_running_loop().call_later(0.49, _block, 0.11)
    with anyio.move_on_after(2):
        await watch.run()
    assert max(watch.observed) == pytest.approx(0.1, abs=0.01)
    assert watch.warned == []
