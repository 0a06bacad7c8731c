"""The clock of the machine and of the running event loop."""

import asyncio
import time
from collections.abc import Callable

import anyio


class SystemClock:
    """Implements `ports.Clock`. `monotonic` is what asyncio's own loops go by, asked without looking for the loop."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(seconds, callback).cancel
