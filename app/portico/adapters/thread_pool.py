"""One worker thread for computations that would hold up the event loop.

One thread is enough: what takes long here holds the interpreter's lock most of the time, so more threads would only
compete with the event loop. Work is done in the order in which it arrives. Work that has begun is finished, also when
its caller is cancelled meanwhile.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")


class WorkerThread:
    """Implementation of the `ThreadPool` port."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(1)

    async def run(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work, limiter=self._limiter)
