"""The line of those that wait in this process for their turn, one for each tenant, served in rotation."""

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from app.adapters.runners.task_pool import TaskPool
from app.domain.failures import Code, StorageFailure
from app.ports.runtime import Clock, QueueTicket

_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many may wait, and how many of those that waited may run at once, in all and of one tenant."""

    max_waiting: int
    max_running: int
    max_running_per_tenant: int


class FairQueue:
    """Advances what waits as there is room, again while the database does not answer.

    A ticket stands in it once, and has one turn at a time; those of other epochs of its execution are none of its.
    """

    def __init__(
        self,
        slots: TaskPool,
        limits: QueueLimits,
        clock: Clock,
        on_over: Callable[[QueueTicket], None] = lambda _: None,
    ) -> None:
        """`on_over` is told of every turn that came to its end."""
        self._slots = slots
        self._clock = clock
        self._limits = limits
        self._on_over = on_over
        self._advance: Callable[[QueueTicket], Awaitable[None]] | None = None
        self._waiting: dict[str, deque[QueueTicket]] = {}
        self._known: set[QueueTicket] = set()
        self._running: Counter[str] = Counter()
        slots.on_capacity = self.serve

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def start_serving(self, advance: Callable[[QueueTicket], Awaitable[None]]) -> None:
        """From now on their turns come, and are taken by `advance`."""
        self._advance = advance
        self.serve()

    def add(self, ticket: QueueTicket) -> bool:
        """Puts it behind the others of its tenant, unless it waits or has its turn already, which is False."""
        if ticket in self._known:
            return False
        self._known.add(ticket)
        self._waiting.setdefault(ticket.tenant, deque()).append(ticket)
        return True

    def serve(self) -> None:
        """Starts as many as there is room for: each tenant's first, in turn."""
        while self._advance is not None and self._slots.has_capacity and (ticket := self._next()) is not None:
            self._running[ticket.tenant] += 1
            self._slots.start(ticket.execution_id, partial(self._take_turn, self._advance, ticket))

    async def _take_turn(self, advance: Callable[[QueueTicket], Awaitable[None]], ticket: QueueTicket) -> None:
        try:
            while not await self._advanced(advance, ticket):
                await self._clock.sleep(_RETRY_S)
        except Exception:  # a bug in an execution ends its turn, a cancel leaves it to the next owner
            self._on_over(ticket)
            raise
        else:
            self._on_over(ticket)
        finally:
            self._leave(ticket)

    async def _advanced(self, advance: Callable[[QueueTicket], Awaitable[None]], ticket: QueueTicket) -> bool:
        """Whether that came to an end; not while the database does not answer."""
        try:
            await advance(ticket)
        except StorageFailure as fault:
            if fault.code is Code.STORAGE_SNAPSHOT_INVALID:
                raise
            return self._slots.is_draining
        return True

    def _leave(self, ticket: QueueTicket) -> None:
        """Its turn is over."""
        self._known.discard(ticket)
        self._running[ticket.tenant] -= 1
        if not self._running[ticket.tenant]:
            del self._running[ticket.tenant]

    def _next(self) -> QueueTicket | None:
        """Takes the next out of the line; its tenant goes behind the others."""
        if self._running.total() >= self._limits.max_running:
            return None
        for tenant in self._waiting:
            if self._running[tenant] < self._limits.max_running_per_tenant:
                waiting = self._waiting.pop(tenant)
                ticket = waiting.popleft()
                if waiting:
                    self._waiting[tenant] = waiting
                return ticket
        return None
