"""Stored journal: executions that are stored commit by commit, and those that stay in memory until they end.

An execution in memory costs no transaction while it runs. Before an unsafe call and at a suspension it has to survive
the process: then everything so far is queued for the writer as one commit. Its events were published before, except
the suspension itself, because it may be answered as soon as it is published. An execution that ends in memory is
written later, if there is room. One whose end is announced by webhooks is stored with its announcement instead, and
published then.

Deltas are not stored, but pass through the writer: it publishes them after the events that were put before them, so
every subscription sees deltas and stored events in one order.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final, NoReturn

import anyio

from portico.adapters.stores.database import Database
from portico.adapters.stores.history import load_history
from portico.adapters.stores.journal.insert_execution import (
    IDEMPOTENCY_KEY_TTL_S,
    NewExecution,
    has_request_id,
    holder_of_key,
)
from portico.adapters.stores.journal.request_ids import RequestIds, conflict
from portico.adapters.stores.journal.rows import (
    JournalPut,
    encoded_size,
    execution_advance,
    idempotency_key,
    new_execution,
    number_events,
    session_row,
    whole_execution,
)
from portico.adapters.stores.journal.writer import (
    EndedExecution,
    GroupWriter,
    QueuedCommit,
    WriterCallbacks,
    WriterLimits,
    WriteStream,
)
from portico.adapters.stores.outbox import delivery_row
from portico.domain.contract.messages import Message
from portico.domain.failures import Code, Failure, StorageFailure
from portico.domain.ids import ExecutionId, ReplicaId, RequestId, TenantId
from portico.domain.journal.events import (
    MAX_TOOL_CONTENT,
    RESTING_EVENTS,
    TERMINAL_EVENTS,
    CorrelationContext,
    ExecutionSuspended,
    InferenceDelta,
    LiveDelta,
    LiveEvent,
    StoredEvent,
    ToolProgress,
    UnnumberedEvent,
)
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.status import ExecutionStatus
from portico.domain.value import replace, value
from portico.ports.events import EventPublisher
from portico.ports.journal import ExecutionHistory, IdempotencyClaim, IdempotencyHit, JournalObserver
from portico.ports.limits import UsageCounts, UsageKey, UsageSource
from portico.ports.outbox import Delivery, OutboxSource
from portico.ports.runtime import Clock, Timeline

NO_DELIVERIES: Final[Sequence[Delivery]] = ()
NO_USAGE: Final[Mapping[UsageKey, UsageCounts]] = MappingProxyType({})
_DELTA_BYTES = 256
"""Size of a delta in the writer's queue, apart from its text."""


@value
class JournalConfig:
    """Configuration of a journal.

    `owner` is the name of this replica. The request ids of the last `remembered_request_ids` executions that ended in
    memory are refused. The `observer`, if there is one, sees what is recorded. `usage` has what an
    execution has taken so far, which is stored with the commit of its end or suspension, as is what the `outbox`
    announces of it.
    """

    owner: ReplicaId
    remembered_request_ids: int
    limits: WriterLimits = field(default_factory=WriterLimits)
    closing_seconds: float = 5.0
    observer: JournalObserver | None = None
    usage: UsageSource | None = None
    outbox: OutboxSource | None = None


@dataclass(slots=True)
class _OpenExecution:
    """An open execution. `in_memory` is what was put of it while it is in memory, and None once it is stored.

    Nothing of it stays stored beyond its end unless it `stays`.
    """

    header: ExecutionHeader
    stream: WriteStream
    status: ExecutionStatus
    timeline: Timeline
    in_memory: list[JournalPut] | None = None
    stays: bool = True
    has_ended: bool = False
    """True once its terminal event was put."""
    epoch: int = 1
    commits: int = 0
    events: int = 0
    keys: set[str] = field(default_factory=set)

    def number(
        self, steps: Sequence[RecordedStep], events: Sequence[UnnumberedEvent], messages: Sequence[Message], at: float
    ) -> JournalPut:
        """Return the steps and the events with their numbers. Raises: RuntimeError if a step is recorded already."""
        keys = [step.key for step in steps]
        if not self.keys.isdisjoint(keys) or len(set(keys)) < len(keys):
            again = next(key for index, key in enumerate(keys) if key in self.keys or key in keys[:index])
            raise RuntimeError(f"step {again} of {self.header.execution_id} is recorded already")
        first, fork = self.events + 1, self.header.fork
        if fork is None:
            # Made as `_make` makes them, without a Python call for each: most of what a chat puts here are events.
            make = tuple.__new__
            numbered = [
                make(StoredEvent, (number, at, anchor, correlation, event))
                for number, (anchor, correlation, event) in enumerate(events, first)
            ]
        else:
            numbered = number_events(events, first, at, fork)
        last_commit = self.commits + max(1, len(steps))
        return JournalPut(last_commit, self.events + len(numbered), steps, numbered, messages, at)

    def encode(
        self,
        put: JournalPut,
        owner: ReplicaId,
        usage: Mapping[UsageKey, UsageCounts],
        deliveries: Sequence[Delivery],
    ) -> QueuedCommit:
        """Encode the commits for the writer, with what it has taken so far, and update the status."""
        status = self.status.apply(put.steps, put.events)
        work = execution_advance(self.header, put, status, epoch=self.epoch, owner=owner, usage=usage)
        if deliveries:
            work = replace(work, deliveries=[delivery_row(each, due_at=each.created_at) for each in deliveries])
        if not self.stays:
            work = replace(work, unused_session=session_row(self.header), erases=True)
        self.status = status
        return QueuedCommit(self.stream, work, encoded_size(work), put.events, announces=bool(deliveries))

    def encode_inherited(self, steps: Sequence[RecordedStep], owner: ReplicaId | None) -> NewExecution:
        """Encode an execution that begins with the steps of another one."""
        self.status = self.status.apply(steps, ())
        self.keys.update(step.key for step in steps)
        return whole_execution(self.header, steps, (), self.status, owner=owner)

    def encode_whole(self, owner: ReplicaId) -> NewExecution:
        """Encode everything in memory as one commit; its events are published already."""
        puts = self.in_memory or ()
        steps = [step for each in puts for step in each.steps]
        events = [event for each in puts for event in each.events]
        self.status, self.commits = self.status.apply(steps, events), 0
        whole = whole_execution(self.header, steps, events, self.status, owner=owner)
        return whole if self.stays else whole.with_row({"erase_at_end": 1})


@asynccontextmanager
async def open_journal(
    database: Database, sink: EventPublisher, clock: Clock, config: JournalConfig, callbacks: WriterCallbacks
) -> AsyncIterator["StoredJournal"]:
    """Open a journal with its writer; at the end of the context, the writer gets `closing_seconds` to finish."""
    writer = GroupWriter(database, sink, limits=config.limits, callbacks=callbacks)
    async with anyio.create_task_group() as group:
        group.start_soon(writer.run)
        try:
            yield StoredJournal(database, writer, sink, clock, config)
        finally:
            with anyio.move_on_after(config.closing_seconds, shield=True):
                await writer.close()
            group.cancel_scope.cancel()


class StoredJournal:
    """Implementation of the `Journal` port on a database.

    Misuse is a bug: it raises RuntimeError and changes nothing.
    """

    def __init__(
        self, database: Database, writer: GroupWriter, sink: EventPublisher, clock: Clock, config: JournalConfig
    ) -> None:
        self._database = database
        self._writer = writer
        self._sink = sink
        self._clock = clock
        self.owner = config.owner
        self._observer = config.observer
        self._usage = config.usage
        self._outbox = config.outbox
        self._open: dict[ExecutionId, _OpenExecution] = {}
        self._request_ids = RequestIds(config.remembered_request_ids)

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
                raise RuntimeError("an execution that begins with steps must be journaled")
            execution = self._register(header, self._request_ids.reserve)
            execution.in_memory = []
            if header.request.request_id is not None:
                await self._require_unused(execution)
            if self._observer is not None:
                self._observer.opened(ExecutionHistory(header, {}, ()))
            return None
        execution = self._register(header, self._request_ids.share)
        try:
            owner = None if queued else self.owner
            work = execution.encode_inherited(steps, owner) if steps else new_execution(header, owner, claim)
            self._writer.put(QueuedCommit(execution.stream, work, encoded_size(work)))
            await self._writer.flush(execution.stream)
        except BaseException:
            execution.stream.end = _abandoned()
            self.close(header.execution_id)
            raise
        refusal = execution.stream.end
        if refusal is None and not queued:
            if self._observer is not None:
                self._observer.opened(ExecutionHistory(header, {step.key: step for step in steps}, ()))
            return None
        self.close(header.execution_id)
        if isinstance(refusal, Failure):
            raise refusal
        return refusal

    async def holder_of_key(self, header: ExecutionHeader, claim: IdempotencyClaim) -> IdempotencyHit | None:
        key = idempotency_key(header, claim)
        expired_before = self._clock.now() - IDEMPOTENCY_KEY_TTL_S
        return await self._database.read(lambda: holder_of_key(key, expired_before))

    def attach(self, record: ExecutionHistory) -> None:
        """Continue an execution that `ExecutionStore.claim` returned, with its epoch and number of commits."""
        execution = self._register(record.header, self._request_ids.share)
        execution.status = execution.status.apply(list(record.steps.values()), record.events)
        execution.epoch, execution.commits, execution.events = record.epoch, record.commit_count, len(record.events)
        execution.keys.update(record.steps)
        if self._observer is not None:
            self._observer.opened(record)

    def put(
        self,
        execution_id: ExecutionId,
        steps: Sequence[RecordedStep],
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        execution = self._open.get(execution_id) or self._not_open(execution_id)
        if execution.in_memory is not None and events and isinstance(events[-1][2], ExecutionSuspended):
            self._promote(execution)
        at, deliveries, outbox = execution.timeline.now(), NO_DELIVERIES, self._outbox
        if outbox is not None and events and type(events[-1][2]) in RESTING_EVENTS:
            header = execution.header
            names = header.request.webhooks or (header.agent is not None and header.agent.webhooks)
            if outbox.hears_all or header.tenant in outbox.tenants or names:
                deliveries = self._announce(outbox, execution, events, at)
        put = execution.number(steps, events, new_messages, at)
        if self._observer is not None:
            for step in steps:
                self._observer.recorded(execution_id, step)
        queued = None
        if execution.in_memory is None:
            is_at_rest = bool(events) and type(events[-1][2]) in RESTING_EVENTS
            usage = self._usage.counts_of(execution_id) if is_at_rest and self._usage is not None else NO_USAGE
            queued = execution.encode(put, self.owner, usage, deliveries)
        execution.commits, execution.events = put.last_commit, put.last_event
        execution.has_ended = bool(events) and type(events[-1][2]) in TERMINAL_EVENTS
        execution.keys.update([step.key for step in steps])
        if queued is not None:
            self._writer.put(queued)
        elif execution.in_memory is not None:
            execution.in_memory.append(put)
            if put.events:
                self._sink.publish(execution_id, put.events)

    def publish_delta(self, execution_id: ExecutionId, correlation: CorrelationContext, delta: LiveEvent) -> None:
        execution = self._open.get(execution_id) or self._not_open(execution_id)
        live = LiveDelta(execution.timeline.now(), correlation, delta)
        if isinstance(delta, InferenceDelta):
            size = len(delta.text or delta.reasoning or "")
        elif isinstance(delta, ToolProgress):
            size = len(delta.message)
        else:
            size = MAX_TOOL_CONTENT if delta.arguments is not None else len(delta.result or "")
        self._writer.publish_delta(execution.stream, live, _DELTA_BYTES + size)

    async def durable(self, execution_id: ExecutionId) -> None:
        execution = self._open.get(execution_id) or self._not_open(execution_id)
        if execution.in_memory is not None:
            if execution.has_ended:
                return
            self._promote(execution)
        await self._flush(execution.stream)
        if self._usage is not None:
            self._usage.confirm(execution_id)

    async def flush(self, execution_id: ExecutionId) -> None:
        execution = self._open.get(execution_id) or self._not_open(execution_id)
        if execution.in_memory is None:
            await self._flush(execution.stream)

    async def load(self, execution_id: ExecutionId) -> ExecutionHistory | None:
        execution = self._open.get(execution_id)
        if execution is None:
            return None
        if execution.in_memory is None:
            return await load_history(self._database, execution.header.tenant, execution_id)
        steps = {step.key: step for each in execution.in_memory for step in each.steps}
        events = tuple(event for each in execution.in_memory for event in each.events)
        return ExecutionHistory(execution.header, MappingProxyType(steps), events, execution.commits)

    async def flushed(self) -> None:
        await self._writer.flush_all()

    def close(self, execution_id: ExecutionId) -> None:
        """Close an execution, and queue it for writing if it ended in memory. Closing twice is allowed."""
        execution = self._open.pop(execution_id, None)
        if execution is None:
            return
        if self._observer is not None:
            self._observer.closed(execution_id)
        self._request_ids.release(execution.header)
        if not execution.stays:
            self._request_ids.forget(execution.header.tenant, execution.header.request_id)
        elif execution.in_memory is not None and execution.has_ended:
            self._writer.write_ended(partial(self._encode_ended, execution))

    def discard(self, execution_id: ExecutionId, *, if_stored: bool = False) -> bool:
        execution = self._open.get(execution_id)
        if execution is None or (execution.in_memory is None and not if_stored):
            return False
        execution.stays = False
        return execution.in_memory is not None

    def forget(self, tenant: TenantId, request_id: RequestId) -> None:
        self._request_ids.forget(tenant, request_id)

    def _announce(
        self, outbox: OutboxSource, execution: _OpenExecution, events: Sequence[UnnumberedEvent], at: float
    ) -> Sequence[Delivery]:
        """Return what announces the last of the events; an execution in memory of which there is some is stored."""
        if not (execution.stays and execution.header.request.store):
            return NO_DELIVERIES
        deliveries = outbox.deliveries_of(execution.header, execution.events + len(events), at, events[-1][2])
        if deliveries and execution.in_memory is not None:
            self._promote(execution)
        return deliveries

    async def _require_unused(self, execution: _OpenExecution) -> None:
        """Raise RequestFailure (REQUEST_ID_CONFLICT) if a stored execution has the id; nothing is open then."""
        header, is_unused = execution.header, False
        try:
            is_unused = not await self._database.read(lambda: has_request_id(header.tenant, header.request_id))
        finally:
            if not is_unused:
                execution.stays = False
                self.close(header.execution_id)
        if not is_unused:
            raise conflict()

    async def _flush(self, stream: WriteStream) -> None:
        await self._writer.flush(stream)
        if isinstance(stream.end, Failure):
            raise stream.end

    def _register(self, header: ExecutionHeader, reserve: Callable[[ExecutionHeader], None]) -> _OpenExecution:
        if header.execution_id in self._open:
            raise RuntimeError(f"execution {header.execution_id} is open already")
        reserve(header)
        status, timeline, stays = ExecutionStatus(header.created_at), Timeline(self._clock), header.request.store
        execution = _OpenExecution(header, WriteStream(header.execution_id), status, timeline, stays=stays)
        self._open[header.execution_id] = execution
        return execution

    def _not_open(self, execution_id: ExecutionId) -> NoReturn:
        raise RuntimeError(f"execution {execution_id} is not open")

    def _promote(self, execution: _OpenExecution) -> None:
        """Store an execution that was in memory."""
        work = execution.encode_whole(self.owner)
        execution.in_memory = None
        self._request_ids.promote(execution.header)
        self._writer.put(QueuedCommit(execution.stream, work, encoded_size(work)))

    def _encode_ended(self, execution: _OpenExecution) -> EndedExecution:
        whole = execution.encode_whole(self.owner)
        return EndedExecution(whole, encoded_size(whole))


def _abandoned() -> StorageFailure:
    return StorageFailure(Code.STORAGE_UNAVAILABLE, "the request was cancelled before its execution was stored")
