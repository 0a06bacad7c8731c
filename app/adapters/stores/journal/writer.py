"""The one ordered writer: what is put waits in line, is committed in groups, and is published after its commit.

Theory of operation

1. The line is first in, first out over all executions, so of each everything commits in the order it was put. While
   one group commits, the next gathers. A group is one transaction and one event; there is no future per row.
2. Deltas stand in the same line while their execution has anything in it, and are published with the group that
   commits what they stand behind.
3. A group that cannot be committed loses its executions: nothing of them that is in line is written any more, and
   whoever runs them is told. So is the execution that another owner holds, alone. What is stored stays a prefix.
   A bug of ours does no more harm than that, for everybody's commits go through this one task.
4. Records of executions that were held in memory and have ended stand in a line of their own, which is written when
   enough has gathered or some time has passed. When it is full a record is dropped, and counted.
5. The line is bounded in bytes: an execution that puts more when it is full is lost. That happens when the database
   does not keep up for as long as a group may take.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import anyio

from app.adapters.stores.database import Database
from app.adapters.stores.journal.group_commit import BatchResult, CommitBatch, ExecutionAdvance, apply_batch
from app.adapters.stores.journal.insert_execution import InsertRefusal, NewExecution
from app.domain.failures import Code, Failure, StorageFailure
from app.domain.ids import ExecutionId
from app.domain.journal.events import LiveDelta, StoredEvent
from app.ports.events import EventSink

_RETRY_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """How much a group holds, how much may wait, and how many seconds records of ended executions gather."""

    group_items: int = 512
    group_bytes: int = 8 * 2**20
    queue_bytes: int = 64 * 2**20
    ended_bytes: int = 16 * 2**20
    gather_seconds: float = 0.25


@dataclass(frozen=True, slots=True)
class WriterCallbacks:
    """Who is told of what is not kept: `on_lost` of a running execution with the reason, `on_dropped` of an ended one
    that was held in memory, `on_bug` of what of ours broke a group.
    """

    on_lost: Callable[[ExecutionId, Failure], None]
    on_dropped: Callable[[], None]
    on_bug: Callable[[Exception], None]


@dataclass(slots=True, eq=False)
class WriteStream:
    """One execution as the writer knows it. `waiting` counts what stands in line; `end` says why nothing more is."""

    execution_id: ExecutionId
    queued: int = 0
    end: InsertRefusal | None = None


@dataclass(frozen=True, slots=True)
class QueuedCommit:
    """One commit in line; `events` are published after it."""

    stream: WriteStream
    work: NewExecution | ExecutionAdvance
    size: int
    events: Sequence[StoredEvent] = ()


class EndedExecution(NamedTuple):
    """The whole record of an execution that was held in memory until it ended."""

    opening: NewExecution
    size: int


@dataclass(frozen=True, slots=True)
class _Told:
    """A delta in line."""

    stream: WriteStream
    live: LiveDelta
    size: int


_InLine: TypeAlias = QueuedCommit | _Told


class GroupWriter:
    """Commits and publishes what is put. `run` is its only task.

    What it does not keep it tells its `loss`.
    """

    def __init__(self, database: Database, sink: EventSink, *, bounds: WriterLimits, loss: WriterCallbacks) -> None:
        self._database = database
        self._sink = sink
        self._bounds = bounds
        self._on_lost = loss.on_lost
        self._on_dropped = loss.on_dropped
        self._on_bug = loss.on_bug
        self._line: deque[_InLine] = deque()
        self._behind: deque[EndedExecution] = deque()
        self._line_bytes = 0
        self._behind_bytes = 0
        self._arrived = anyio.Event()
        self._enough = anyio.Event()
        self._committed = anyio.Event()
        self._finished = anyio.Event()
        self._closing = False
        self._committing = False

    def put(self, item: QueuedCommit) -> None:
        """Queues one commit."""
        if item.stream.end is not None:
            return
        if self._line_bytes + item.size > self._bounds.queue_bytes:
            self._lose(item.stream, _unavailable())
            return
        item.stream.queued += 1
        self._append(item)

    def publish_delta(self, writing: WriteStream, live: LiveDelta, size: int) -> None:
        """Publishes a delta behind what its execution has in line; drops it when there is no room for it."""
        if writing.end is not None:
            return
        if writing.queued == 0:
            self._sink.publish(writing.execution_id, (live,))
        elif self._line_bytes + size <= self._bounds.queue_bytes:
            self._append(_Told(writing, live, size))

    def write_ended(self, record: Callable[[], EndedExecution]) -> None:
        """Queues the whole record of an ended execution, written when there is time; made if there is room."""
        if self._behind_bytes >= self._bounds.ended_bytes:
            self._on_dropped()
            return
        ended = record()
        self._behind.append(ended)
        self._behind_bytes += ended.size
        self._arrived.set()
        if self._behind_bytes * 4 > self._bounds.ended_bytes or len(self._behind) * 4 > self._bounds.group_items:
            self._enough.set()

    async def flush(self, writing: WriteStream) -> None:
        """Returns when nothing of the execution is in line any more."""
        while writing.queued > 0 and writing.end is None:
            await self._committed.wait()

    async def flush_ended(self) -> None:
        """Returns when everything that was kept so far is written, or given up."""
        while self._behind or self._committing:
            self._enough.set()
            await self._committed.wait()

    async def run(self) -> None:
        """Writes until it is closed and both lines are empty."""
        while not self._closing or self._line or self._behind:
            if not self._line:
                await self._gather()
            if self._line or self._behind:
                await self._commit_next()
        self._finished.set()

    async def close(self) -> None:
        """Nothing more will be put; returns when all is written, or given up."""
        self._closing = True
        self._arrived.set()
        self._enough.set()
        await self._finished.wait()

    def _append(self, item: _InLine) -> None:
        self._line.append(item)
        self._line_bytes += item.size
        self._arrived.set()
        self._enough.set()

    async def _gather(self) -> None:
        """Waits for anything, and if that is only records of ended executions, a little for more."""
        if not self._behind and not self._closing:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        if not self._line and not self._closing:
            self._enough = anyio.Event()
            with anyio.move_on_after(self._bounds.gather_seconds):
                await self._enough.wait()

    async def _commit_next(self) -> None:
        group, kept = self._take(), self._take_behind()
        batch = CommitBatch()
        for item in group:
            _add(batch, item)
        batch.ended = [ended.opening for ended in kept]
        self._committing = True
        try:
            verdict = await self._database.append(lambda: apply_batch(batch))
        except StorageFailure as failure:
            self._give_up(group, kept, failure)
        except Exception as bug:  # noqa: BLE001 - what breaks one group must not end the commits of everybody else
            self._on_bug(bug)
            self._give_up(group, kept, _broken())
        else:
            self._settle(group, kept, verdict)
        self._committing = False
        self._committed.set()
        self._committed = anyio.Event()

    def _take(self) -> list[_InLine]:
        group: list[_InLine] = []
        size = 0
        while self._line and len(group) < self._bounds.group_items and size < self._bounds.group_bytes:
            item = self._line.popleft()
            self._line_bytes -= item.size
            size += item.size
            if item.stream.end is None:
                group.append(item)
        return group

    def _take_behind(self) -> list[EndedExecution]:
        taken: list[EndedExecution] = []
        while self._behind and len(taken) < self._bounds.group_items:
            taken.append(self._behind.popleft())
            self._behind_bytes -= taken[-1].size
        return taken

    def _settle(self, group: Sequence[_InLine], kept: Sequence[EndedExecution], verdict: BatchResult) -> None:
        for item in group:
            writing = item.stream
            if writing.end is None and writing.execution_id in verdict.refused:
                writing.end = verdict.refused[writing.execution_id]
            elif writing.end is None and writing.execution_id in verdict.lost:
                self._lose(writing, _lost())
            if writing.end is None:
                self._publish(item)
        for ended in kept:
            if ended.opening.execution_id in verdict.refused:
                self._on_dropped()

    def _publish(self, item: _InLine) -> None:
        if isinstance(item, _Told):
            self._sink.publish(item.stream.execution_id, (item.live,))
            return
        item.stream.queued -= 1
        if item.events:
            self._sink.publish(item.stream.execution_id, item.events)

    def _give_up(self, group: Sequence[_InLine], kept: Sequence[EndedExecution], failure: StorageFailure) -> None:
        for item in group:
            if item.stream.end is None:
                self._lose(item.stream, failure)
        for _ in kept:
            self._on_dropped()

    def _lose(self, writing: WriteStream, why: Failure) -> None:
        writing.end = why
        self._on_lost(writing.execution_id, why)


def _add(batch: CommitBatch, item: _InLine) -> None:
    if isinstance(item, QueuedCommit):
        if isinstance(item.work, NewExecution):
            batch.new_executions[item.stream.execution_id] = item.work
        else:
            batch.advances.setdefault(item.stream.execution_id, []).append(item.work)


def _unavailable() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not keep up", retry_after=_RETRY_AFTER)


def _broken() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "what was to be kept could not be written")


def _lost() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "another owner goes on with this execution")
