"""Taking an execution over from whoever had it, and the end of one whose record turns out to be broken.

A record that a later version wrote is not taken at all, so that a replica that has not been replaced yet leaves it as
it is. Any other that cannot be read could never go on, and would be taken over for ever: it ends, with what its own
row tells of it, in the transaction that ends its session's turn.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from app.adapters.stores import codec
from app.adapters.stores.database import ResultRow, ResultRows, Transaction, execute, execute_each
from app.adapters.stores.executions.queries import CLAIM, END_UNREADABLE
from app.adapters.stores.history import COMMITS
from app.adapters.stores.journal.group_commit import INSERT_COMMIT, SessionTurnEnd, end_session_turn
from app.adapters.stores.journal.rows import empty_commit_row, event_columns, number_events
from app.domain.contract.response import SystemError, SystemResponse
from app.domain.failures import Code, StorageFailure
from app.domain.fingerprints import span_id
from app.domain.ids import ExecutionId, ReplicaId, RequestId, SessionId, TenantId
from app.domain.journal.events import (
    END_ANCHOR,
    CorrelationContext,
    ExecutionFailed,
    LifecycleTransition,
    StoredEvent,
)
from app.domain.lifecycle import Mode, State

_NO_TRACE = "0" * 32
"""Where nothing is left that tells the trace; no trace has this id [W3C Trace Context]."""


class ClaimedExecution(NamedTuple):
    """An execution that is ours now: what its own row says, and its commits."""

    execution_id: ExecutionId
    tenant: TenantId
    request_id: RequestId
    session_id: SessionId | None
    mode: Mode
    state: State
    attempt: int
    commits: int
    events: int
    epoch: int
    rows: ResultRows


def claim_execution(execution_id: ExecutionId, epoch: int, owner: ReplicaId) -> Transaction[ClaimedExecution | None]:
    """The execution that is ours now; None when it is not.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when a later version wrote it; nothing is changed then.
    """
    found = yield from execute(CLAIM, {"the_execution_id": execution_id, "the_epoch": epoch, "owner": owner})
    if not found:
        return None
    rows = yield from execute(COMMITS, {"the_execution_id": execution_id})
    if any(codec.is_newer_format(cell) for row in rows for cell in (row[4], row[5])):
        raise _later()
    return _claimed(execution_id, found[0], rows)


def unreadable_events(claimed: ClaimedExecution, failure: StorageFailure, at: float) -> Sequence[StoredEvent]:
    """The last events of one whose record cannot be read."""
    response = SystemResponse(
        request_id=claimed.request_id,
        session_id=claimed.session_id,
        trace_id=_trace_id(claimed.rows),
        mode=claimed.mode,
        state=State.ERROR,
        error=SystemError.of(failure),
    )
    root = span_id(claimed.execution_id, "")
    correlation = CorrelationContext(claimed.request_id, claimed.session_id, response.trace_id, root, None)
    moved = LifecycleTransition(claimed.state, State.ERROR, claimed.attempt, failure.code.lower())
    told = (END_ANCHOR, correlation, moved), (END_ANCHOR, correlation, ExecutionFailed(response))
    return number_events(told, claimed.events + 1, at)


def end_unreadable(claimed: ClaimedExecution, told: Sequence[StoredEvent]) -> Transaction[bool]:
    """Ends it with these events, which end its session's turn too; False when it is not ours any more."""
    number = max([claimed.commits, *(row[0] for row in claimed.rows)]) + 1
    if not (yield from execute(END_UNREADABLE, _after(claimed, told, number))):
        return False
    stored = empty_commit_row(claimed.execution_id, number=number, epoch=claimed.epoch)
    yield from execute_each(INSERT_COMMIT, [stored | event_columns(told)])
    if claimed.session_id is not None:
        turn = SessionTurnEnd(claimed.tenant, claimed.session_id, told[-1].at, messages=())
        yield from end_session_turn(claimed.execution_id, turn)
    return True


def _claimed(execution_id: ExecutionId, row: ResultRow, rows: ResultRows) -> ClaimedExecution:
    tenant, request_id, session_id, mode, state, attempt, commits, events, epoch = row
    try:
        runs, stands = Mode(mode), State(state)
    except ValueError:
        raise _later() from None
    return ClaimedExecution(
        execution_id, tenant, request_id, session_id, runs, stands, attempt, commits, events, epoch, rows
    )


def _after(claimed: ClaimedExecution, told: Sequence[StoredEvent], number: int) -> dict[str, object]:
    failed = told[-1].event
    assert isinstance(failed, ExecutionFailed)  # noqa: S101 - what such a record comes to
    return {
        "the_tenant": claimed.tenant,
        "the_execution_id": claimed.execution_id,
        "the_epoch": claimed.epoch,
        "state": State.ERROR,
        "entered_at": told[-1].at,
        "last_error": Code.STORAGE_SNAPSHOT_INVALID,
        "commits": number,
        "events": told[-1].sequence_number,
        "response": codec.encode_response(failed.response),
    }


def _trace_id(rows: ResultRows) -> str:
    """That of its first events that can be read."""
    for row in rows:
        if row[5] is not None:
            with suppress(StorageFailure):
                return codec.decode_events(row[5])[0].correlation.trace_id
    return _NO_TRACE


def _later() -> StorageFailure:
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored execution is of a later version")
