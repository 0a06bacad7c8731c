"""Worker threads, for what would hold up the event loop."""

from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread

T = TypeVar("T")


class Threads:
    """Implements `ports.Workers`."""

    async def run(self, work: Callable[[], T]) -> T:
        return await to_thread.run_sync(work)
