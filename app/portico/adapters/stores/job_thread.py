"""The thread of a database: an executor whose jobs end in the event loop that started them."""

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class JobThread(Executor):
    """Executor with one thread for the jobs of event loops.

    It gives a job a future of the loop, which `run_in_executor` hands out as it is. So a job takes half of what one of
    a `ThreadPoolExecutor` does, whose future is copied into one of the loop.
    """

    def __init__(self, name: str) -> None:
        self._jobs = SimpleQueue[Callable[[], None] | None]()
        self._thread = Thread(target=self._do_jobs, name=name, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Any:
        """Return the future of the job, which belongs to the running loop."""
        loop = get_running_loop()
        done: Future[T] = loop.create_future()
        self._jobs.put(partial(_do, loop, done, partial(fn, *args, **kwargs)))
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as in its base
        """Let the thread end behind its jobs."""
        self._jobs.put(None)
        if wait:
            self._thread.join()

    def _do_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _do(loop: AbstractEventLoop, done: "Future[T]", job: Callable[[], T]) -> None:
    """Do the job, and settle its future in the loop."""
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
        loop.call_soon_threadsafe(_settle, done, done.set_exception, error)
    else:
        loop.call_soon_threadsafe(_settle, done, done.set_result, result)


def _settle(done: "Future[T]", settle: Callable[[Any], None], outcome: object) -> None:
    """Settle the future, unless it was cancelled."""
    if not done.done():
        settle(outcome)
