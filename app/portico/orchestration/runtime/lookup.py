"""Lookup of stored executions by their request ids."""

from portico.domain.access.principal import AccessScope
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId
from portico.ports.journal import Journal
from portico.ports.storage import ExecutionStore, StoredExecution


async def stored_execution(
    store: ExecutionStore, journal: Journal, scope: AccessScope, request_id: RequestId, *, with_header: bool = False
) -> StoredExecution:
    """Return the stored execution; one in memory that has just ended is written first.

    Raises: RequestFailure (REQUEST_NOT_FOUND); StorageFailure.
    """
    found = await store.find(scope, request_id, with_header=with_header)
    if found is None:
        await journal.flushed()
        found = await store.find(scope, request_id, with_header=with_header)
    if found is None:
        raise no_such_execution()
    return found


def no_such_execution() -> RequestFailure:
    """Return the refusal of an unknown execution."""
    return RequestFailure(Code.REQUEST_NOT_FOUND, "no execution has this id", condition="path")
