"""Delayed starts on both databases: what an execution becomes when its time has come, in one transaction."""

from sqlalchemy import bindparam, delete, select, update

from portico.adapters.stores import codec
from portico.adapters.stores.database import Database, Statement, Transaction, execute
from portico.adapters.stores.journal.insert_execution import NewExecution, take_turn
from portico.adapters.stores.journal.rows import session_row
from portico.adapters.stores.schema import commits, delayed_starts, executions
from portico.domain.ids import ReplicaId
from portico.domain.journal.header import Delay, ExecutionHeader
from portico.domain.journal.outcomes import Refused
from portico.domain.value import replace


class DatabaseDelayedStarts:
    """Implementation of the `DelayedStartStore` port."""

    def __init__(self, database: Database, owner: ReplicaId) -> None:
        self._database = database
        self._owner = owner

    async def start(self, header: ExecutionHeader, delay: Delay) -> int | None:
        return await self._database.write(lambda: _start(header, delay, self._owner))


def _start(header: ExecutionHeader, delay: Delay, owner: ReplicaId) -> Transaction[int | None]:
    which = {"the_execution_id": header.execution_id, "the_owner": owner}
    if not (yield from execute(_TAKE, which)):
        return None
    session = session_row(header)
    if session is not None and delay.refusal is None:
        row = {"tenant": header.tenant, "session_id": session["session_id"], "user_id": header.user}
        may_wait = header.request.if_session_busy == "enqueue"
        refusal = yield from take_turn(NewExecution(header, row, (), session=session, may_wait=may_wait))
        if refusal is not None:
            delay = replace(delay, refusal=Refused.by(refusal))
    stored = codec.encode_header(replace(header, delay=delay))
    yield from execute(_SET_HEADER, {"the_execution_id": header.execution_id, "header": stored})
    epoch = yield from execute(_EPOCH, {"the_execution_id": header.execution_id})
    return int(epoch[0][0]) if epoch else None


_TAKE = Statement(
    lambda _: (
        delete(delayed_starts)
        .where(
            delayed_starts.c.timer_id == bindparam("the_execution_id"),
            delayed_starts.c.claimed_by == bindparam("the_owner"),
        )
        .returning(delayed_starts.c.timer_id)
    )
)
_SET_HEADER = Statement(
    lambda _: (
        update(commits)
        .where(commits.c.execution_id == bindparam("the_execution_id"), commits.c.number == 0)
        .values(outcome=bindparam("header"))
    )
)
_EPOCH = Statement(
    lambda _: select(executions.c.epoch).where(executions.c.execution_id == bindparam("the_execution_id"))
)
