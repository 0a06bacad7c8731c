"""Number of queued executions, and deletion of what is older than its retention."""

from portico.adapters.stores.database import Database, Transaction, execute
from portico.adapters.stores.erasure import delete_histories, erase_rows, erase_session_rows
from portico.adapters.stores.executions import queries
from portico.adapters.stores.journal.insert_execution import BY_REQUEST_ID, IDEMPOTENCY_KEY_TTL_S
from portico.adapters.stores.schedules import DELETE_OLD_RUNS
from portico.domain.ids import RequestId, TenantId
from portico.domain.value import value


@value
class RetentionLimits:
    """Times in Unix seconds before which data is deleted: steps and events, and everything else."""

    events_before: float
    answers_before: float


async def count_waiting(database: Database) -> int:
    """Return the number of queued executions."""
    rows = await database.read(lambda: execute(queries.COUNT_WAITING, {}))
    count: int = rows[0][0]
    return count


async def is_stored(database: Database, tenant: TenantId, request_id: RequestId) -> bool:
    """Return True if there is an execution of that id. Raises: StorageFailure."""
    key = {"the_tenant": tenant, "the_request_id": request_id}
    return bool(await database.read(lambda: execute(BY_REQUEST_ID, key)))


async def purge(database: Database, limits: RetentionLimits, *, limit: int, now: float) -> int:
    """Delete at most `limit` histories, executions and sessions each; return the largest of the three numbers.

    A session is deleted some time after its last turn, as a whole; until then it keeps the messages of executions that
    were deleted. Expired idempotency keys are deleted, too. Raises: StorageFailure.
    """
    return await database.maintain(lambda: _purge(limits, limit, now - IDEMPOTENCY_KEY_TTL_S))


def _purge(limits: RetentionLimits, limit: int, keys_before: float) -> Transaction[int]:
    ended_before = max(limits.events_before, limits.answers_before)
    ended = yield from execute(queries.WITH_HISTORY, {"before": ended_before, "at_most": limit})
    yield from delete_histories([execution_id for (execution_id,) in ended])
    before = {"before": limits.answers_before, "at_most": limit}
    expired = yield from execute(queries.WITHOUT_HISTORY, before)
    yield from erase_rows([execution_id for (execution_id,) in expired])
    idle = yield from execute(queries.IDLE_SESSIONS, before)
    for tenant, session_id in idle:
        yield from erase_session_rows(tenant, session_id)
    yield from execute(queries.DELETE_OLD_IDEMPOTENCY_KEYS, {"before": keys_before})
    yield from execute(DELETE_OLD_RUNS, {"before": limits.answers_before})
    return max(len(ended), len(expired), len(idle))
