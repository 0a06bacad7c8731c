"""The stored journal: executions that are journaled step by step, and those held in memory until they end.

An execution that begins in memory costs no transaction while it runs. When it must survive its process, before an
unsafe call or at a suspension, all of it so far is put into the writer's line at once; its events were published
already, all but the suspension itself, which may be answered as soon as it is heard of. When it ends without that,
its whole record is written behind, if there is room.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import anyio

from app.adapters.stores.database import Database
from app.adapters.stores.history import load_history
from app.adapters.stores.journal.insert_execution import NewExecution
from app.adapters.stores.journal.request_ids import RequestIds
from app.adapters.stores.journal.rows import (
    JournalCommit,
    encoded_size,
    execution_advance,
    new_execution,
    number_events,
    whole_execution,
)
from app.adapters.stores.journal.writer import (
    EndedExecution,
    GroupWriter,
    QueuedCommit,
    WriterCallbacks,
    WriterLimits,
    WriteStream,
)
from app.domain.contract.messages import Message
from app.domain.failures import Code, Failure, StorageFailure
from app.domain.ids import ExecutionId, ReplicaId
from app.domain.journal.events import (
    TERMINAL_EVENTS,
    CorrelationContext,
    ExecutionSuspended,
    InferenceDelta,
    LiveDelta,
    UnnumberedEvent,
)
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import RecordedStep
from app.domain.journal.status import ExecutionStatus
from app.ports.events import EventSink
from app.ports.journal import ExecutionHistory, IdempotencyClaim, IdempotencyHit
from app.ports.runtime import Clock

_DELTA_BYTES = 256
"""What a delta is counted as beside its text."""


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Who keeps: `owner` names this replica. How much: of executions that ended in memory the last `keep_ended` names,
    so that a request_id is not used twice, and what `bounds` let wait.
    """

    owner: ReplicaId
    remembered_request_ids: int
    limits: WriterLimits = field(default_factory=WriterLimits)
    closing_seconds: float = 5.0


@dataclass(slots=True)
class _Open:
    """An execution that is open here. `held` is what was put while it is in memory, None once it is journaled."""

    header: ExecutionHeader
    writing: WriteStream
    standing: ExecutionStatus
    held: list[JournalCommit] | None = None
    epoch: int = 1
    commits: int = 0
    events: int = 0
    keys: set[str] = field(default_factory=set)

    def next(
        self, row: RecordedStep | None, events: Sequence[UnnumberedEvent], turn: Sequence[Message], at: float
    ) -> JournalCommit:
        """What that is when it is put now. Raises: RuntimeError when the step is recorded already."""
        if row is not None and row.key in self.keys:
            raise RuntimeError(f"step {row.key} of {self.header.execution_id} is recorded already")
        recorded = number_events(events, self.events + 1, at, self.header.fork)
        return JournalCommit(self.commits + 1, self.events + len(recorded), row, recorded, turn, at)

    def take(self, commit: JournalCommit) -> None:
        """Counts it as put."""
        self.commits, self.events = commit.number, commit.last_event
        if commit.row is not None:
            self.keys.add(commit.row.key)

    def encoded(self, commit: JournalCommit, owner: ReplicaId) -> QueuedCommit:
        """The commit for the writer; the execution stands after it."""
        standing = self.standing.apply([commit.row] if commit.row else (), commit.events)
        work = execution_advance(self.header, commit, standing, epoch=self.epoch, owner=owner)
        self.standing = standing
        return QueuedCommit(self.writing, work, encoded_size(work), commit.events)

    def begun(self, rows: Sequence[RecordedStep], owner: ReplicaId | None) -> NewExecution:
        """The opening with steps that were recorded elsewhere."""
        self.standing = self.standing.apply(rows, ())
        self.keys.update(row.key for row in rows)
        return whole_execution(self.header, rows, (), self.standing, owner=owner)

    def whole(self, owner: ReplicaId) -> NewExecution:
        """The opening and all that is held, as one commit; its events are published already."""
        held = self.held or ()
        rows = [each.row for each in held if each.row]
        events = [event for each in held for event in each.events]
        self.standing, self.commits = self.standing.apply(rows, events), 0
        return whole_execution(self.header, rows, events, self.standing, owner=owner)


@asynccontextmanager
async def open_journal(
    database: Database, sink: EventSink, clock: Clock, keeping: JournalConfig, loss: WriterCallbacks
) -> AsyncIterator["StoredJournal"]:
    """The journal with its writer, which has written what it can when the context ends."""
    writer = GroupWriter(database, sink, bounds=keeping.limits, loss=loss)
    async with anyio.create_task_group() as group:
        group.start_soon(writer.run)
        try:
            yield StoredJournal(database, writer, sink, clock, keeping)
        finally:
            with anyio.move_on_after(keeping.closing_seconds, shield=True):
                await writer.close()
            group.cancel_scope.cancel()


class StoredJournal:
    """Implements `ports.Journal` on a database. Misuse, which is a bug, raises RuntimeError and changes nothing."""

    def __init__(
        self, database: Database, writer: GroupWriter, sink: EventSink, clock: Clock, keeping: JournalConfig
    ) -> None:
        self._database = database
        self._writer = writer
        self._sink = sink
        self._clock = clock
        self.owner = keeping.owner
        self._opened: dict[str, _Open] = {}
        self._names = RequestIds(keeping.remembered_request_ids)

    async def open(
        self,
        header: ExecutionHeader,
        claim: IdempotencyClaim | None = None,
        *,
        steps: Sequence[RecordedStep] = (),
        queued: bool = False,
    ) -> IdempotencyHit | None:
        if header.durability == "memory":
            if steps:
                raise RuntimeError("what begins with steps is journaled")
            self._begin(header, self._names.reserve).held = []
            return None
        opened = self._begin(header, self._names.share)
        try:
            owner = None if queued else self.owner
            work = opened.begun(steps, owner) if steps else new_execution(header, owner, claim)
            self._writer.put(QueuedCommit(opened.writing, work, encoded_size(work)))
            await self._writer.flush(opened.writing)
        except BaseException:
            opened.writing.end = _given_up()
            self.close(header.execution_id)
            raise
        refusal = opened.writing.end
        if refusal is None and not queued:
            return None
        self.close(header.execution_id)
        if isinstance(refusal, Failure):
            raise refusal
        return refusal

    def attach(self, record: ExecutionHistory) -> None:
        """Its epoch and its number of commits are those that `Store.claim` gave."""
        opened = self._begin(record.header, self._names.share)
        opened.standing = opened.standing.apply(list(record.steps.values()), record.events)
        opened.epoch, opened.commits, opened.events = record.epoch, record.commit_count, len(record.events)
        opened.keys.update(record.steps)

    def put(
        self,
        execution_id: ExecutionId,
        row: RecordedStep | None,
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        opened = self._of(execution_id)
        if opened.held is not None and events and isinstance(events[-1][2], ExecutionSuspended):
            self._promote(opened)
        commit = opened.next(row, events, new_messages, self._clock.now())
        if opened.held is None:
            self._writer.put(opened.encoded(commit, self.owner))
            opened.take(commit)
            return
        opened.take(commit)
        opened.held.append(commit)
        if commit.events:
            self._sink.publish(execution_id, commit.events)

    def publish_delta(self, execution_id: ExecutionId, correlation: CorrelationContext, delta: InferenceDelta) -> None:
        opened = self._of(execution_id)
        live = LiveDelta(self._clock.now(), correlation, delta)
        self._writer.publish_delta(opened.writing, live, _DELTA_BYTES + len(delta.text or delta.reasoning or ""))

    async def durable(self, execution_id: ExecutionId) -> None:
        opened = self._of(execution_id)
        if opened.held is not None:
            if _has_ended(opened.held):
                return
            self._promote(opened)
        await self._writer.flush(opened.writing)
        if isinstance(opened.writing.end, Failure):
            raise opened.writing.end

    async def load(self, execution_id: ExecutionId) -> ExecutionHistory | None:
        opened = self._opened.get(execution_id)
        if opened is None:
            return None
        if opened.held is None:
            return await load_history(self._database, opened.header.tenant, execution_id)
        rows = {each.row.key: each.row for each in opened.held if each.row}
        events = tuple(event for each in opened.held for event in each.events)
        return ExecutionHistory(opened.header, MappingProxyType(rows), events, opened.commits)

    async def flushed(self) -> None:
        await self._writer.flush_ended()

    def close(self, execution_id: ExecutionId) -> None:
        """Writes the record of one that ended in memory behind; nothing happens when it is closed already."""
        opened = self._opened.pop(execution_id, None)
        if opened is None:
            return
        self._names.release(opened.header)
        if opened.held is not None and _has_ended(opened.held):
            self._writer.write_ended(partial(self._ended, opened))

    def _begin(self, header: ExecutionHeader, take: Callable[[ExecutionHeader], None]) -> _Open:
        if header.execution_id in self._opened:
            raise RuntimeError(f"execution {header.execution_id} is open already")
        take(header)
        opened = _Open(header, WriteStream(header.execution_id), ExecutionStatus(header.created_at))
        self._opened[header.execution_id] = opened
        return opened

    def _of(self, execution_id: ExecutionId) -> _Open:
        opened = self._opened.get(execution_id)
        if opened is None:
            raise RuntimeError(f"execution {execution_id} is not open")
        return opened

    def _promote(self, opened: _Open) -> None:
        work = opened.whole(self.owner)
        opened.held = None
        self._names.promote(opened.header)
        self._writer.put(QueuedCommit(opened.writing, work, encoded_size(work)))

    def _ended(self, opened: _Open) -> EndedExecution:
        record = opened.whole(self.owner)
        return EndedExecution(record, encoded_size(record))


def _has_ended(held: Sequence[JournalCommit]) -> bool:
    last = held[-1].events[-1].event if held and held[-1].events else None
    return type(last) in TERMINAL_EVENTS


def _given_up() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "nobody waits for this execution any more")
