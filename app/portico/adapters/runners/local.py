"""Runner for a process that owns its database alone."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from portico.adapters.runners.fair_queue import FairQueue, QueueLimits
from portico.adapters.runners.task_pool import TaskPool, overloaded_failure
from portico.ports.runtime import Clock, QueueTicket


class LocalRunner:
    """Implementation of the `Runner` port with a queue in this process.

    Executions that are still queued when the process ends are recovered from the store by the next process.
    """

    def __init__(self, pool: TaskPool, limits: QueueLimits, clock: Clock) -> None:
        self.start = pool.start
        self.reserve = pool.reserve
        self.drain = pool.drain
        self._pool = pool
        self._limits = limits
        self._queue = FairQueue(pool, limits, clock)

    async def admit(self) -> None:
        self._pool.require_accepting()
        if len(self._queue) >= self._limits.max_waiting:
            raise overloaded_failure("the maximum number of executions is waiting")

    async def queue(self, ticket: QueueTicket) -> None:
        if self._queue.add(ticket):
            self._queue.serve()

    def leave(self) -> None:
        """Start no more queued executions; new ones are still accepted."""
        self._queue.stop_serving()

    @property
    def is_leaving(self) -> bool:
        """Return True if queued executions are not started here any more."""
        return self._pool.is_draining or not self._queue.is_serving

    @property
    def is_draining(self) -> bool:
        return self._pool.is_draining

    @property
    def in_flight(self) -> int:
        """Return the number of running executions."""
        return self._pool.in_flight

    @asynccontextmanager
    async def serving(self, run_ticket: Callable[[QueueTicket], Awaitable[None]]) -> AsyncIterator[None]:
        """Run queued executions with `run_ticket` while the context is open."""
        self._queue.start_serving(run_ticket)
        yield
