"""Execution histories, decoded from their stored commits; large ones in a worker thread."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeVar

from anyio import to_thread
from sqlalchemy import Select, bindparam, select

from portico.adapters.stores import codec
from portico.adapters.stores.database import Database, ResultRow, ResultRows, Statement, Transaction, execute
from portico.adapters.stores.schema import commits, executions
from portico.domain.failures import Code, StorageFailure
from portico.domain.ids import ExecutionId, TenantId
from portico.domain.journal.events import StoredEvent
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.step_key import StepKey
from portico.ports.journal import ExecutionHistory

T = TypeVar("T")
THREAD_BYTES = 64 * 2**10
"""Encoded size from which on decoding runs in a thread."""


async def load_history(database: Database, tenant: TenantId, execution_id: ExecutionId) -> ExecutionHistory | None:
    """Load the committed history; return None if the tenant has no such execution.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) if it cannot be read.
    """
    rows = await database.read(lambda: _select(tenant, execution_id))
    return await decode_sized(lambda: history_of_rows(rows), encoded_size(rows)) if rows else None


async def decode_sized(work: Callable[[], T], size: int) -> T:
    """Run the work, which decodes that many bytes, in a thread if they are many."""
    return work() if size < THREAD_BYTES else await to_thread.run_sync(work)


def encoded_size(rows: ResultRows) -> int:
    """Return the number of bytes to decode."""
    return sum(len(cell) for row in rows for cell in (row[4], row[5]) if isinstance(cell, bytes))


def history_of_rows(rows: ResultRows) -> ExecutionHistory:
    """Decode all commits of an execution, in order; the first has the header and the steps recorded before it.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) if a commit is missing or cannot be read.
    """
    if not rows:
        raise _incomplete()
    header, first_steps = codec.decode_header(rows[0][4])
    steps = {step.key: step for step in first_steps}
    events: list[StoredEvent] = []
    for number, row in enumerate(rows):
        _check_continuity(number, row, len(events))
        if row[1] is not None:
            key = StepKey(row[1])
            steps[key] = RecordedStep(key, row[2], codec.decode_outcome(row[4]), row[3])
        if row[5] is not None:
            events += codec.decode_events(row[5])
    if (len(rows) - 1, len(events)) != (rows[0][8], rows[0][9]):
        raise _incomplete()
    return ExecutionHistory(header, MappingProxyType(steps), tuple(events), len(rows) - 1, rows[0][7])


def _check_continuity(number: int, row: ResultRow, events: int) -> None:
    """Raise StorageFailure (STORAGE_SNAPSHOT_INVALID) if a commit or an event before this one is missing."""
    if row[0] != number or (row[6] is not None and row[6] != events + 1):
        raise _incomplete()


def _incomplete() -> StorageFailure:
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored history is incomplete")


def _select(tenant: TenantId, execution_id: ExecutionId) -> Transaction[ResultRows]:
    return (yield from execute(COMMITS_OF_TENANT, {"the_tenant": tenant, "the_execution_id": execution_id}))


def _commits() -> Select[Any]:
    """Select commits with the columns that `history_of_rows` reads, in its order."""
    return (
        select(
            commits.c.number,
            commits.c.key,
            commits.c.fingerprint,
            commits.c.at,
            commits.c.outcome,
            commits.c.events,
            commits.c.first_event,
            executions.c.epoch,
            executions.c.commits,
            executions.c.events,
        )
        .join(executions, executions.c.execution_id == commits.c.execution_id)
        .order_by(commits.c.number)
    )


_IS_EXECUTION = executions.c.execution_id == bindparam("the_execution_id")
COMMITS = Statement(lambda _: _commits().where(_IS_EXECUTION))
"""Commits of an execution that was just claimed, and found by its tenant before."""
COMMITS_OF_TENANT = Statement(lambda _: _commits().where(executions.c.tenant == bindparam("the_tenant"), _IS_EXECUTION))
