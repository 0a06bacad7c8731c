"""Runner for several replicas on one PostgreSQL: a DBOS queue with workers on every replica.

Decisions

1. DBOS decides whose turn it is; our journal records what happened. A queued execution is a workflow whose id is the
   execution's id and the epoch that it is claimed from; the workflow only runs the execution until it ends or is
   suspended. Running it is not a step of the workflow: measured, a checkpoint more than doubles the 2.9 ms of CPU that
   a workflow costs, and the epoch prevents a second run anyway.
2. A takeover has two parts. A workflow that a dead replica had dequeued is put back into the queue here. An execution
   that the dead replica had claimed belongs to it in the store, and is queued again from its next epoch by the sweep.
3. DBOS runs on threads and an event loop of its own. A dequeued execution waits here for a free task like any other
   execution; its workflow ends when the execution has ended, or not at all if the replica ends first. A replica that
   drains leaves DBOS at once, so that it dequeues nothing more.
4. The queue's limits hold across all replicas; this replica's own limit is that of its task pool.
5. An execution that could not be queued because the database did not answer is stored all the same, and the next sweep
   finds it.

The serializer is JSON instead of the default, and the application version never changes, because an execution may be
continued by any version that knows its pattern. DBOS is imported only where it is used.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import CancelScope, Event, create_task_group, fail_after, to_thread

from portico.adapters.runners.fair_queue import FairQueue, QueueLimits
from portico.adapters.runners.task_pool import TaskPool, overloaded_failure
from portico.domain.failures import Code, StorageFailure
from portico.domain.ids import ExecutionId, TenantId
from portico.domain.value import replace, value
from portico.ports.runtime import Clock, QueueTicket, ReservedPlace

if TYPE_CHECKING:
    from dbos import DBOS, EnqueueOptions

T = TypeVar("T")
_QUEUE, _WORKFLOW, _VERSION = "executions", "advance", "1"
DEQUEUE_THREAD = f"queue-worker-{_QUEUE}"
"""Name that the library gives the thread which dequeues."""
_FINISHED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")
_POLL_INTERVAL_S = 0.25
_COUNT_TTL_S = 1.0
_RETRY_S = 1.0
_CALL_TIMEOUT_S = 4.0
_PURGE_TIMEOUT_S = 60.0
_DEQUEUE_TIMEOUT_S = 2.0
_POOL_SIZE = 5
_PAGE_SIZE = 500


@value
class SharedQueue:
    """The queue that replicas share: its database, the name of this replica, and a count of waiting executions."""

    url: str
    replica: str
    count_waiting: Callable[[], Awaitable[int]]


class DbosRunner:
    """Implementation of the `Runner` port on the shared queue. `on_fault` is called when the queue failed."""

    def __init__(
        self,
        pool: TaskPool,
        limits: QueueLimits,
        *,
        shared: SharedQueue,
        clock: Clock,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self.start = pool.start
        self._pool = pool
        self._limits = limits
        self._shared = shared
        self._on_fault = on_fault
        self._waiting = _WaitingCount(shared.count_waiting, clock)
        self._local_queue = FairQueue(
            pool, replace(limits, max_running_per_tenant=limits.max_running), clock, self._on_done
        )
        self._loop = asyncio.get_running_loop()
        self._dbos: DBOS | None = None
        self._dequeued: deque[tuple[QueueTicket, Future[None]]] = deque()
        self._wake_up = Event()
        self._workflows: dict[QueueTicket, Future[None]] = {}

    def reserve(self) -> ReservedPlace:
        return self._pool.reserve()

    async def admit(self) -> None:
        self._pool.require_accepting()
        if await self._waiting.read() >= self._limits.max_waiting:
            raise overloaded_failure("the maximum number of executions is waiting")
        self._waiting.add_one()

    async def queue(self, ticket: QueueTicket) -> None:
        await self._call(partial(_enqueue, ticket=ticket))

    def leave(self) -> None:
        """Dequeue no more executions; new ones are still accepted, and queued for the other replicas."""
        self._local_queue.stop_serving()
        if self._dbos is not None:
            stop_dequeueing(self._dbos)

    @property
    def is_leaving(self) -> bool:
        """Return True if queued executions are not started here any more."""
        return self._pool.is_draining or not self._local_queue.is_serving

    @property
    def is_draining(self) -> bool:
        return self._pool.is_draining

    @property
    def in_flight(self) -> int:
        """Return the number of running executions."""
        return self._pool.in_flight

    @asynccontextmanager
    async def serving(self, run_ticket: Callable[[QueueTicket], Awaitable[None]]) -> AsyncIterator[None]:
        """Run queued executions with `run_ticket` while the context is open. Raises: StorageFailure."""
        self._local_queue.start_serving(run_ticket)
        try:
            self._dbos = await to_thread.run_sync(self._launch)
        except Exception as fault:  # the library raises the exceptions of its own drivers
            raise _unavailable() from fault
        async with create_task_group() as group:
            group.start_soon(self._accept)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                with CancelScope(shield=True):
                    await self._stop()

    async def drain(self, cancel: Callable[[], None]) -> None:
        """Drain the task pool as `TaskPool.drain`; queued executions are left to the other replicas."""
        self._pool.stop_accepting()
        await self._stop()
        await self._pool.drain(cancel)

    async def reclaim(self, alive: Collection[str]) -> None:
        """Put the workflows of dead replicas back into the queue."""
        await self._call(partial(_reclaim, alive=frozenset(alive)))

    async def purge(self, before: str) -> None:
        """Delete the workflows that finished before that time, given in RFC 3339."""
        await self._call(partial(_purge, before=before), _PURGE_TIMEOUT_S)

    def _launch(self) -> "DBOS":
        from dbos import DBOS, DBOSPortableJSONSerializer  # noqa: PLC0415 - forty megabytes, for PostgreSQL alone

        _set_log_level(logging.WARNING)
        dbos = DBOS(
            config={
                "name": "portico",
                "system_database_url": self._shared.url,
                "sys_db_pool_size": _POOL_SIZE,
                "serializer": DBOSPortableJSONSerializer(),
                "application_version": _VERSION,
                "executor_id": self._shared.replica,
                "log_level": "WARNING",
            }
        )

        async def workflow(tenant: TenantId, execution_id: ExecutionId, epoch: int) -> None:
            await self._run_workflow(QueueTicket(tenant, execution_id, epoch))

        DBOS.workflow(name=_WORKFLOW)(workflow)
        DBOS.launch()
        DBOS.register_queue(
            _QUEUE,
            global_concurrency=self._limits.max_running,
            partition_concurrency=self._limits.max_running_per_tenant,
            polling_interval_sec=_POLL_INTERVAL_S,
            on_conflict="always_update",
        )
        return dbos

    async def _stop(self) -> None:
        """Leave the shared queue; other replicas take back what this one had dequeued."""
        dbos, self._dbos = self._dbos, None
        if dbos is not None:
            _set_log_level(logging.ERROR)
            await to_thread.run_sync(destroy, dbos)

    async def _run_workflow(self, ticket: QueueTicket) -> None:
        """Wait on the library's event loop until the execution has ended on ours."""
        done: Future[None] = Future()
        self._loop.call_soon_threadsafe(self._on_dequeued, ticket, done)
        await asyncio.wrap_future(done)

    def _on_dequeued(self, ticket: QueueTicket, done: "Future[None]") -> None:
        self._dequeued.append((ticket, done))
        self._wake_up.set()

    async def _accept(self) -> None:
        """Move dequeued executions to the local queue until cancelled."""
        while True:
            await self._wake_up.wait()
            self._wake_up = Event()
            while self._dequeued:
                ticket, done = self._dequeued.popleft()
                if self._local_queue.add(ticket):
                    self._workflows[ticket] = done
                elif not done.done():
                    done.set_result(None)
            self._local_queue.serve()

    def _on_done(self, ticket: QueueTicket) -> None:
        done = self._workflows.pop(ticket)
        if not done.done() and self._dbos is not None:
            done.set_result(None)

    async def _call(self, work: "Callable[[DBOS], None]", seconds: float = _CALL_TIMEOUT_S) -> None:
        """Call the library on a thread, which is left alone if the database does not answer in time."""
        if self._dbos is None:
            return
        try:
            with fail_after(seconds):
                await to_thread.run_sync(work, self._dbos, abandon_on_cancel=True)
        except Exception as fault:  # noqa: BLE001 - the library raises the exceptions of its own drivers
            self._on_fault(fault)


class _WaitingCount:
    """Number of waiting executions, read from the database at most once a second."""

    def __init__(self, count: Callable[[], Awaitable[int]], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._last, self._read_at = 0, clock.monotonic() - _COUNT_TTL_S

    async def read(self) -> int:
        now = self._clock.monotonic()
        if now - self._read_at >= _COUNT_TTL_S:
            self._last, self._read_at = await self._count(), now
        return self._last

    def add_one(self) -> None:
        """Count an execution that was admitted since the last read."""
        self._last += 1


def _enqueue(dbos: "DBOS", ticket: QueueTicket) -> None:
    """Enqueue the ticket once; if its workflow has finished without running the execution, enqueue it anew."""
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
    arguments = (ticket.tenant, ticket.execution_id, ticket.epoch)
    try:
        dbos.enqueue_workflow_with_options(options, *arguments)
    except error.DBOSWorkflowIDInUseError:
        earlier = dbos.get_workflow_status(workflow_id)
        if earlier is not None and earlier.status in _FINISHED:
            dbos.delete_workflows([workflow_id])
            dbos.enqueue_workflow_with_options(options, *arguments)


def _reclaim(dbos: "DBOS", alive: frozenset[str]) -> None:
    dequeued = dbos.list_workflows(status="PENDING", queue_name=_QUEUE, load_input=False, load_output=False)
    orphans = [each.workflow_id for each in dequeued if each.executor_id not in alive]
    if orphans:
        dbos.resume_workflows(orphans, queue_name=_QUEUE)


def _purge(dbos: "DBOS", before: str) -> None:
    while found := dbos.list_workflows(
        status=list(_FINISHED), completed_before=before, limit=_PAGE_SIZE, load_input=False, load_output=False
    ):
        dbos.delete_workflows([each.workflow_id for each in found])


def stop_dequeueing(dbos: "DBOS") -> None:
    """Have the thread that dequeues end soon; the library still enqueues."""
    for event in dbos.background_thread_stop_events:
        event.set()


def destroy(dbos: "DBOS") -> None:
    """Stop the library, and before it the thread that dequeues.

    The library closes its event loop before that thread has ended, which then logs an error for each workflow that it
    has dequeued and cannot start any more.
    """
    stop_dequeueing(dbos)
    for thread in threading.enumerate():
        if thread.name == DEQUEUE_THREAD and thread.ident is not None:  # one that has not begun dequeues nothing
            thread.join(_DEQUEUE_TIMEOUT_S)
    dbos.destroy(destroy_registry=True)


def _set_log_level(level: int) -> None:
    """Log the library's messages of that level and above with ours, and not on a console of its own."""
    logger = logging.getLogger("dbos")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.setLevel(level)


def _unavailable() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=_RETRY_S)
