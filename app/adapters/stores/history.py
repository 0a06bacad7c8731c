"""Whole records out of their stored commits. Much is decoded in a thread, little where it is asked for."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeVar

from anyio import to_thread
from sqlalchemy import (
    Select,
    bindparam,
    select,
)

from app.adapters.stores import codec
from app.adapters.stores.database import Database, ResultRow, ResultRows, Statement, Transaction, execute
from app.adapters.stores.schema import commits, executions
from app.domain.failures import Code, StorageFailure
from app.domain.ids import ExecutionId, TenantId
from app.domain.journal.events import StoredEvent
from app.domain.journal.outcomes import RecordedStep
from app.ports.journal import ExecutionHistory

T = TypeVar("T")
_MUCH = 64 * 2**10


async def load_history(database: Database, tenant: TenantId, execution_id: ExecutionId) -> ExecutionHistory | None:
    """All that is committed of it; None where the tenant has no such execution.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when it cannot be read.
    """
    rows = await database.read(lambda: _select(tenant, execution_id))
    return await decode_sized(lambda: history_of_rows(rows), encoded_size(rows)) if rows else None


async def decode_sized(work: Callable[[], T], size: int) -> T:
    """What the work comes to, which decodes that many bytes."""
    return work() if size < _MUCH else await to_thread.run_sync(work)


def encoded_size(rows: ResultRows) -> int:
    """How many bytes there are to decode."""
    return sum(len(cell) for row in rows for cell in (row[4], row[5]) if isinstance(cell, bytes))


def history_of_rows(rows: ResultRows) -> ExecutionHistory:
    """The record of these commits in order; the first holds the header, and what had been held in memory.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when it cannot be read.
    """
    if not rows:
        raise _not_whole()
    header, held = codec.decode_header(rows[0][4])
    steps = {step.key: step for step in held}
    events: list[StoredEvent] = []
    for number, row in enumerate(rows):
        _continues(number, row, len(events))
        if row[1] is not None:
            steps[row[1]] = RecordedStep(row[1], row[2], codec.decode_outcome(row[4]), row[3])
        if row[5] is not None:
            events += codec.decode_events(row[5])
    if (len(rows) - 1, len(events)) != (rows[0][8], rows[0][9]):
        raise _not_whole()
    return ExecutionHistory(header, MappingProxyType(steps), tuple(events), len(rows) - 1, rows[0][7])


def _continues(number: int, row: ResultRow, events: int) -> None:
    """Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when something before it is missing."""
    if row[0] != number or (row[6] is not None and row[6] != events + 1):
        raise _not_whole()


def _not_whole() -> StorageFailure:
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored record is not whole")


def _select(tenant: TenantId, execution_id: ExecutionId) -> Transaction[ResultRows]:
    return (yield from execute(COMMITS_OF_TENANT, {"the_tenant": tenant, "the_execution_id": execution_id}))


_OF_TENANT = executions.c.tenant == bindparam("the_tenant")


_THIS = executions.c.execution_id == bindparam("the_execution_id")


def _commits() -> Select[Any]:
    """The columns of a commit, in the order in which `records.record` reads them."""
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


COMMITS_OF_TENANT = Statement(lambda _: _commits().where(_OF_TENANT, _THIS))


COMMITS = Statement(lambda _: _commits().where(_THIS))
"""The record of an execution that was just claimed; whoever claims has found it by its tenant."""
