"""Ancestors of executions that begin with steps or messages of others, by which an erasure finds all copies."""

from collections.abc import Generator, Iterable

from sqlalchemy import bindparam, select

from portico.adapters.stores.database import ResultRows, Statement, StatementCall, execute
from portico.adapters.stores.journal.insert_execution import NewExecution
from portico.adapters.stores.schema import executions


def without_origin(new: Iterable[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    """Return the executions whose origin was erased, so that they must not be stored.

    The row of any other origin is locked, so that it cannot be erased before its descendant is stored.
    """
    orphans = set()
    for each in new:
        if each.ancestors:
            origin = {"the_tenant": each.row["tenant"], "the_execution_id": each.ancestors[-1]["ancestor_id"]}
            if not (yield from execute(_LOCK_ORIGIN, origin)):
                orphans.add(each.execution_id)
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
