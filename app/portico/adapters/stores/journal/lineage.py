"""Ancestors of executions that begin with steps or messages of others, by which an erasure finds all copies."""

from collections.abc import Generator, Iterable

from sqlalchemy import bindparam, select

from portico.adapters.stores.database import ResultRows, Statement, StatementCall, execute
from portico.adapters.stores.journal.insert_execution import NewExecution
from portico.adapters.stores.schema import executions


def without_origin(descendants: Iterable[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    """Return the executions, all of which have ancestors, whose origin was erased, so that they must not be stored.

    The row of any other origin is locked, so that it cannot be erased before its descendant is stored.
    """
    orphans: set[str] = set()
    for each in descendants:
        origin = {"the_tenant": each.row["tenant"], "the_execution_id": each.ancestors[-1]["ancestor_id"]}
        if not (yield from execute(_LOCK_ORIGIN, origin)):
            orphans.add(each.header.execution_id)
    return orphans


_LOCK_ORIGIN = Statement(
    lambda _: (
        select(executions.c.execution_id)
        .where(
            executions.c.tenant == bindparam("the_tenant"), executions.c.execution_id == bindparam("the_execution_id")
        )
        .with_for_update(read=True)
    )
)
