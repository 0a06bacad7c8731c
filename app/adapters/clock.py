"""The clock of the machine and of the running event loop."""

import asyncio
import time
from collections.abc import Callable

import anyio


class SystemClock:
    """Implements `ports.Clock`. All but `now` follow the running loop, so they need one."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(seconds, callback).cancel
