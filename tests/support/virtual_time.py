"""An event loop whose time jumps, so that a wait of ten minutes takes none.

Theory of operation

1. Time stands still while callbacks run. When nothing is ready and a timer is due later, the loop first looks
   whether anything is on its way, and only then sets its time to the timer's.
2. Bytes between two sockets of this process are on their way for a moment: with sockets open, a jump waits
   `GRACE` seconds for them. When nothing came before the last `QUIET_JUMPS` jumps either, it waits `QUIET_GRACE`
   once for every virtual second, so that a server's own ticking does not cost real time.
3. While a worker thread or a child process is at work the loop does not jump: time runs as fast as outside. One that
   has ended told so before, so what it told is looked for once more before a jump.
4. Time runs so too while somebody says that a server outside is asked.
5. Without any timer it blocks, as every loop does. Threads that a test starts by hand are not waited for.
"""

import asyncio
import selectors
import threading
import time
from asyncio import Future
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from app.adapters.system import SystemClock

GRACE = 0.005
QUIET_GRACE = 0.001
QUIET_JUMPS = 3
SLICE = 0.01
START = 1_000.0
EPOCH = 1_790_000_000.0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop with a time of its own; it begins at `START`, far from every real clock."""

    def __init__(self) -> None:
        self._time = START
        self._jobs = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._time

    def advance(self, seconds: float) -> None:
        """Lets that time pass; timers that fall due run next."""
        self._time += seconds

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> Future[Any]:
        job = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        job.add_done_callback(self._job_ended)
        return job

    @contextmanager
    def in_real_time(self) -> Iterator[None]:
        """Time runs as fast as outside meanwhile: a server is asked that is none of this process."""
        self._jobs += 1
        try:
            yield
        finally:
            self._jobs -= 1

    def has_external_work(self) -> bool:
        """Whether a worker thread or a child process of this loop is at work."""
        return self._jobs > 0 or any(_at_work(thread, self) for thread in threading.enumerate())

    def _job_ended(self, _job: Future[Any]) -> None:
        self._jobs -= 1


class VirtualClock(SystemClock):
    """A clock that goes by the virtual loop; its wall time is `EPOCH` at the loop's `START`."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> float:
        return EPOCH + self.monotonic() - START


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._jumps = 0
        self._unwaited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            found = super().select(timeout)
        else:
            found = super().select(0) or super().select(self._grace(timeout)) or self._pass(timeout)
        if found:
            self._jumps = 0
        return found

    def _pass(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        if self._loop.has_external_work():
            return self._wait_outside(timeout)
        told = super().select(0)
        if told:
            return told
        self._jumps += 1
        self._unwaited += timeout
        self._loop.advance(timeout)
        return []

    def _grace(self, timeout: float) -> float:
        """Zero when only the loop's own wake-up pipe is open: then nothing can be on its way."""
        if len(self.get_map()) == 1:
            return 0
        if self._jumps < QUIET_JUMPS:
            return min(timeout, GRACE)
        if self._unwaited + timeout < 1:
            return 0
        self._unwaited = 0.0
        return QUIET_GRACE

    def _wait_outside(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits a little at most, since a thread that ends without a word wakes nobody."""
        began = time.monotonic()
        found = super().select(min(timeout, SLICE))
        self._loop.advance(min(timeout, time.monotonic() - began))
        return found


def _at_work(thread: threading.Thread, loop: VirtualTimeLoop) -> bool:
    if thread.name.startswith("asyncio-waitpid-"):
        return True
    if thread.name != "AnyIO worker thread":
        return False
    return getattr(thread, "loop", None) is loop and thread.queue.unfinished_tasks > 0
