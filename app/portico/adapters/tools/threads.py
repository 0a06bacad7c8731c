"""Threads for the blocking functions of tools."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


class DaemonThreads:
    """Implementation of the `ToolThreads` port: one new thread per call, at most `capacity` at the same time.

    Further calls wait. A thread whose call was cancelled is abandoned: it counts until its function returns, and the
    process does not wait for it when it ends.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._slots = anyio.Semaphore(capacity)
        self.abandoned = 0
        """Threads whose calls were given up and whose functions have not returned."""

    @property
    def is_exhausted(self) -> bool:
        """Return True if abandoned calls hold every thread."""
        return self.abandoned >= self._capacity

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work on a thread of its own and return what it returns."""
        await self._slots.acquire()
        loop, call = asyncio.get_running_loop(), _Call(self)
        executor = _NewThread(partial(_notify, loop, call.end))
        try:
            return await loop.run_in_executor(executor, partial(copy_context().run, _without_stop_iteration, work))
        except asyncio.CancelledError:
            call.abandon()
            raise


class _Call:
    """One call of a blocking function; its slot is free again once the function has returned."""

    def __init__(self, threads: DaemonThreads) -> None:
        self._threads = threads
        self._has_ended = False
        self._is_abandoned = False

    def abandon(self) -> None:
        if not self._has_ended:
            self._is_abandoned = True
            self._threads.abandoned += 1

    def end(self) -> None:
        self._has_ended = True
        self._threads.abandoned -= self._is_abandoned
        self._threads._slots.release()


class _NewThread(Executor):
    """Runs one function on a new daemon thread and calls back when it has ended or will never begin."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Start the function; `kwargs` are passed on, as the interface demands."""
        future: Future[T] = Future()
        future.add_done_callback(lambda _: self._on_end())
        Thread(target=_run, args=(future, partial(fn, *args, **kwargs)), daemon=True).start()
        return future


def _run(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - other people's code: the caller gets what it raises
        future.set_exception(error)
    else:
        future.set_result(result)


def _without_stop_iteration(work: Callable[[], T]) -> T:
    """Do the work. A future cannot carry StopIteration, so it becomes a RuntimeError, as in a coroutine."""
    try:
        return work()
    except StopIteration as stopped:
        raise RuntimeError("the function raised StopIteration") from stopped


def _notify(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call back on the loop's own thread; a loop that has ended needs no call."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
