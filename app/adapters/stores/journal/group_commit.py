"""What the ordered writer commits together, as one transaction that can tell whether it was applied before.

Theory of operation

1. A batch holds tails of executions: of each, everything that was put since its last commit. Its row is moved on
   first, by its owner's epoch and its number of commits. That takes its lock, and says whether it is still ours.
2. A row that does not match is either where this batch leads, because nobody heard the answer to COMMIT, or belongs
   to another owner: then the execution is lost to us and left out, and the others are none the worse.
3. Openings are refused one by one: by an earlier use of their Idempotency-Key, by a session that is busy, by a
   request_id in use. What one had been granted until then is given back.
4. Whole records of executions that have ended are many and nearly always new, so they are inserted together, and looked
   at one by one only when some were there already.
5. A session's turn belongs to one execution from its opening to its end, suspended or not, whoever owns it. What it
   says is appended when it is still its turn, and the turn is handed on in that same commit.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlalchemy import bindparam, select, update

from app.adapters.stores.database import (
    ResultRows,
    Statement,
    StatementCall,
    Transaction,
    count_inserted,
    execute,
    execute_each,
)
from app.adapters.stores.journal import insert_execution as opening
from app.adapters.stores.journal.insert_execution import InsertRefusal, NewExecution
from app.adapters.stores.schema import commits, executions, messages, sessions, suspensions
from app.domain.ids import ExecutionId, SessionId, TenantId

Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SessionTurnEnd:
    """What a session's conversation grows by, encoded, and that its turn is over."""

    tenant: TenantId
    session_id: SessionId
    at: float
    messages: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ExecutionAdvance:
    """One commit of an execution: its row, what the execution's own row says after it, what comes with it."""

    execution_id: ExecutionId
    commit: Values
    row: Values
    suspensions: Sequence[Values] = ()
    turn: SessionTurnEnd | None = None


@dataclass(slots=True)
class CommitBatch:
    """What is committed together; of each execution the advances follow one another. `ended` are whole records."""

    new_executions: dict[str, NewExecution] = field(default_factory=dict)
    advances: dict[str, list[ExecutionAdvance]] = field(default_factory=dict)
    ended: list[NewExecution] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a batch: executions that another owner holds, and openings that were refused."""

    lost: frozenset[str]
    refused: Mapping[str, InsertRefusal]


def apply_batch(batch: CommitBatch) -> Transaction[BatchResult]:
    """Commits the batch; a second time it changes nothing."""
    opened, refused = yield from opening.insert_executions(_folded(batch))
    moving = {each: advances for each, advances in batch.advances.items() if each not in batch.new_executions}
    moved, lost = yield from _move_on(moving)
    fresh = [each for execution_id in (*opened, *moved) for each in batch.advances.get(execution_id, ())]
    new: list[NewExecution | ExecutionAdvance] = [*(batch.new_executions[each] for each in opened), *fresh]
    yield from execute_each(INSERT_COMMIT, [each.commit for each in new])
    yield from execute_each(_SUSPEND, [row for each in new for row in each.suspensions])
    for each in fresh:
        if each.turn is not None:
            yield from end_session_turn(each.execution_id, each.turn)
    if batch.ended:
        refused |= yield from _keep(batch.ended)
    return BatchResult(lost, refused)


def _keep(ended: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, dict[str, InsertRefusal]]:
    """Which records are refused; one that was kept before is not kept twice."""
    refused: dict[str, InsertRefusal] = {}
    if (yield from count_inserted(opening.INSERT_IF_ABSENT, [each.row for each in ended])) < len(ended):
        for each in ended:
            refusal = yield from opening.request_id_refusal(each)
            if refusal is not None:
                refused[each.execution_id] = refusal
    yield from execute_each(_COMMIT_NEW, [each.commit for each in ended if each.execution_id not in refused])
    return refused


def _folded(batch: CommitBatch) -> Iterable[NewExecution]:
    """The openings, each with its row as it stands after what else the batch holds of it."""
    for execution_id, new in batch.new_executions.items():
        advances = batch.advances.get(execution_id)
        yield new.with_row(advances[-1].row) if advances else new


def _move_on(
    moving: Mapping[str, Sequence[ExecutionAdvance]],
) -> Generator[StatementCall, ResultRows, tuple[set[str], frozenset[str]]]:
    """Which executions were moved on now, and which are lost."""
    rows = yield from execute_each(_ADVANCE, [_step(advances) for advances in moving.values()])
    moved = {execution_id for (execution_id,) in rows}
    lost = set()
    for execution_id in moving.keys() - moved:
        first = moving[execution_id][0].commit
        found = yield from execute(_COMMITTED, {"the_execution_id": execution_id, "the_number": first["number"]})
        if not found or found[0][0] != first["epoch"]:
            lost.add(execution_id)
    return moved, frozenset(lost)


def _step(advances: Sequence[ExecutionAdvance]) -> Values:
    first = advances[0].commit
    expected = {
        "the_execution_id": first["execution_id"],
        "the_epoch": first["epoch"],
        "the_commits": first["number"] - 1,
    }
    return advances[-1].row | expected


def end_session_turn(execution_id: ExecutionId, turn: SessionTurnEnd) -> Generator[StatementCall, ResultRows, None]:
    """Appends what was said where it was still its turn, and hands the turn on."""
    session = {"the_tenant": turn.tenant, "the_session_id": turn.session_id, "the_holder": execution_id}
    grown = yield from execute(_END_TURN, session | {"grown_by": len(turn.messages), "updated_at": turn.at})
    if not grown:
        return
    yield from execute(opening.HAND_ON_TURN, session)
    first = grown[0][0] - len(turn.messages) + 1
    common = {"tenant": turn.tenant, "session_id": turn.session_id, "execution_id": execution_id, "at": turn.at}
    rows = [common | {"number": number, "message": said} for number, said in enumerate(turn.messages, first)]
    yield from execute_each(_SAY, rows)


ADVANCED_COLUMNS = (
    "state",
    "entered_at",
    "attempt",
    "total_steps",
    "last_step",
    "last_error",
    "commits",
    "events",
    "owner",
    "response",
)
"""What an execution's own row says anew after each of its commits."""
_ADVANCE = Statement(
    lambda _: (
        update(executions)
        .where(
            executions.c.execution_id == bindparam("the_execution_id"),
            executions.c.epoch == bindparam("the_epoch"),
            executions.c.commits == bindparam("the_commits"),
        )
        .values({name: bindparam(name) for name in ADVANCED_COLUMNS})
        .returning(executions.c.execution_id)
    )
)
_COMMITTED = Statement(
    lambda _: select(commits.c.epoch).where(
        commits.c.execution_id == bindparam("the_execution_id"), commits.c.number == bindparam("the_number")
    )
)
INSERT_COMMIT = Statement(lambda insert: insert(commits))
_COMMIT_NEW = Statement(
    lambda insert: insert(commits).on_conflict_do_nothing(index_elements=["execution_id", "number"])
)
_SUSPEND = Statement(
    lambda insert: (
        insert(suspensions)
        .values({column.name: bindparam(column.name) for column in suspensions.c})
        .on_conflict_do_update(
            index_elements=["execution_id", "suspension_id"],
            set_={"expires_at": bindparam("expires_at"), "answered_at": None, "suspension": bindparam("suspension")},
        )
    )
)
_END_TURN = Statement(
    lambda _: (
        update(sessions)
        .where(
            sessions.c.tenant == bindparam("the_tenant"),
            sessions.c.session_id == bindparam("the_session_id"),
            sessions.c.holder == bindparam("the_holder"),
        )
        .values(holder=None, messages=sessions.c.messages + bindparam("grown_by"), updated_at=bindparam("updated_at"))
        .returning(sessions.c.messages)
    )
)
_SAY = Statement(lambda insert: insert(messages))
