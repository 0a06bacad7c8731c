"""Who runs executions where one process owns the database: this process, and its own line."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from app.adapters.durable.line import Line, LineLimits
from app.adapters.durable.slots import Slots, overloaded
from app.ports import Clock, Ticket


class InlineRunner:
    """Implements `ports.Runner`. What waits when the process ends is found in the store by the next."""

    def __init__(self, slots: Slots, limits: LineLimits, clock: Clock) -> None:
        self._slots = slots
        self._limits = limits
        self._line = Line(slots, limits, clock)

    def start(self, execution_id: str, body: Callable[[], Awaitable[None]]) -> None:
        self._slots.start(execution_id, body)

    async def admit(self) -> None:
        self._slots.refuse_while_draining()
        if len(self._line) >= self._limits.waiting:
            raise overloaded("as many executions wait for their turn as may")

    async def queue(self, ticket: Ticket) -> None:
        if self._line.join(ticket):
            self._line.serve()

    @property
    def draining(self) -> bool:
        return self._slots.draining

    @property
    def in_flight(self) -> int:
        """How many executions run right now."""
        return self._slots.in_flight

    @asynccontextmanager
    async def attending(self, advance: Callable[[Ticket], Awaitable[None]]) -> AsyncIterator[None]:
        """Turns come while this is open, and are taken by `advance`."""
        self._line.attend(advance)
        yield

    async def drain(self, cancel: Callable[[], None]) -> None:
        """As `Slots.drain`; what waits is left to the next owner of the database."""
        await self._slots.drain(cancel)
