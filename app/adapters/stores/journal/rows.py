"""What is put, encoded as the rows that it becomes."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from app.adapters.stores import codec
from app.adapters.stores.journal.group_commit import ExecutionAdvance, SessionTurnEnd
from app.adapters.stores.journal.insert_execution import NewExecution
from app.domain.contract.messages import Message
from app.domain.ids import ExecutionId, ReplicaId
from app.domain.journal.events import ExecutionSuspended, InheritedEvent, StoredEvent, UnnumberedEvent
from app.domain.journal.fork import Fork
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import RecordedStep
from app.domain.journal.status import ExecutionStatus
from app.ports.journal import IdempotencyClaim

Values: TypeAlias = dict[str, Any]


class JournalCommit(NamedTuple):
    """What was put at once, numbered. `last_event` is the number of the execution's last event so far."""

    number: int
    last_event: int
    row: RecordedStep | None
    events: Sequence[StoredEvent]
    turn: Sequence[Message]
    at: float


def number_events(
    events: Sequence[UnnumberedEvent], first: int, at: float, fork: Fork | None = None
) -> list[StoredEvent]:
    """Return the events of one commit with consecutive numbers; those of steps that the `fork` inherits are marked."""
    return [
        (StoredEvent if fork is None or not fork.inherits(anchor) else InheritedEvent)(
            number, at, anchor, correlation, event
        )
        for number, (anchor, correlation, event) in enumerate(events, first)
    ]


def new_execution(
    header: ExecutionHeader, owner: ReplicaId | None, claim: IdempotencyClaim | None = None
) -> NewExecution:
    """The rows of a new execution, and what it asks to be granted."""
    row = _execution(header, ExecutionStatus(header.created_at), owner, events=0)
    stored = empty_commit_row(header.execution_id, number=0, epoch=1) | {"outcome": codec.encode_header(header)}
    key = None if claim is None else _key(header, claim)
    return NewExecution(row, stored, key, _session(header), may_wait=header.request.if_session_busy == "enqueue")


def execution_advance(
    header: ExecutionHeader, commit: JournalCommit, standing: ExecutionStatus, *, epoch: int, owner: ReplicaId
) -> ExecutionAdvance:
    """The rows of one commit; `standing` is where the execution stands after it."""
    execution_id = header.execution_id
    stored = empty_commit_row(execution_id, number=commit.number, epoch=epoch)
    if commit.row is not None:
        stored |= step_columns(commit.row)
    if commit.events:
        stored |= event_columns(commit.events)
    return ExecutionAdvance(
        execution_id,
        stored,
        _standing(standing, _left_to(owner, standing, commit.events), commits=commit.number, events=commit.last_event),
        _suspensions(header, commit.events),
        _turn(header, commit) if standing.ended else None,
    )


def whole_execution(
    header: ExecutionHeader,
    rows: Sequence[RecordedStep],
    events: Sequence[StoredEvent],
    after: ExecutionStatus,
    *,
    owner: ReplicaId | None,
) -> NewExecution:
    """An execution with all that was put so far: one that was held in memory, or begins with another one's steps."""
    stored = empty_commit_row(header.execution_id, number=0, epoch=1)
    stored["outcome"] = codec.encode_header(header, rows)
    if events:
        stored |= event_columns(events)
    row = _execution(header, after, _left_to(owner, after, events), events=len(events))
    suspensions = () if after.ended else _suspensions(header, events)
    return NewExecution(row, stored, session=_session(header), suspensions=suspensions)


def step_columns(row: RecordedStep) -> Values:
    """A step's columns."""
    outcome = codec.encode_outcome(row.outcome)
    return {"key": row.key, "fingerprint": row.fingerprint, "at": row.at, "outcome": outcome}


def event_columns(events: Sequence[StoredEvent]) -> Values:
    """The columns of a commit's events, at least one."""
    first, last = events[0].sequence_number, events[-1].sequence_number
    return {"first_event": first, "last_event": last, "events": codec.encode_events(events)}


def encoded_size(work: NewExecution | ExecutionAdvance) -> int:
    """About how many bytes it holds."""
    row, stored = work.row, work.commit
    said = work.turn.messages if isinstance(work, ExecutionAdvance) and work.turn else ()
    return 1_024 + sum(len(each) for each in (stored["outcome"], stored["events"], row["response"], *said) if each)


def empty_commit_row(execution_id: ExecutionId, *, number: int, epoch: int) -> Values:
    """A commit's columns, with neither step nor events."""
    return {
        "execution_id": execution_id,
        "number": number,
        "epoch": epoch,
        "first_event": None,
        "last_event": None,
        "key": None,
        "fingerprint": None,
        "at": None,
        "outcome": None,
        "events": None,
    }


def _execution(header: ExecutionHeader, standing: ExecutionStatus, owner: ReplicaId | None, *, events: int) -> Values:
    row = _standing(standing, owner, commits=0, events=events)
    row["execution_id"] = header.execution_id
    row["tenant"] = header.tenant
    row["request_id"] = header.request_id
    row["session_id"] = header.request.session_id
    row["mode"] = header.mode
    row["created_at"] = header.created_at
    row["epoch"] = 1
    return row


def _left_to(owner: ReplicaId | None, standing: ExecutionStatus, told: Sequence[StoredEvent]) -> ReplicaId | None:
    """Who owns it after these events: nobody once it ended, or was suspended by them.

    One that was suspended before is being taken over, and takes no answer any more.
    """
    at_rest = standing.ended or (bool(told) and isinstance(told[-1].event, ExecutionSuspended))
    return None if at_rest else owner


def _standing(standing: ExecutionStatus, owner: ReplicaId | None, *, commits: int, events: int) -> Values:
    return {
        "state": standing.state,
        "entered_at": standing.entered_at,
        "attempt": standing.attempt,
        "total_steps": standing.total_steps,
        "last_step": standing.last_step,
        "last_error": standing.last_error,
        "response": None if standing.response is None else codec.encode_response(standing.response),
        "commits": commits,
        "events": events,
        "owner": owner,
    }


def _suspensions(header: ExecutionHeader, events: Sequence[StoredEvent]) -> list[Values]:
    asked = [each for told in events if isinstance(told.event, ExecutionSuspended) for each in told.event.suspensions]
    return [
        {
            "tenant": header.tenant,
            "execution_id": header.execution_id,
            "suspension_id": each.suspension_id,
            "expires_at": each.expires_at.timestamp(),
            "answered_at": None,
            "suspension": codec.encode_suspension(each),
        }
        for each in asked
    ]


def _turn(header: ExecutionHeader, commit: JournalCommit) -> SessionTurnEnd | None:
    session_id = header.request.session_id
    if session_id is None:
        return None
    return SessionTurnEnd(header.tenant, session_id, commit.at, [codec.encode_message(each) for each in commit.turn])


def _session(header: ExecutionHeader) -> Values | None:
    session_id, at = header.request.session_id, header.created_at
    if session_id is None:
        return None
    names = {"tenant": header.tenant, "session_id": session_id, "holder": header.execution_id}
    return names | {"created_at": at, "updated_at": at}


def _key(header: ExecutionHeader, claim: IdempotencyClaim) -> Values:
    names = {"tenant": header.tenant, "execution_id": header.execution_id, "created_at": header.created_at}
    return names | {"key": claim.key, "body_digest": claim.body_digest}
