"""Who runs executions where one process owns the database: this process, and its own line."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from app.adapters.runners.fair_queue import FairQueue, QueueLimits
from app.adapters.runners.task_pool import TaskPool, overloaded_failure
from app.domain.ids import ExecutionId
from app.ports.runtime import Clock, QueueTicket


class LocalRunner:
    """Implements `ports.Runner`. What waits when the process ends is found in the store by the next."""

    def __init__(self, slots: TaskPool, limits: QueueLimits, clock: Clock) -> None:
        self._slots = slots
        self._limits = limits
        self._line = FairQueue(slots, limits, clock)

    def start(self, execution_id: ExecutionId, body: Callable[[], Awaitable[None]]) -> None:
        self._slots.start(execution_id, body)

    async def admit(self) -> None:
        self._slots.require_accepting()
        if len(self._line) >= self._limits.max_waiting:
            raise overloaded_failure("as many executions wait for their turn as may")

    async def queue(self, ticket: QueueTicket) -> None:
        if self._line.add(ticket):
            self._line.serve()

    @property
    def is_draining(self) -> bool:
        return self._slots.is_draining

    @property
    def in_flight(self) -> int:
        """How many executions run right now."""
        return self._slots.in_flight

    @asynccontextmanager
    async def serving(self, advance: Callable[[QueueTicket], Awaitable[None]]) -> AsyncIterator[None]:
        """Turns come while this is open, and are taken by `advance`."""
        self._line.start_serving(advance)
        yield

    async def drain(self, cancel: Callable[[], None]) -> None:
        """As `Slots.drain`; what waits is left to the next owner of the database."""
        await self._slots.drain(cancel)
