"""Group commit: one transaction for everything that the ordered writer commits together.

Theory of operation

1. A batch has, for each execution, everything that was put since its last commit. Its row in `executions` is advanced
   first, if epoch and number of commits are as expected. This locks the row and shows that the execution is ours.
2. If a row does not match, either this batch was applied before and the answer to COMMIT was lost, or another owner
   has claimed the execution. Then the execution is lost and left out; all others are committed.
3. New executions are refused one by one: because of an earlier use of the Idempotency-Key, a busy session, or a
   request_id in use. Anything that was granted to a refused execution is released.
4. Executions that ended in memory are many and nearly always new, so they are inserted together, and checked one by
   one only if some exist already.
5. An execution that is erased at its end is erased by the commit that ends it, so its answer is never stored. What it
   has taken stays.
6. Deliveries of webhooks are inserted with the commit that they announce.
7. A session's turn belongs to one execution from its insertion to its end, suspended or not, whichever replica owns it.
   If it still has the turn at its end, its messages are appended and the turn is passed on in the same commit.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlalchemy import bindparam, select, update

from portico.adapters.stores.access.usage import raise_usage
from portico.adapters.stores.database import (
    ResultRows,
    Statement,
    StatementCall,
    Transaction,
    count_inserted,
    execute,
    execute_each,
)
from portico.adapters.stores.erasure import erase_rows
from portico.adapters.stores.journal.insert_execution import (
    DELETE_UNUSED_SESSION,
    INSERT_IF_ABSENT,
    PASS_ON_TURN,
    InsertRefusal,
    NewExecution,
    insert_executions,
    origin_refusal,
    request_id_refusal,
)
from portico.adapters.stores.journal.lineage import without_origin
from portico.adapters.stores.outbox import insert_deliveries
from portico.adapters.stores.schema import (
    ancestors,
    commits,
    executions,
    messages,
    metadata_entries,
    sessions,
    suspensions,
)
from portico.domain.ids import ExecutionId, SessionId, TenantId
from portico.domain.lifecycle import TERMINAL
from portico.domain.value import replace, value

Values: TypeAlias = dict[str, Any]


@value
class SessionTurnEnd:
    """End of a session's turn, with the encoded messages that it adds."""

    tenant: TenantId
    session_id: SessionId
    at: float
    messages: Sequence[bytes]


@value
class ExecutionAdvance:
    """Advance of an execution by one put: rows of `commits`, changed columns of `executions`, and related rows.

    `usage` is what it has taken so far, and `deliveries` announce it, if it ends or is suspended here. An execution
    that `erases` itself is gone with the commit of its end, and the session that it began, if an `unused_session`.
    """

    execution_id: ExecutionId
    commits: Sequence[Values]
    row: Values
    suspensions: Sequence[Values] = ()
    turn: SessionTurnEnd | None = None
    usage: Sequence[Values] = ()
    erases: bool = False
    unused_session: Values | None = None
    deliveries: Sequence[Values] = ()


@dataclass(slots=True)
class CommitBatch:
    """Commits of one transaction, by execution and in order; `ended` are executions that ended in memory.

    It `announces` if an advance has deliveries.
    """

    new_executions: dict[str, NewExecution] = field(default_factory=dict)
    advances: dict[str, list[ExecutionAdvance]] = field(default_factory=dict)
    ended: list[NewExecution] = field(default_factory=list)
    announces: bool = False


@value
class BatchResult:
    """Result of a batch: executions that another owner has claimed, and refused new executions."""

    lost: frozenset[str]
    refused: Mapping[str, InsertRefusal]


def apply_batch(batch: CommitBatch) -> Transaction[BatchResult]:
    """Commit the batch; applying it a second time changes nothing."""
    opened: dict[str, int] = {}
    refused: dict[str, InsertRefusal] = {}
    orphans: set[str] = set()
    if batch.new_executions or batch.ended:
        opened, refused, orphans = yield from _open(batch)
    advancing = {each: advances for each, advances in batch.advances.items() if each not in batch.new_executions}
    advanced: dict[str, int] = {}
    lost: frozenset[str] = frozenset()
    if advancing:
        advanced, lost = yield from _advance(advancing)
    erasing = {each for each, advances in batch.advances.items() if advances[-1].erases}
    present = opened | advanced
    erased = {each for each in present if (present[each] or each in erasing) and _ends(batch, each)}
    stored = [each for each in (*opened, *advanced) if each not in erased]
    committed = [each for execution_id in stored for each in batch.advances.get(execution_id, ())]
    new: list[NewExecution | ExecutionAdvance] = [batch.new_executions[each] for each in stored if each in opened]
    new += committed
    yield from execute_each(INSERT_COMMIT, [commit for each in new for commit in each.commits])
    suspended = [row for each in new for row in each.suspensions]
    if suspended or batch.announces:
        yield from _insert_questions(suspended, committed)
    if opened:
        yield from _insert_descriptions([batch.new_executions[each] for each in stored if each in opened])
    for each in committed:
        if each.turn is not None:
            yield from end_session_turn(each.execution_id, each.turn)
    if erased:
        yield from _erase(batch, erased)
    ending = [batch.advances[each][-1] for each in (*opened, *advanced) if each in batch.advances]
    if any(each.usage for each in ending):
        yield from raise_usage([row for each in ending for row in each.usage])
    if batch.ended:
        refused |= yield from _insert_ended([each for each in batch.ended if each.header.execution_id not in orphans])
        refused |= {
            each.header.execution_id: origin_refusal() for each in batch.ended if each.header.execution_id in orphans
        }
    return BatchResult(lost, refused)


def _open(
    batch: CommitBatch,
) -> Generator[StatementCall, ResultRows, tuple[dict[str, int], dict[str, InsertRefusal], set[str]]]:
    """Return the new executions as `insert_executions` does, and those whose origin was erased, ended ones included."""
    new_executions = list(_new_with_last_row(batch))
    descendants = [each for each in (*new_executions, *batch.ended) if each.ancestors]
    orphans = (yield from without_origin(descendants)) if descendants else set()
    if not new_executions:
        return {}, {}, orphans
    opened, refused = yield from insert_executions(new_executions, without_origin=orphans)
    return opened, refused, orphans


def _erase(batch: CommitBatch, erased: Collection[str]) -> Generator[StatementCall, ResultRows, None]:
    """Erase executions that the batch ends, and pass their turns on without what they would add."""
    for last in (batch.advances[execution_id][-1] for execution_id in erased):
        if last.turn is not None:
            yield from end_session_turn(last.execution_id, replace(last.turn, messages=()))
        if last.unused_session is not None:
            yield from execute(DELETE_UNUSED_SESSION, last.unused_session)
    yield from erase_rows(erased)


def _ends(batch: CommitBatch, execution_id: str) -> bool:
    """Return whether the batch has the last commit of the execution."""
    advances = batch.advances.get(execution_id)
    return advances is not None and advances[-1].row["state"] in TERMINAL


def _insert_ended(ended: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, dict[str, InsertRefusal]]:
    """Insert executions that ended in memory and return the refused ones; existing ones are left as they are."""
    refused: dict[str, InsertRefusal] = {}
    if (yield from count_inserted(INSERT_IF_ABSENT, [each.titled_row for each in ended])) < len(ended):
        for each in ended:
            refusal = yield from request_id_refusal(each)
            if refusal is not None:
                refused[each.header.execution_id] = refusal
    stored = [each for each in ended if each.header.execution_id not in refused]
    yield from execute_each(_INSERT_COMMIT_IF_ABSENT, [commit for each in stored for commit in each.commits])
    yield from _insert_descriptions(stored)
    return refused


def _insert_questions(
    suspended: Sequence[Values], committed: Sequence[ExecutionAdvance]
) -> Generator[StatementCall, ResultRows, None]:
    """Insert what executions ask, and what webhooks announce of them."""
    yield from execute_each(_INSERT_SUSPENSION, suspended)
    yield from insert_deliveries([row for each in committed for row in each.deliveries])


def _insert_descriptions(stored: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, None]:
    """Insert the entries and the ancestors by which the executions are found."""
    yield from execute_each(_INSERT_METADATA_ENTRY, [row for each in stored for row in each.metadata])
    yield from execute_each(_INSERT_ANCESTOR, [row for each in stored for row in each.ancestors])


def _new_with_last_row(batch: CommitBatch) -> Iterable[NewExecution]:
    """Return the new executions, each with its row as it is after the last commit of the batch."""
    for execution_id, new in batch.new_executions.items():
        advances = batch.advances.get(execution_id)
        yield new.with_row(advances[-1].row) if advances else new


def _advance(
    advancing: Mapping[str, Sequence[ExecutionAdvance]],
) -> Generator[StatementCall, ResultRows, tuple[dict[str, int], frozenset[str]]]:
    """Return the executions that were advanced now, each with its mark to be erased at its end, and the lost ones."""
    rows = yield from execute_each(_ADVANCE, [_advance_parameters(advances) for advances in advancing.values()])
    advanced: dict[str, int] = {row[0]: row[1] for row in rows}
    lost = set()
    for execution_id in advancing.keys() - advanced:
        first = advancing[execution_id][0].commits[0]
        found = yield from execute(_COMMITTED, {"the_execution_id": execution_id, "the_number": first["number"]})
        if found and found[0][0] == first["epoch"]:
            continue
        if advancing[execution_id][-1].row["state"] in TERMINAL and not (yield from _exists(execution_id)):
            continue  # This batch was applied before and erased it, or it is gone and nothing is left to do.
        lost.add(execution_id)
    return advanced, frozenset(lost)


def _exists(execution_id: str) -> Generator[StatementCall, ResultRows, bool]:
    return bool((yield from execute(_EPOCH, {"the_execution_id": execution_id})))


def _advance_parameters(advances: Sequence[ExecutionAdvance]) -> Values:
    first = advances[0].commits[0]
    expected = {
        "the_execution_id": first["execution_id"],
        "the_epoch": first["epoch"],
        "the_commits": first["number"] - 1,
    }
    return advances[-1].row | expected


def end_session_turn(execution_id: ExecutionId, turn: SessionTurnEnd) -> Generator[StatementCall, ResultRows, None]:
    """Append the messages and pass the turn on, if the execution still has the turn."""
    session = {"the_tenant": turn.tenant, "the_session_id": turn.session_id, "the_holder": execution_id}
    updated = yield from execute(_END_TURN, session | {"grown_by": len(turn.messages), "updated_at": turn.at})
    if not updated:
        return
    yield from execute(PASS_ON_TURN, session)
    first = updated[0][0] - len(turn.messages) + 1
    common = {"tenant": turn.tenant, "session_id": turn.session_id, "execution_id": execution_id, "at": turn.at}
    rows = [common | {"number": number, "message": message} for number, message in enumerate(turn.messages, first)]
    yield from execute_each(_INSERT_MESSAGE, rows)


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
    "started_at",
    "provider",
    "model",
    "fork_points",
)
"""Columns of `executions` that every commit sets."""
_ADVANCE = Statement(
    lambda _: (
        update(executions)
        .where(
            executions.c.execution_id == bindparam("the_execution_id"),
            executions.c.epoch == bindparam("the_epoch"),
            executions.c.commits == bindparam("the_commits"),
        )
        .values({name: bindparam(name) for name in ADVANCED_COLUMNS})
        .returning(executions.c.execution_id, executions.c.erase_at_end)
    )
)
_EPOCH = Statement(
    lambda _: select(executions.c.epoch).where(executions.c.execution_id == bindparam("the_execution_id"))
)
_COMMITTED = Statement(
    lambda _: select(commits.c.epoch).where(
        commits.c.execution_id == bindparam("the_execution_id"), commits.c.number == bindparam("the_number")
    )
)
INSERT_COMMIT = Statement(lambda insert: insert(commits))
_INSERT_COMMIT_IF_ABSENT = Statement(
    lambda insert: insert(commits).on_conflict_do_nothing(index_elements=["execution_id", "number"])
)
_INSERT_ANCESTOR = Statement(
    lambda insert: insert(ancestors).on_conflict_do_nothing(index_elements=["execution_id", "ancestor_id"])
)
_INSERT_METADATA_ENTRY = Statement(
    lambda insert: insert(metadata_entries).on_conflict_do_nothing(index_elements=["execution_id", "entry"])
)
_INSERT_SUSPENSION = Statement(
    lambda insert: (
        insert(suspensions)
        .values({column.name: bindparam(column.name) for column in suspensions.c})
        .on_conflict_do_update(
            index_elements=["execution_id", "suspension_id"],
            set_={
                **{name: bindparam(name) for name in ("expires_at", "asked_at", "suspension")},
                "answered_at": None,
            },
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
_INSERT_MESSAGE = Statement(lambda insert: insert(messages))
