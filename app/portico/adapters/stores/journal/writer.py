"""Ordered writer: commits are queued, written in groups, and published after their transaction.

Theory of operation

1. The queue is first in, first out across all executions, so the commits of each execution stay in order. While one
   group is being committed, the next one gathers. A group is one transaction with one completion event; there is no
   future per row.
2. A delta is queued too while its execution has commits in the queue, and is published with the group that commits
   the events before it.
3. If a group cannot be committed, its executions are lost: nothing more of them is written, and `on_lost` is called.
   An execution that another owner has claimed is lost alone. So the stored history is always a prefix. A bug has the
   same effect and no other, because all commits of the process go through this task. If the database does not answer,
   those that gathered meanwhile are lost, too: each has waited for it, and none waits for the time of two groups.
4. Executions that ended in memory have a queue of their own, which is written when it is long enough or some time has
   passed. If it is full, an execution is dropped and counted.
5. The queue is limited in bytes: an execution that puts a commit when it is full is lost. This happens when the
   database is too slow for as long as a group may take.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import anyio

from portico.adapters.stores.database import Database
from portico.adapters.stores.journal.group_commit import BatchResult, CommitBatch, ExecutionAdvance, apply_batch
from portico.adapters.stores.journal.insert_execution import InsertRefusal, NewExecution
from portico.domain.failures import Code, Failure, StorageFailure
from portico.domain.ids import ExecutionId, RequestId
from portico.domain.journal.events import LiveDelta, StoredEvent
from portico.domain.value import value
from portico.ports.events import EventPublisher

_RETRY_AFTER = 1.0


@value
class WriterLimits:
    """Limits of a group and of both queues, and the time in which executions that ended in memory gather."""

    group_items: int = 512
    group_bytes: int = 8 * 2**20
    queue_bytes: int = 64 * 2**20
    ended_bytes: int = 16 * 2**20
    gather_seconds: float = 0.25


@value
class WriterCallbacks:
    """Callbacks for data that is not stored.

    `on_lost` is called for a running execution, with the reason; `on_dropped` for one that ended in memory, and
    `on_refused` before it with its request id, if another one has that id or its origin is gone; `on_bug`
    for an unexpected exception that broke a group, and `on_announced` once deliveries are stored.
    """

    on_lost: Callable[[ExecutionId, Failure], None]
    on_dropped: Callable[[], None]
    on_bug: Callable[[Exception], None]
    on_refused: Callable[[RequestId, Failure], None] = lambda _, __: None
    on_announced: Callable[[], None] = lambda: None


@dataclass(slots=True, eq=False)
class WriteStream:
    """Commits of one execution: `queued` counts those in the queue, `end` is the reason why no more are written."""

    execution_id: ExecutionId
    queued: int = 0
    end: InsertRefusal | None = None


@value
class QueuedCommit:
    """An execution, or an advance of it, in the queue; `events` are published after it is committed.

    It `announces` if it has deliveries.
    """

    stream: WriteStream
    work: NewExecution | ExecutionAdvance
    size: int
    events: Sequence[StoredEvent] = ()
    announces: bool = False


class EndedExecution(NamedTuple):
    """An execution that ended in memory."""

    execution: NewExecution
    size: int


@value
class _QueuedDelta:
    """One delta in the queue."""

    stream: WriteStream
    live: LiveDelta
    size: int


_Queued: TypeAlias = QueuedCommit | _QueuedDelta


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


_Item = TypeVar("_Item", bound=_Sized)


class _SizedQueue(Generic[_Item]):
    """A queue that knows the size of its items in bytes, and how many were `appended` and `settled` so far."""

    def __init__(self) -> None:
        self.items: deque[_Item] = deque()
        """The items, first in, first out; `append` and `take` change them."""
        self.bytes = 0
        self.appended = self.settled = 0

    def append(self, item: _Item) -> None:
        self.items.append(item)
        self.appended += 1
        self.bytes += item.size

    def take(self) -> _Item:
        """Remove the first item and return it."""
        item = self.items.popleft()
        self.bytes -= item.size
        return item


class GroupWriter:
    """Writer that commits and publishes queued commits; `run` is its only task."""

    def __init__(
        self, database: Database, sink: EventPublisher, *, limits: WriterLimits, callbacks: WriterCallbacks
    ) -> None:
        self._database = database
        self._sink = sink
        self._limits = limits
        self._callbacks = callbacks
        self._queue: _SizedQueue[_Queued] = _SizedQueue()
        self._ended: _SizedQueue[EndedExecution] = _SizedQueue()
        self._arrived = anyio.Event()
        self._enough = anyio.Event()
        self._committed = anyio.Event()
        self._finished = anyio.Event()
        self._closing = False

    def put(self, item: QueuedCommit) -> None:
        """Queue what was put."""
        if item.stream.end is not None:
            return
        if self._queue.bytes + item.size > self._limits.queue_bytes:
            self._lose(item.stream, _too_slow())
            return
        item.stream.queued += 1
        self._append(item)

    def publish_delta(self, stream: WriteStream, live: LiveDelta, size: int) -> None:
        """Publish a delta after the queued commits of its execution, or drop it if the queue is full."""
        if stream.end is not None:
            return
        if stream.queued == 0:
            self._sink.publish(stream.execution_id, (live,))
        elif self._queue.bytes + size <= self._limits.queue_bytes:
            self._append(_QueuedDelta(stream, live, size))

    def write_ended(self, encode: Callable[[], EndedExecution]) -> None:
        """Queue an execution that ended in memory; it is encoded only if there is room for it."""
        if self._ended.bytes >= self._limits.ended_bytes:
            self._callbacks.on_dropped()
            return
        self._ended.append(encode())
        self._arrived.set()
        if self._ended.bytes * 4 > self._limits.ended_bytes or len(self._ended.items) * 4 > self._limits.group_items:
            self._enough.set()

    async def flush(self, stream: WriteStream) -> None:
        """Return when no commit of the execution is queued."""
        while stream.queued > 0 and stream.end is None:
            await self._committed.wait()

    async def flush_all(self) -> None:
        """Return when all that was queued before this call, ended executions too, is written, lost or dropped."""
        last = [(queue, queue.appended) for queue in (self._queue, self._ended)]
        while any(queue.settled < count for queue, count in last):
            self._enough.set()
            await self._committed.wait()

    async def run(self) -> None:
        """Write until the writer is closed and both queues are empty."""
        while not self._closing or self._queue.items or self._ended.items:
            if not self._queue.items:
                await self._gather()
            if self._queue.items or self._ended.items:
                await self._commit_group()
        self._finished.set()

    async def close(self) -> None:
        """Accept no more commits and return when all are written or lost."""
        self._closing = True
        self._arrived.set()
        self._enough.set()
        await self._finished.wait()

    def _append(self, item: _Queued) -> None:
        self._queue.append(item)
        self._arrived.set()
        self._enough.set()

    async def _gather(self) -> None:
        """Wait for an item; if there are only executions that ended in memory, wait a little for more."""
        if not self._ended.items and not self._closing:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        if not self._queue.items and not self._closing:
            self._enough = anyio.Event()
            with anyio.move_on_after(self._limits.gather_seconds):
                await self._enough.wait()

    async def _commit_group(self) -> None:
        group, ended = self._take_group(), self._take_ended()
        batch = CommitBatch()
        for item in group:
            _add(batch, item)
        batch.ended = [each.execution for each in ended]
        try:
            result = await self._database.append(lambda: apply_batch(batch))
        except StorageFailure as failure:
            group += self._take_all() if failure.code is Code.STORAGE_UNAVAILABLE else []
            self._lose_group(group, ended, failure)
        except Exception as bug:  # noqa: BLE001 - a bug in one group must not end the commits of all executions
            self._callbacks.on_bug(bug)
            self._lose_group(group, ended, _write_failed())
        else:
            self._settle(group, ended, result)
        for queue in (self._queue, self._ended):
            queue.settled = queue.appended - len(queue.items)
        self._committed.set()
        self._committed = anyio.Event()

    def _take_group(self) -> list[_Queued]:
        group: list[_Queued] = []
        size = 0
        while self._queue.items and len(group) < self._limits.group_items and size < self._limits.group_bytes:
            item = self._queue.take()
            size += item.size
            if item.stream.end is None:
                group.append(item)
        return group

    def _take_all(self) -> list[_Queued]:
        return [self._queue.take() for _ in range(len(self._queue.items))]

    def _take_ended(self) -> list[EndedExecution]:
        return [self._ended.take() for _ in range(min(len(self._ended.items), self._limits.group_items))]

    def _settle(self, group: Sequence[_Queued], ended: Sequence[EndedExecution], result: BatchResult) -> None:
        for item in group:
            stream = item.stream
            if stream.end is None and stream.execution_id in result.refused:
                stream.end = result.refused[stream.execution_id]
            elif stream.end is None and stream.execution_id in result.lost:
                self._lose(stream, _claimed_elsewhere())
            if stream.end is None:
                self._publish(item)
        for each in ended:
            refusal = result.refused.get(each.execution.header.execution_id)
            if isinstance(refusal, Failure):
                self._callbacks.on_refused(each.execution.row["request_id"], refusal)
                self._callbacks.on_dropped()

    def _publish(self, item: _Queued) -> None:
        if isinstance(item, _QueuedDelta):
            self._sink.publish(item.stream.execution_id, (item.live,))
            return
        item.stream.queued -= 1
        if item.events:
            self._sink.publish(item.stream.execution_id, item.events)
        if item.announces:
            self._callbacks.on_announced()

    def _lose_group(self, group: Sequence[_Queued], ended: Sequence[EndedExecution], failure: StorageFailure) -> None:
        for item in group:
            if item.stream.end is None:
                self._lose(item.stream, failure)
        for _ in ended:
            self._callbacks.on_dropped()

    def _lose(self, stream: WriteStream, reason: Failure) -> None:
        stream.end = reason
        self._callbacks.on_lost(stream.execution_id, reason)


def _add(batch: CommitBatch, item: _Queued) -> None:
    if isinstance(item, QueuedCommit):
        if isinstance(item.work, NewExecution):
            batch.new_executions[item.stream.execution_id] = item.work
        else:
            batch.advances.setdefault(item.stream.execution_id, []).append(item.work)
            batch.announces |= item.announces


def _too_slow() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database is too slow", retry_after=_RETRY_AFTER)


def _write_failed() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the execution could not be written")


def _claimed_elsewhere() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "another replica has claimed this execution")
