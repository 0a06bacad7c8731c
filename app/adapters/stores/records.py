"""Whole records out of their stored commits. Much is decoded in a thread, little where it is asked for."""

from collections.abc import Callable
from types import MappingProxyType
from typing import TypeVar

from anyio import to_thread

from app.adapters.stores import codec
from app.adapters.stores.database import Cells, Database, Rows, Transaction, ask
from app.adapters.stores.queries import RECORDED
from app.domain.effects import Row
from app.domain.events import Recorded
from app.domain.failures import Code, StorageFailure
from app.ports import Record

T = TypeVar("T")
_MUCH = 64 * 2**10


async def load(database: Database, tenant: str, execution_id: str) -> Record | None:
    """All that is committed of it; None where the tenant has no such execution.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when it cannot be read.
    """
    rows = await database.read(lambda: _select(tenant, execution_id))
    return await decoded(lambda: record(rows), weight(rows)) if rows else None


async def decoded(work: Callable[[], T], size: int) -> T:
    """What the work comes to, which decodes that many bytes."""
    return work() if size < _MUCH else await to_thread.run_sync(work)


def weight(rows: Rows) -> int:
    """How many bytes there are to decode."""
    return sum(len(cell) for row in rows for cell in (row[4], row[5]) if isinstance(cell, bytes))


def record(rows: Rows) -> Record:
    """The record of these commits in order; the first holds the header, and what had been held in memory.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when it cannot be read.
    """
    if not rows:
        raise _not_whole()
    header, held = codec.decode_opening(rows[0][4])
    steps = {step.key: step for step in held}
    events: list[Recorded] = []
    for number, row in enumerate(rows):
        _continues(number, row, len(events))
        if row[1] is not None:
            steps[row[1]] = Row(row[1], row[2], codec.decode_outcome(row[4]), row[3])
        if row[5] is not None:
            events += codec.decode_events(row[5])
    if (len(rows) - 1, len(events)) != (rows[0][8], rows[0][9]):
        raise _not_whole()
    return Record(header, MappingProxyType(steps), tuple(events), len(rows) - 1, rows[0][7])


def _continues(number: int, row: Cells, events: int) -> None:
    """Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when something before it is missing."""
    if row[0] != number or (row[6] is not None and row[6] != events + 1):
        raise _not_whole()


def _not_whole() -> StorageFailure:
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored record is not whole")


def _select(tenant: str, execution_id: str) -> Transaction[Rows]:
    return (yield from ask(RECORDED, {"the_tenant": tenant, "the_execution_id": execution_id}))
