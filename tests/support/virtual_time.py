"""An event loop with virtual time, in which a wait of ten minutes takes no real time.

Theory of operation

1. Time stands still while callbacks run. If nothing is ready and a timer is due later, the loop first checks for
   pending I/O, and only then sets its time to that of the timer.
2. Bytes between two sockets of this process need a moment to arrive: with open sockets, the loop waits `GRACE` seconds
   for them before a jump. If nothing arrived before the last `QUIET_JUMPS` jumps, it waits `QUIET_GRACE` once per
   virtual second instead, so that periodic timers of a server do not cost real time.
3. While a worker thread or a child process works, the loop does not jump: time runs at its real speed. A thread
   signals its end before it counts as idle, so the loop polls once more before a jump. Until Python 3.11 a thread
   waits for each child; later versions read a descriptor of its process.
4. Time also runs at its real speed inside `in_real_time`, for requests to a server in another process.
5. Without any timer the loop blocks, as every loop does. It does not wait for threads that a test starts by hand.
"""

import asyncio
import os
import selectors
import socket
import threading
import time
from asyncio import Future
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from portico.adapters.system import SystemClock

GRACE = 0.005
QUIET_GRACE = 0.001
QUIET_JUMPS = 3
SLICE = 0.01
START = 1_000.0
EPOCH = 1_790_000_000.0


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop with a time of its own that begins at `START`, far from the time of real clocks."""

    def __init__(self) -> None:
        self._time = START
        self._jobs = 0
        self._selector = _JumpingSelector(self)
        self.addresses: dict[str, list[str]] = {}
        """Addresses that a look-up of a name finds, one after the other; other names are looked up as always."""
        super().__init__(self._selector)

    def time(self) -> float:
        return self._time

    def advance(self, seconds: float) -> None:
        """Move time forward; timers that become due run next."""
        self._time += seconds

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in self.addresses:
            return await super().getaddrinfo(host, port, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (self.addresses[name].pop(0), port))]

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> Future[Any]:
        job = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        job.add_done_callback(self._job_ended)
        return job

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Wait for the threads in real time; since Python 3.12 the wait has a limit."""
        with self.in_real_time():
            await super().shutdown_default_executor(*args)

    @contextmanager
    def in_real_time(self) -> Iterator[None]:
        """Let time run at its real speed inside the context, while a server in another process is asked."""
        self._jobs += 1
        try:
            yield
        finally:
            self._jobs -= 1

    def has_external_work(self) -> bool:
        """Return True while a worker thread or a child process of this loop works."""
        if self._jobs > 0 or self._selector.children:
            return True
        return any(_is_working(thread, self) for thread in threading.enumerate())

    def _job_ended(self, _job: Future[Any]) -> None:
        self._jobs -= 1


class VirtualClock(SystemClock):
    """A clock that shows the time of the virtual loop; its wall time is `EPOCH` at the loop's `START`."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> float:
        return EPOCH + self.monotonic() - START


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop
        self._jumps = 0
        self._seconds_without_grace = 0.0
        self.children: set[Any] = set()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if os.readlink(f"/proc/self/fd/{key.fd}") == "anon_inode:[pidfd]":
            self.children.add(key.fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self.children.discard(key.fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            found = super().select(timeout)
        else:
            found = super().select(0) or super().select(self._grace_seconds(timeout)) or self._jump(timeout)
        if found:
            self._jumps = 0
        return found

    def _jump(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        if self._loop.has_external_work():
            return self._wait_in_real_time(timeout)
        ready = super().select(0)
        if ready:
            return ready
        self._jumps += 1
        self._seconds_without_grace += timeout
        self._loop.advance(timeout)
        return []

    def _grace_seconds(self, timeout: float) -> float:
        """Return how long to wait for bytes; 0 if only the loop's own wake-up pipe is open."""
        if len(self.get_map()) == 1:
            return 0
        if self._jumps < QUIET_JUMPS:
            return min(timeout, GRACE)
        if self._seconds_without_grace + timeout < 1:
            return 0
        self._seconds_without_grace = 0.0
        return QUIET_GRACE

    def _wait_in_real_time(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for a short time, since a thread that ends silently does not wake the loop."""
        began = time.monotonic()
        found = super().select(min(timeout, SLICE))
        self._loop.advance(min(timeout, time.monotonic() - began))
        return found


def _is_working(thread: threading.Thread, loop: VirtualTimeLoop) -> bool:
    if thread.name.startswith("asyncio-waitpid-"):
        return True
    if thread.name != "AnyIO worker thread":
        return False
    return getattr(thread, "loop", None) is loop and thread.queue.unfinished_tasks > 0
