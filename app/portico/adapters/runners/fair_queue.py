"""Queue of the executions that wait in this process, with one line for each tenant, served in rotation."""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from functools import partial

from portico.adapters.runners.task_pool import TaskPool
from portico.domain.access.limits import DEFAULT_TENANT
from portico.domain.failures import Code, StorageFailure
from portico.domain.ids import TenantId
from portico.domain.value import value
from portico.ports.runtime import Clock, QueueTicket

_RETRY_S = 1.0


@value
class QueueLimits:
    """Numbers of executions that may wait, and of queued executions that may run at once, in all and per tenant.

    `concurrency` is that of tenants with a limit of their own; more would only wait for its slots, in tasks.
    """

    max_waiting: int
    max_running: int
    max_running_per_tenant: int
    concurrency: Mapping[str, int] = field(default_factory=dict)

    def max_running_of(self, tenant: TenantId) -> int:
        """Return how many of the tenant may run at once."""
        own = self.concurrency.get(tenant, self.concurrency.get(DEFAULT_TENANT, self.max_running_per_tenant))
        return min(self.max_running_per_tenant, own)


class FairQueue:
    """A queue that runs tickets as the task pool has capacity, and retries while the database does not answer.

    A ticket is queued at most once, and runs once at a time; tickets of other epochs of its execution are independent.
    """

    def __init__(
        self,
        pool: TaskPool,
        limits: QueueLimits,
        clock: Clock,
        on_done: Callable[[QueueTicket], None] = lambda _: None,
    ) -> None:
        """Create a queue that calls `on_done` for every ticket that ran to its end."""
        self._pool = pool
        self._clock = clock
        self._limits = limits
        self._on_done = on_done
        self._run_ticket: Callable[[QueueTicket], Awaitable[None]] | None = None
        self._waiting: dict[TenantId, deque[QueueTicket]] = {}
        self._known: set[QueueTicket] = set()
        self._running: Counter[TenantId] = Counter()
        pool.on_capacity = self.serve

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def start_serving(self, run_ticket: Callable[[QueueTicket], Awaitable[None]]) -> None:
        """Run tickets from now on, by calling `run_ticket`."""
        self._run_ticket = run_ticket
        self.serve()

    def stop_serving(self) -> None:
        """Start no more tickets; those that run go on."""
        self._run_ticket = None

    @property
    def is_serving(self) -> bool:
        """Return whether tickets are started."""
        return self._run_ticket is not None

    def add(self, ticket: QueueTicket) -> bool:
        """Queue the ticket behind those of its tenant; return False if it is queued or running already."""
        if ticket in self._known:
            return False
        self._known.add(ticket)
        self._waiting.setdefault(ticket.tenant, deque()).append(ticket)
        return True

    def serve(self) -> None:
        """Start as many tickets as there is capacity for, the first of each tenant in rotation."""
        while self._run_ticket is not None and self._pool.has_capacity and (ticket := self._next()) is not None:
            self._running[ticket.tenant] += 1
            self._pool.start(ticket.execution_id, partial(self._run, self._run_ticket, ticket))

    async def _run(self, run_ticket: Callable[[QueueTicket], Awaitable[None]], ticket: QueueTicket) -> None:
        try:
            while not await self._is_done(run_ticket, ticket):
                await self._clock.sleep(_RETRY_S)
        except Exception:  # a bug of the execution ends its turn; a cancellation leaves it to the next owner
            self._on_done(ticket)
            raise
        else:
            self._on_done(ticket)
        finally:
            self._remove(ticket)

    async def _is_done(self, run_ticket: Callable[[QueueTicket], Awaitable[None]], ticket: QueueTicket) -> bool:
        """Run the ticket and return whether that ended; it did not if the database does not answer."""
        try:
            await run_ticket(ticket)
        except StorageFailure as fault:
            if fault.code is Code.STORAGE_SNAPSHOT_INVALID:
                raise
            return self._pool.is_draining
        return True

    def _remove(self, ticket: QueueTicket) -> None:
        self._known.discard(ticket)
        self._running[ticket.tenant] -= 1
        if not self._running[ticket.tenant]:
            del self._running[ticket.tenant]

    def _next(self) -> QueueTicket | None:
        """Take the next ticket out of the queue and move its tenant behind the others."""
        if self._running.total() >= self._limits.max_running:
            return None
        for tenant in self._waiting:
            if self._running[tenant] < self._limits.max_running_of(tenant):
                waiting = self._waiting.pop(tenant)
                ticket = waiting.popleft()
                if waiting:
                    self._waiting[tenant] = waiting
                return ticket
        return None
