"""An event loop of virtual time without the threads of executors, so that the order of all work is always the same."""

from asyncio import Future
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tests.support.virtual_time import VirtualTimeLoop


class InlineLoop(VirtualTimeLoop):
    """A loop of virtual time that runs the work of an executor at once."""

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> Future[Any]:
        job = self.create_future()
        try:
            job.set_result(func(*args))
        except Exception as fault:  # noqa: BLE001 - the caller awaits it
            job.set_exception(fault)
        return job
