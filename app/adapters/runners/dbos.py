"""Who runs executions where several replicas share one PostgreSQL: a queue of DBOS, with workers on every replica.

Decisions

1. DBOS owns whose turn it is, our journal what happened. What waits is a workflow whose id is the execution's and the
   epoch that it is claimed from; all it does is to advance the execution until it ends or is suspended. Advancing is
   not a step of it: measured, a checkpoint more than doubles the 2.9 ms of CPU that a workflow costs, and all that it
   would save from running again is refused by the epoch anyway.
2. Take-over has two halves. A workflow that a dead replica had taken is put back into the queue here. An execution that
   it had claimed belongs to it in the store, and is queued anew from its next epoch by whoever sweeps.
3. It runs on threads and an event loop of its own. A turn that has come waits here for a place, as any other execution
   does; its workflow ends when the execution has, and not at all when the replica ends first. A replica that drains
   leaves it at once, so that nothing more is given to it.
4. The limits of the queue hold over all replicas; what this replica runs at once is bounded by its places.
5. What could not be queued, since the database did not answer, is stored all the same, and found by the next sweep.

Its serializer is JSON, not the default, and the version of its application never changes: an execution goes on under
any version of ours that knows its pattern. It is loaded only where it is used.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import CancelScope, Event, create_task_group, to_thread

from app.adapters.runners.fair_queue import FairQueue, QueueLimits
from app.adapters.runners.task_pool import TaskPool, overloaded_failure
from app.domain.failures import Code, StorageFailure
from app.domain.ids import ExecutionId, TenantId
from app.ports.runtime import Clock, QueueTicket

if TYPE_CHECKING:
    from dbos import DBOS, EnqueueOptions

T = TypeVar("T")
_QUEUE, _WORKFLOW, _VERSION = "executions", "advance", "1"
_OVER = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
_POLL_S = 0.25
_COUNTED_FOR_S = 1.0
_RETRY_S = 1.0
_CONNECTIONS = 5
_PAGE = 500


@dataclass(frozen=True, slots=True)
class SharedQueue:
    """What the replicas share: the database, who this one is in it, and how many executions wait."""

    url: str
    replica: str
    count_waiting: Callable[[], Awaitable[int]]


class DbosRunner:
    """Implements `ports.Runner`. `on_fault` is told of what the queue could not do."""

    def __init__(
        self,
        slots: TaskPool,
        limits: QueueLimits,
        *,
        shared: SharedQueue,
        clock: Clock,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._slots = slots
        self._limits = limits
        self._shared = shared
        self._clock = clock
        self._on_fault = on_fault
        self._places = FairQueue(
            slots, replace(limits, max_running_per_tenant=limits.max_running), clock, self._turn_over
        )
        self._loop = asyncio.get_running_loop()
        self._dbos: type[DBOS] | None = None
        self._came: deque[tuple[QueueTicket, Future[None]]] = deque()
        self._somebody_came = Event()
        self._turns: dict[QueueTicket, Future[None]] = {}
        self._waiting, self._counted_at = 0, clock.monotonic() - _COUNTED_FOR_S

    def start(self, execution_id: ExecutionId, body: Callable[[], Awaitable[None]]) -> None:
        self._slots.start(execution_id, body)

    async def admit(self) -> None:
        self._slots.require_accepting()
        now = self._clock.monotonic()
        if now - self._counted_at >= _COUNTED_FOR_S:
            self._waiting, self._counted_at = await self._shared.count_waiting(), now
        if self._waiting >= self._limits.max_waiting:
            raise overloaded_failure("as many executions wait for their turn as may")
        self._waiting += 1

    async def queue(self, ticket: QueueTicket) -> None:
        await self._ask(partial(_enqueue, ticket=ticket))

    @property
    def is_draining(self) -> bool:
        return self._slots.is_draining

    @property
    def in_flight(self) -> int:
        """How many executions run right now."""
        return self._slots.in_flight

    @asynccontextmanager
    async def serving(self, advance: Callable[[QueueTicket], Awaitable[None]]) -> AsyncIterator[None]:
        """Turns come while this is open, and are taken by `advance`. Raises: StorageFailure."""
        self._places.start_serving(advance)
        try:
            self._dbos = await to_thread.run_sync(self._launch)
        except Exception as fault:  # the library raises what its own drivers do
            raise _unavailable() from fault
        async with create_task_group() as group:
            group.start_soon(self._welcome)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                with CancelScope(shield=True):
                    await self._stop()

    async def drain(self, cancel: Callable[[], None]) -> None:
        """As `Slots.drain`; what waits is left to the other replicas."""
        self._slots.stop_accepting()
        await self._stop()
        await self._slots.drain(cancel)

    async def reclaim(self, alive: Collection[str]) -> None:
        """Puts back into the queue what a replica had taken that is gone."""
        await self._ask(partial(_reclaim, alive=frozenset(alive)))

    async def purge(self, before: str) -> None:
        """Drops what is known of turns that were over before that time, given in RFC 3339."""
        await self._ask(partial(_forget, before=before))

    def _launch(self) -> "type[DBOS]":
        from dbos import DBOS, DBOSPortableJSONSerializer  # noqa: PLC0415 - forty megabytes, for PostgreSQL alone

        _quiet(logging.WARNING)
        DBOS(
            config={
                "name": "portico",
                "system_database_url": self._shared.url,
                "sys_db_pool_size": _CONNECTIONS,
                "serializer": DBOSPortableJSONSerializer(),
                "application_version": _VERSION,
                "executor_id": self._shared.replica,
                "log_level": "WARNING",
            }
        )

        async def turn(tenant: TenantId, execution_id: ExecutionId, epoch: int) -> None:
            await self._turn(QueueTicket(tenant, execution_id, epoch))

        DBOS.workflow(name=_WORKFLOW)(turn)
        DBOS.launch()
        DBOS.register_queue(
            _QUEUE,
            global_concurrency=self._limits.max_running,
            partition_concurrency=self._limits.max_running_per_tenant,
            polling_interval_sec=_POLL_S,
            on_conflict="always_update",
        )
        return DBOS

    async def _stop(self) -> None:
        """No more turns are taken; those that were are taken back by the replicas that stay."""
        dbos, self._dbos = self._dbos, None
        if dbos is not None:
            _quiet(logging.ERROR)
            await to_thread.run_sync(partial(dbos.destroy, destroy_registry=True))

    async def _turn(self, ticket: QueueTicket) -> None:
        """The workflow, on the library's own loop."""
        over: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._turn_came, ticket, over)
        await asyncio.wrap_future(over)

    def _turn_came(self, ticket: QueueTicket, over: "Future[None]") -> None:
        self._came.append((ticket, over))
        self._somebody_came.set()

    async def _welcome(self) -> None:
        """Gives places to those whose turn came."""
        while True:
            await self._somebody_came.wait()
            self._somebody_came = Event()
            while self._came:
                ticket, over = self._came.popleft()
                if self._places.add(ticket):
                    self._turns[ticket] = over
                elif not over.done():
                    over.set_result(None)
            self._places.serve()

    def _turn_over(self, ticket: QueueTicket) -> None:
        over = self._turns.pop(ticket)
        if not over.done() and self._dbos is not None:
            over.set_result(None)

    async def _ask(self, work: "Callable[[type[DBOS]], None]") -> None:
        if self._dbos is None:
            return
        try:
            await to_thread.run_sync(work, self._dbos)
        except Exception as fault:  # noqa: BLE001 - the library raises what its own drivers do
            self._on_fault(fault)


def _enqueue(dbos: "type[DBOS]", ticket: QueueTicket) -> None:
    """Whoever asks again has found that nobody took the turn, so one that is over is forgotten."""
    from dbos import error  # noqa: PLC0415 - as in _launch

    workflow_id = f"{ticket.execution_id}:{ticket.epoch}"
    options: EnqueueOptions = {
        "workflow_name": _WORKFLOW,
        "queue_name": _QUEUE,
        "workflow_id": workflow_id,
        "workflow_id_reuse_policy": "reject",
        "queue_partition_key": ticket.tenant,
        "app_version": _VERSION,
    }
    given = (ticket.tenant, ticket.execution_id, ticket.epoch)
    try:
        dbos.enqueue_workflow_with_options(options, *given)
    except error.DBOSWorkflowIDInUseError:
        earlier = dbos.get_workflow_status(workflow_id)
        if earlier is not None and earlier.status in _OVER:
            dbos.delete_workflows([workflow_id])
            dbos.enqueue_workflow_with_options(options, *given)


def _reclaim(dbos: "type[DBOS]", alive: frozenset[str]) -> None:
    taken = dbos.list_workflows(status="PENDING", queue_name=_QUEUE, load_input=False, load_output=False)
    orphans = [each.workflow_id for each in taken if each.executor_id not in alive]
    if orphans:
        dbos.resume_workflows(orphans, queue_name=_QUEUE)


def _forget(dbos: "type[DBOS]", before: str) -> None:
    while found := dbos.list_workflows(
        status=list(_OVER), completed_before=before, limit=_PAGE, load_input=False, load_output=False
    ):
        dbos.delete_workflows([each.workflow_id for each in found])


def _quiet(level: int) -> None:
    """What the library says goes where everything is logged, from that level on, and not to a console of its own."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.setLevel(level)


def _unavailable() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=_RETRY_S)
