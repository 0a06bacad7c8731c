"""Encoding of commits as rows of the database."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from portico.adapters.stores import codec
from portico.adapters.stores.access.usage import usage_rows
from portico.adapters.stores.journal.group_commit import ExecutionAdvance, SessionTurnEnd
from portico.adapters.stores.journal.insert_execution import NewExecution
from portico.domain.contract.messages import Message
from portico.domain.contract.response import Suspension
from portico.domain.fingerprints import digest
from portico.domain.ids import ExecutionId, ReplicaId, SessionId
from portico.domain.journal.events import ExecutionSuspended, InheritedEvent, StoredEvent, UnnumberedEvent
from portico.domain.journal.fork import Fork
from portico.domain.journal.header import Delay, ExecutionHeader
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.status import ExecutionStatus
from portico.domain.journal.suspensions import ABOUT_CALLS
from portico.ports.journal import IdempotencyClaim
from portico.ports.limits import UsageCounts, UsageKey

Values: TypeAlias = dict[str, Any]


class JournalPut(NamedTuple):
    """Steps and events that were put at once: a commit for each step, or one for events alone.

    `last_commit` is the number of the last of these commits, and `last_event` that of its last event so far.
    """

    last_commit: int
    last_event: int
    steps: Sequence[RecordedStep]
    events: Sequence[StoredEvent]
    turn: Sequence[Message]
    at: float


def number_events(
    events: Sequence[UnnumberedEvent], first: int, at: float, fork: Fork | None = None
) -> list[StoredEvent]:
    """Return the events with consecutive numbers; those of steps that the `fork` inherits are marked."""
    return [
        (InheritedEvent if fork is not None and fork.inherits(event[0]) else StoredEvent)(number, at, *event)
        for number, event in enumerate(events, first)
    ]


def new_execution(
    header: ExecutionHeader, owner: ReplicaId | None, claim: IdempotencyClaim | None = None
) -> NewExecution:
    """Return the rows of a new execution, with the key and the turn that it requests."""
    row = _execution_row(header, ExecutionStatus(header.created_at), owner, events=0)
    stored = empty_commit_row(header.execution_id, number=0, epoch=1) | {"outcome": codec.encode_header(header)}
    key = None if claim is None else idempotency_key(header, claim)
    delay = header.delay
    return NewExecution(
        header,
        row,
        [stored],
        key,
        session_row(header) if delay is None else None,
        may_wait=header.request.if_session_busy == "enqueue",
        start=None if delay is None else _start_row(header, delay),
        metadata=_metadata_rows(header) if header.request.metadata else (),
        ancestors=_ancestor_rows(header) if header.ancestors else (),
    )


def execution_advance(
    header: ExecutionHeader,
    put: JournalPut,
    status: ExecutionStatus,
    *,
    epoch: int,
    owner: ReplicaId,
    usage: Mapping[UsageKey, UsageCounts],
) -> ExecutionAdvance:
    """Return the rows of what was put; `status` is the status of the execution after it, `usage` what it has taken."""
    execution_id, steps = header.execution_id, put.steps
    first = put.last_commit - max(1, len(steps)) + 1
    commits = [
        empty_commit_row(execution_id, number=number, epoch=epoch) | step_columns(step)
        for number, step in enumerate(steps, first)
    ] or [empty_commit_row(execution_id, number=first, epoch=epoch)]
    log, response = _encoded_end(put.events, status)
    commits[-1] |= log
    owner_after = _owner_after(owner, status, put.events)
    suspends = bool(put.events) and isinstance(put.events[-1].event, ExecutionSuspended)
    session_id = header.request.session_id
    return ExecutionAdvance(
        execution_id,
        commits,
        _status_columns(status, owner_after, commits=put.last_commit, events=put.last_event, response=response),
        _suspension_rows(header, put.events) if suspends else (),
        _turn_end(header, session_id, put) if status.ended and session_id is not None else None,
        usage_rows(usage) if usage else (),
    )


def whole_execution(
    header: ExecutionHeader,
    rows: Sequence[RecordedStep],
    events: Sequence[StoredEvent],
    after: ExecutionStatus,
    *,
    owner: ReplicaId | None,
) -> NewExecution:
    """Return an execution with several commits as one: one from memory, or one that begins with inherited steps."""
    suspensions = () if after.ended else _suspension_rows(header, events)
    owner = _owner_after(owner, after, events)
    stored = empty_commit_row(header.execution_id, number=0, epoch=1)
    stored["outcome"] = codec.encode_header(header, rows)
    log, response = _encoded_end(events, after)
    stored |= log
    row = _execution_row(header, after, owner, events=len(events), response=response)
    return NewExecution(
        header,
        row,
        [stored],
        session=session_row(header),
        suspensions=suspensions,
        metadata=_metadata_rows(header) if header.request.metadata else (),
        ancestors=_ancestor_rows(header) if header.ancestors else (),
    )


def step_columns(row: RecordedStep) -> Values:
    """Return the columns of a recorded step."""
    outcome = codec.encode_outcome(row.outcome)
    return {"key": row.key, "fingerprint": row.fingerprint, "at": row.at, "outcome": outcome}


def event_columns(events: Sequence[StoredEvent]) -> Values:
    """Return the columns of a commit's events, at least one."""
    return _numbered(events, codec.encode_events(events))


def encoded_size(work: NewExecution | ExecutionAdvance) -> int:
    """Return the approximate size in bytes."""
    messages = work.turn.messages if isinstance(work, ExecutionAdvance) and work.turn else ()
    deliveries = work.deliveries if isinstance(work, ExecutionAdvance) else ()
    stored = [part for commit in work.commits for part in (commit["outcome"], commit["events"])]
    if deliveries:
        stored += [each["body"] for each in deliveries]
    return 1_024 * len(work.commits) + sum(map(len, filter(None, (*stored, work.row["response"], *messages))))


def empty_commit_row(execution_id: ExecutionId, *, number: int, epoch: int) -> Values:
    """Return the columns of a commit without step and events."""
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


def _numbered(events: Sequence[StoredEvent], encoded: bytes) -> Values:
    return {"first_event": events[0].sequence_number, "last_event": events[-1].sequence_number, "events": encoded}


def _encoded_end(events: Sequence[StoredEvent], after: ExecutionStatus) -> tuple[Values, bytes | None]:
    """Return the columns of these events and the response that the execution has after them, which is encoded once."""
    if not events:
        return {}, None if after.response is None else codec.encode_response(after.response)
    if after.response is None:
        return event_columns(events), None
    encoded, response = codec.encode_end(events, after.response)
    return _numbered(events, encoded), response


def _execution_row(
    header: ExecutionHeader,
    status: ExecutionStatus,
    owner: ReplicaId | None,
    *,
    events: int,
    response: bytes | None = None,
) -> Values:
    row = _status_columns(status, owner, commits=0, events=events, response=response)
    row["execution_id"] = header.execution_id
    row["tenant"] = header.tenant
    row["request_id"] = header.request_id
    row["session_id"] = header.request.session_id
    row["mode"] = header.mode
    row["created_at"] = header.created_at
    row["epoch"] = 1
    row["agent"] = header.request.agent
    row["erase_at_end"] = 0 if header.request.store else 1
    row["user_id"] = header.user
    row["key_id"] = header.key_id
    row["origin"] = header.request.after if header.fork is None else header.fork.origin
    row["channel"] = header.channel
    row["run_at"] = None if header.request.run_at is None else header.run_at
    row["origin_step"] = None if header.fork is None else header.fork.from_step
    return row


def _owner_after(owner: ReplicaId | None, status: ExecutionStatus, events: Sequence[StoredEvent]) -> ReplicaId | None:
    """Return the owner after these events: None if the execution has ended or they suspended it.

    An execution that was suspended before was claimed again and still has its owner.
    """
    at_rest = status.ended or (bool(events) and isinstance(events[-1].event, ExecutionSuspended))
    return None if at_rest else owner


def _status_columns(
    status: ExecutionStatus, owner: ReplicaId | None, *, commits: int, events: int, response: bytes | None
) -> Values:
    return {
        "state": status.state,
        "entered_at": status.entered_at,
        "attempt": status.attempt,
        "total_steps": status.total_steps,
        "last_step": status.last_step,
        "last_error": status.last_error,
        "response": response,
        "commits": commits,
        "events": events,
        "owner": owner,
        "started_at": status.started_at,
        "provider": status.provider,
        "model": status.model,
        "fork_points": status.fork_points,
    }


def _ancestor_rows(header: ExecutionHeader) -> Sequence[Values]:
    own = {"tenant": header.tenant, "execution_id": header.execution_id}
    return [own | {"ancestor_id": each} for each in header.ancestors]


def _start_row(header: ExecutionHeader, delay: Delay) -> Values:
    return {"timer_id": header.execution_id, "tenant": header.tenant, "due_at": delay.until, "claimed_by": None}


def _metadata_rows(header: ExecutionHeader) -> Sequence[Values]:
    execution = {"tenant": header.tenant, "execution_id": header.execution_id}
    return [execution | {"entry": metadata_entry(name, value)} for name, value in header.request.metadata.items()]


def metadata_entry(name: str, value: str) -> str:
    """Return the digest of a pair of metadata, because the pair may be long and contain any character."""
    return digest("metadata", name, value)


def _suspension_rows(header: ExecutionHeader, events: Sequence[StoredEvent]) -> list[Values]:
    suspensions: list[Suspension] = []
    for event in events:
        if isinstance(event.event, ExecutionSuspended):
            suspensions += event.event.suspensions
    if not suspensions:
        return []
    return [
        {
            "tenant": header.tenant,
            "execution_id": header.execution_id,
            "suspension_id": each.suspension_id,
            "expires_at": each.expires_at.timestamp(),
            "answered_at": None,
            "suspension": codec.encode_suspension(each),
            "kind": each.kind,
            "tool": suspended_tool(each),
            "asked_at": None if each.asked_at is None else each.asked_at.timestamp(),
        }
        for each in suspensions
    ]


def suspended_tool(suspension: Suspension) -> str:
    """Return the tool whose call is suspended, else the name that a resume uses."""
    value = suspension.value
    tool = value.get("tool") if isinstance(value, dict) and suspension.kind in ABOUT_CALLS else None
    return tool if isinstance(tool, str) else suspension.tool_id


def _turn_end(header: ExecutionHeader, session_id: SessionId, put: JournalPut) -> SessionTurnEnd:
    return SessionTurnEnd(header.tenant, session_id, put.at, [codec.encode_message(each) for each in put.turn])


def session_row(header: ExecutionHeader) -> Values | None:
    """Return the row of the session that the execution begins if there is none; None without a session."""
    session_id, at = header.request.session_id, header.created_at
    if session_id is None:
        return None
    names = {"tenant": header.tenant, "session_id": session_id, "holder": header.execution_id}
    return names | {"created_at": at, "updated_at": at, "user_id": header.user}


def idempotency_key(header: ExecutionHeader, claim: IdempotencyClaim) -> Values:
    """Return the row of the claim; its key begins with the user, whose name has no space."""
    names = {"tenant": header.tenant, "execution_id": header.execution_id, "created_at": header.created_at}
    return names | {"key": f"{header.user} {claim.key}", "body_digest": claim.body_digest}
