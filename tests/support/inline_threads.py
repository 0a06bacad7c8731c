"""A thread pool without threads: virtual time stands still while it computes."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class InlineThreadPool:
    """Implements `ports.ThreadPool` on the event loop itself."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()
