"""The stored journal on SQLite in memory, for executions without a service.

The database runs every transaction at once on the event loop's thread, so opening and reading need no waiting. Journal
and writer are those of the product.
"""

import asyncio
import sqlite3
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from portico.adapters.stores.database import Transaction, execute
from portico.adapters.stores.history import COMMITS_OF_TENANT, history_of_rows
from portico.adapters.stores.journal.group_commit import CommitBatch, apply_batch
from portico.adapters.stores.journal.rows import number_events, whole_execution
from portico.adapters.stores.journal.stored_journal import JournalConfig, StoredJournal
from portico.adapters.stores.journal.writer import GroupWriter, QueuedCommit, WriterCallbacks, WriterLimits
from portico.adapters.stores.schema_creation import creation_sql
from portico.adapters.stores.sqlite import run_transaction
from portico.domain.contract.messages import Message
from portico.domain.failures import Failure
from portico.domain.journal.events import UnnumberedEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.status import ExecutionStatus
from portico.ports.events import EventPublisher
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import Clock

T = TypeVar("T")
OWNER = "replica"


class InMemoryDatabase:
    """Implementation of `Database` on SQLite in memory; its tables are created with the first transaction."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None

    async def write(self, work: Callable[[], Transaction[T]], *, idempotent: bool = False) -> T:
        return self.run(work)

    async def append(self, work: Callable[[], Transaction[T]]) -> T:
        return self.run(work)

    async def maintain(self, work: Callable[[], Transaction[T]]) -> T:
        return self.run(work)

    async def read(self, work: Callable[[], Transaction[T]]) -> T:
        return self.run(work)

    def run(self, work: Callable[[], Transaction[T]]) -> T:
        """Run the transaction at once."""
        if self._connection is None:
            # Whichever thread collects the database closes the connection; no other one uses it then.
            self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._connection.close)
            self._connection.deserialize(_empty_database())
        return run_transaction(self._connection, work(), "BEGIN")


class InMemoryJournal(StoredJournal):
    """A stored journal whose executions begin, and are taken over, without waiting. Its writer starts when needed."""

    def __init__(self, clock: Clock, sink: EventPublisher) -> None:
        self.lost: list[tuple[str, Failure]] = []
        self.memory = InMemoryDatabase()
        self.clock = clock
        writer = _StartedWriter(
            self.memory,
            sink,
            limits=WriterLimits(),
            callbacks=WriterCallbacks(lambda *lost: self.lost.append(lost), _fail, _fail),
        )
        super().__init__(self.memory, writer, sink, clock, JournalConfig(OWNER, remembered_request_ids=100))

    def begin(self, header: ExecutionHeader) -> None:
        """Open a new execution, as `open` does."""
        if header.durability == "memory":
            _result(self.open(header))
        else:
            self.attach(ExecutionHistory(header, {}, ()))

    def attach(self, record: ExecutionHistory) -> None:
        """Continue an execution of another process, whose history is stored here first as a single commit."""
        steps, events = list(record.steps.values()), record.events
        status = ExecutionStatus(record.header.created_at).apply(steps, events)
        stored = whole_execution(record.header, steps, events, status, owner=OWNER)
        batch = CommitBatch(new_executions={record.header.execution_id: stored})
        result = self.memory.run(lambda: apply_batch(batch))
        assert not result.refused, result.refused
        super().attach(replace(record, commit_count=0, epoch=1))

    def record(self, execution_id: str) -> ExecutionHistory | None:
        """Return what is stored, or what is in memory of an execution that is not stored yet."""
        execution = self._open.get(execution_id)
        if execution is None:
            return None
        if execution.in_memory is not None:
            return _result(self.load(execution_id))
        which = {"the_tenant": execution.header.tenant, "the_execution_id": execution_id}
        return history_of_rows(self.memory.run(lambda: execute(COMMITS_OF_TENANT, which)))


class CommittingJournal(InMemoryJournal):
    """A journal that remembers the history after every put, and how many actions had been performed by then."""

    def __init__(self, clock: Clock, sink: EventPublisher, performed: Sequence[Any] = ()) -> None:
        super().__init__(clock, sink)
        self.commits: list[tuple[ExecutionHistory, int]] = []
        self._performed = performed
        self._histories: dict[str, ExecutionHistory] = {}

    def begin(self, header: ExecutionHeader) -> None:
        super().begin(header)
        self._histories[header.execution_id] = ExecutionHistory(header, {}, ())

    def attach(self, record: ExecutionHistory) -> None:
        super().attach(record)
        self._histories[record.header.execution_id] = record

    def put(
        self,
        execution_id: str,
        steps: Sequence[RecordedStep],
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        super().put(execution_id, steps, events, new_messages)
        history = with_commit(self._histories[execution_id], steps, events, self.clock.now())
        self._histories[execution_id] = history
        self.commits.append((history, len(self._performed)))


def with_commit(
    history: ExecutionHistory, steps: Sequence[RecordedStep], events: Sequence[UnnumberedEvent], at: float
) -> ExecutionHistory:
    """Return the history with one commit more."""
    numbered = number_events(events, len(history.events) + 1, at, history.header.fork)
    all_steps = {**history.steps, **{step.key: step for step in steps}}
    return replace(history, steps=all_steps, events=(*history.events, *numbered))


class _StartedWriter(GroupWriter):
    """A writer that runs in a task of the test's event loop from its first commit on."""

    _task: "asyncio.Task[None] | None" = None

    def put(self, item: QueuedCommit) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.run())
        super().put(item)


def _result(work: Any) -> Any:
    """Return the result of a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as finished:
        return finished.value
    raise AssertionError("it waited")


def _fail(*given: object) -> None:
    raise AssertionError(f"the writer gave up: {given}")


@cache
def _empty_database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(";\n".join(creation_sql("sqlite")))
    content = connection.serialize()
    connection.close()
    return content
