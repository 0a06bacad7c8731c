"""What is put, encoded as the rows that it becomes."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from app.adapters.stores import codec
from app.adapters.stores.batching import Advance, Turn
from app.adapters.stores.openings import Opening
from app.domain.effects import Header, Row
from app.domain.events import ExecutionSuspended, Recorded
from app.domain.messages import Message
from app.domain.standing import Standing
from app.ports import Claim

Values: TypeAlias = dict[str, Any]


class Commit(NamedTuple):
    """What was put at once, numbered. `last_event` is the number of the execution's last event so far."""

    number: int
    last_event: int
    row: Row | None
    events: Sequence[Recorded]
    turn: Sequence[Message]
    at: float


def opening(header: Header, owner: str | None, claim: Claim | None = None) -> Opening:
    """The rows of a new execution, and what it asks to be granted."""
    row = _execution(header, Standing(header.created_at), owner, events=0)
    stored = empty_commit(header.execution_id, number=0, epoch=1) | {"outcome": codec.encode_opening(header)}
    key = None if claim is None else _key(header, claim)
    return Opening(row, stored, key, _session(header), may_wait=header.request.if_session_busy == "enqueue")


def advance(header: Header, commit: Commit, standing: Standing, *, epoch: int, owner: str) -> Advance:
    """The rows of one commit; `standing` is where the execution stands after it."""
    execution_id = header.execution_id
    stored = empty_commit(execution_id, number=commit.number, epoch=epoch)
    if commit.row is not None:
        stored |= step(commit.row)
    if commit.events:
        stored |= log(commit.events)
    return Advance(
        execution_id,
        stored,
        _standing(standing, _left_to(owner, standing, commit.events), commits=commit.number, events=commit.last_event),
        _suspensions(header, commit.events),
        _turn(header, commit) if standing.ended else None,
    )


def whole(
    header: Header, rows: Sequence[Row], events: Sequence[Recorded], after: Standing, *, owner: str | None
) -> Opening:
    """An execution with all that was put so far: one that was held in memory, or begins with another one's steps."""
    stored = empty_commit(header.execution_id, number=0, epoch=1)
    stored["outcome"] = codec.encode_opening(header, rows)
    if events:
        stored |= log(events)
    row = _execution(header, after, _left_to(owner, after, events), events=len(events))
    suspensions = () if after.ended else _suspensions(header, events)
    return Opening(row, stored, session=_session(header), suspensions=suspensions)


def step(row: Row) -> Values:
    """A step's columns."""
    outcome = codec.encode_outcome(row.outcome)
    return {"key": row.key, "fingerprint": row.fingerprint, "at": row.at, "outcome": outcome}


def log(events: Sequence[Recorded]) -> Values:
    """The columns of a commit's events, at least one."""
    first, last = events[0].sequence_number, events[-1].sequence_number
    return {"first_event": first, "last_event": last, "events": codec.encode_events(events)}


def size(work: Opening | Advance) -> int:
    """About how many bytes it holds."""
    row, stored = (work.row, work.commit) if isinstance(work, Opening) else (work.after, work.commit)
    said = work.turn.messages if isinstance(work, Advance) and work.turn else ()
    return 1_024 + sum(len(each) for each in (stored["outcome"], stored["events"], row["response"], *said) if each)


def empty_commit(execution_id: str, *, number: int, epoch: int) -> Values:
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


def _execution(header: Header, standing: Standing, owner: str | None, *, events: int) -> Values:
    row = _standing(standing, owner, commits=0, events=events)
    row["execution_id"] = header.execution_id
    row["tenant"] = header.tenant
    row["request_id"] = header.request_id
    row["session_id"] = header.request.session_id
    row["mode"] = header.mode
    row["created_at"] = header.created_at
    row["epoch"] = 1
    return row


def _left_to(owner: str | None, standing: Standing, told: Sequence[Recorded]) -> str | None:
    """Who owns it after these events: nobody once it ended, or was suspended by them.

    One that was suspended before is being taken over, and takes no answer any more.
    """
    at_rest = standing.ended or (bool(told) and isinstance(told[-1].event, ExecutionSuspended))
    return None if at_rest else owner


def _standing(standing: Standing, owner: str | None, *, commits: int, events: int) -> Values:
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


def _suspensions(header: Header, events: Sequence[Recorded]) -> list[Values]:
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


def _turn(header: Header, commit: Commit) -> Turn | None:
    session_id = header.request.session_id
    if session_id is None:
        return None
    return Turn(header.tenant, session_id, commit.at, [codec.encode_message(each) for each in commit.turn])


def _session(header: Header) -> Values | None:
    session_id, at = header.request.session_id, header.created_at
    if session_id is None:
        return None
    names = {"tenant": header.tenant, "session_id": session_id, "holder": header.execution_id}
    return names | {"created_at": at, "updated_at": at}


def _key(header: Header, claim: Claim) -> Values:
    names = {"tenant": header.tenant, "execution_id": header.execution_id, "created_at": header.created_at}
    return names | {"key": claim.key, "body_digest": claim.body_digest}
