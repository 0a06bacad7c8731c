"""Number of queued executions, and deletion of old histories."""

from app.adapters.stores.database import Database, Transaction, execute, execute_each
from app.adapters.stores.executions import queries
from app.adapters.stores.journal.insert_execution import IDEMPOTENCY_KEY_TTL_S


async def count_waiting(database: Database) -> int:
    """Return the number of queued executions."""
    rows = await database.read(lambda: execute(queries.COUNT_WAITING, {}))
    count: int = rows[0][0]
    return count


async def purge_histories(database: Database, *, ended_before: float, limit: int, now: float) -> int:
    """Delete the histories of at most `limit` executions that ended before a time; return how many there were.

    Expired idempotency keys are deleted, too. Raises: StorageFailure.
    """
    keys_before = now - IDEMPOTENCY_KEY_TTL_S
    return await database.maintain(lambda: _purge(ended_before, limit, keys_before))


def _purge(ended_before: float, limit: int, keys_before: float) -> Transaction[int]:
    ended = yield from execute(queries.ENDED, {"before": ended_before, "at_most": limit})
    these = [{"the_execution_id": execution_id} for (execution_id,) in ended]
    yield from execute_each(queries.DELETE_COMMITS, these)
    yield from execute_each(queries.DELETE_SUSPENSIONS, these)
    yield from execute_each(queries.DELETE_CANCELS, these)
    yield from execute(queries.DELETE_OLD_IDEMPOTENCY_KEYS, {"before": keys_before})
    return len(these)
