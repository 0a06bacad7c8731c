"""How long an event loop keeps everybody waiting, in seconds of processor time.

A ticker runs beside what is watched, on a real event loop, and looks at the process's own processor time in every
round of the loop: what other processes take makes no round longer, and neither does waiting for the network. What a
machine needs for the same work differs, also with what else it does just then, so `slowness` measures that with work
of the kind that is watched, and bounds are multiplied by it.
"""

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import process_time

_REFERENCE_S = 0.013
"""What the work of `slowness` takes where the product's own figures were measured."""


class Ticker:
    """The longest round of the loop so far."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        before = process_time()
        while True:
            await asyncio.sleep(0)
            now = process_time()
            self.longest = max(self.longest, now - before)
            before = now


@asynccontextmanager
async def ticking() -> AsyncIterator[Ticker]:
    """Ticks while the context is open. What the process held before is no longer collected, as in service."""
    gc.collect()
    gc.freeze()
    ticker = Ticker()
    task = asyncio.get_running_loop().create_task(ticker.run())
    try:
        await asyncio.sleep(0)
        yield ticker
    finally:
        task.cancel()
        gc.unfreeze()


def slowness() -> float:
    """How much longer this machine takes now than where the figures were measured; at least 1."""
    return max(1.0, min(_work() for _ in range(3)) / _REFERENCE_S)


def _work() -> float:
    began = process_time()
    value = [{"number": number, "text": f"word {number}", "of": [number, None, True]} for number in range(3_000)]
    text = json.dumps(value)
    found = sum(1 for token in re.finditer(r'"[^"]*"|[\[\]{}]', text) if token[0] != "]")
    assert (json.loads(text), found) == (value, 21_001)
    return process_time() - began
