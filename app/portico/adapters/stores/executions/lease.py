"""Leases: an execution is claimed from its previous owner, or ended if its history is damaged.

A history that a later version wrote is not claimed, so that an old replica leaves it to the new ones. Any other
history that cannot be read could never continue and would be claimed again and again. So the execution ends, with the
facts of its own row, in the transaction that ends its session's turn.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from portico.adapters.stores import codec
from portico.adapters.stores.database import ResultRows, Transaction, execute, execute_each
from portico.adapters.stores.erasure import erase_rows
from portico.adapters.stores.executions.queries import (
    CLAIM,
    END_UNREADABLE,
    FORGET_START,
    IS_CANCEL_REQUESTED,
    REQUEST_CANCEL,
)
from portico.adapters.stores.history import COMMITS
from portico.adapters.stores.journal.group_commit import INSERT_COMMIT, SessionTurnEnd, end_session_turn
from portico.adapters.stores.journal.rows import empty_commit_row, event_columns, number_events
from portico.domain.contract.response import SystemError, SystemResponse
from portico.domain.failures import Code, StorageFailure
from portico.domain.fingerprints import span_id
from portico.domain.ids import ExecutionId, ReplicaId, RequestId, SessionId, TenantId
from portico.domain.journal.events import (
    END_ANCHOR,
    CorrelationContext,
    ExecutionFailed,
    LifecycleTransition,
    StoredEvent,
)
from portico.domain.lifecycle import Mode, State

_NO_TRACE = "0" * 32
"""Trace id of a history without readable events; it is invalid as a real one [W3C Trace Context]."""


class ClaimedExecution(NamedTuple):
    """A claimed execution: the columns of its own row, and its commits."""

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
    cancel_requested: bool
    rows: ResultRows


def claim_execution(
    execution_id: ExecutionId, epoch: int, owner: ReplicaId, cancelled_at: float | None
) -> Transaction[ClaimedExecution | None]:
    """Claim the execution from that epoch; return None if it is in another epoch or has ended.

    With the time at which it was cancelled, the request to cancel it is recorded too. Raises: StorageFailure
    (STORAGE_SNAPSHOT_INVALID) if a later version wrote it; then nothing is changed.
    """
    found = yield from execute(CLAIM, {"the_execution_id": execution_id, "the_epoch": epoch, "owner": owner})
    if not found:
        return None
    *columns, run_at = found[0]
    if run_at is not None:
        yield from execute(FORGET_START, {"the_tenant": columns[0], "the_execution_id": execution_id})
    rows = yield from execute(COMMITS, {"the_execution_id": execution_id})
    if any(codec.is_newer_format(cell) for row in rows for cell in (row[4], row[5])):
        raise _newer_version()
    which = {"the_tenant": columns[0], "the_execution_id": execution_id}
    if cancelled_at is not None:
        yield from execute(REQUEST_CANCEL, {**which, "asked_at": cancelled_at})
    cancelled = yield from execute(IS_CANCEL_REQUESTED, which)
    return _claimed(execution_id, columns, rows, cancel_requested=bool(cancelled))


def unreadable_events(claimed: ClaimedExecution, failure: StorageFailure, at: float) -> Sequence[StoredEvent]:
    """Return the last events of an execution whose history cannot be read."""
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
    transition = LifecycleTransition(claimed.state, State.ERROR, claimed.attempt, failure.code.lower())
    events = (END_ANCHOR, correlation, transition), (END_ANCHOR, correlation, ExecutionFailed(response))
    return number_events(events, claimed.events + 1, at)


def end_unreadable(claimed: ClaimedExecution, events: Sequence[StoredEvent]) -> Transaction[bool]:
    """End the execution with these events, and its session's turn; return False if another owner has claimed it."""
    number = max([claimed.commits, *(row[0] for row in claimed.rows)]) + 1
    ended = yield from execute(END_UNREADABLE, _end_columns(claimed, events, number))
    if not ended:
        return False
    stored = empty_commit_row(claimed.execution_id, number=number, epoch=claimed.epoch)
    yield from execute_each(INSERT_COMMIT, [stored | event_columns(events)])
    if claimed.session_id is not None:
        turn = SessionTurnEnd(claimed.tenant, claimed.session_id, events[-1].at, messages=())
        yield from end_session_turn(claimed.execution_id, turn)
    if ended[0][0]:
        yield from erase_rows([claimed.execution_id])
    return True


def _claimed(
    execution_id: ExecutionId, row: Sequence[Any], rows: ResultRows, *, cancel_requested: bool
) -> ClaimedExecution:
    tenant, request_id, session_id, mode, state, attempt, commits, events, epoch = row
    try:
        known_mode, known_state = Mode(mode), State(state)
    except ValueError:
        raise _newer_version() from None
    return ClaimedExecution(
        execution_id,
        tenant,
        request_id,
        session_id,
        known_mode,
        known_state,
        attempt,
        commits,
        events,
        epoch,
        cancel_requested,
        rows,
    )


def _end_columns(claimed: ClaimedExecution, events: Sequence[StoredEvent], number: int) -> dict[str, object]:
    failed = events[-1].event
    assert isinstance(failed, ExecutionFailed)  # noqa: S101 - made by unreadable_events
    return {
        "the_tenant": claimed.tenant,
        "the_execution_id": claimed.execution_id,
        "the_epoch": claimed.epoch,
        "state": State.ERROR,
        "entered_at": events[-1].at,
        "last_error": Code.STORAGE_SNAPSHOT_INVALID,
        "commits": number,
        "events": events[-1].sequence_number,
        "response": codec.encode_response(failed.response),
    }


def _trace_id(rows: ResultRows) -> str:
    """Return the trace id of the first events that can be read."""
    for row in rows:
        if row[5] is not None:
            with suppress(StorageFailure):
                return codec.decode_events(row[5])[0].correlation.trace_id
    return _NO_TRACE


def _newer_version() -> StorageFailure:
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored execution was written by a later version")
