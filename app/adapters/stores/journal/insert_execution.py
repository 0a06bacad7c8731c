"""How executions begin in the store: what each has to be granted, and why it is refused.

One whose session is busy is refused, or begins without its turn where it asked to wait. Who waits stands in the order
of the ids, which is that of time; the turn is handed on to the first of them in the commit that ends the one before.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from sqlalchemy import and_, bindparam, delete, func, or_, select, text, update

from app.adapters.stores.database import ResultRows, Statement, StatementCall, execute, execute_each
from app.adapters.stores.schema import IS_LIVE, executions, idempotency_keys, sessions
from app.domain.failures import Code, Failure, RequestFailure
from app.domain.ids import ExecutionId
from app.domain.lifecycle import State
from app.ports.journal import IdempotencyHit

Values: TypeAlias = dict[str, Any]
InsertRefusal: TypeAlias = Failure | IdempotencyHit
IDEMPOTENCY_KEY_TTL_S = 24 * 3600.0
MAX_WAITING_PER_SESSION = 16
"""Executions that may wait for their turn in one session."""
_RETRY_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class NewExecution:
    """A new execution's row, its commit 0, and what it has to be granted first: a key, a session's turn.

    The turn is granted later where it `may_wait`. `suspensions` are the questions that are open in it already.
    """

    row: Values
    commit: Values
    key: Values | None = None
    session: Values | None = None
    may_wait: bool = False
    suspensions: Sequence[Values] = ()

    def with_row(self, after: Mapping[str, Any]) -> "NewExecution":
        """The same with its row as it stands after its first commits."""
        return replace(self, row={**self.row, **after})

    @property
    def execution_id(self) -> str:
        execution_id: ExecutionId = self.row["execution_id"]
        return execution_id


def insert_executions(
    openings: Iterable[NewExecution],
) -> Generator[StatementCall, ResultRows, tuple[set[str], dict[str, InsertRefusal]]]:
    """Which were opened now, and why which were not; one that had been opened before is neither."""
    asked = {each.execution_id: each for each in openings}
    busy = yield from _take_turns([each for each in asked.values() if each.session])
    busy -= yield from _stand_in_line([each for each in asked.values() if each.may_wait and each.execution_id in busy])
    held = yield from _take_keys([each for each in asked.values() if each.key and each.execution_id not in busy])
    granted = [each for each in asked.values() if each.execution_id not in busy | held]
    inserted = yield from execute_each(_INSERT, [each.row for each in granted])
    opened = {execution_id for (execution_id,) in inserted}
    refused: dict[str, InsertRefusal] = {}
    for each in asked.values():
        if each.execution_id not in opened:
            refusal = yield from _why(each, busy=each.execution_id in busy, held=each.execution_id in held)
            if refusal is not None:
                refused[each.execution_id] = refusal
                yield from _give_back(each)
    return opened, refused


def _take_turns(openings: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    rows = yield from execute_each(_TAKE_TURN, [each.session for each in openings if each.session])
    return {each.execution_id for each in openings} - {holder for (holder,) in rows}


def _stand_in_line(openings: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    """Those that may wait for their turn: not behind an execution that is suspended, and not too many."""
    waiting: set[str] = set()
    joined: Counter[tuple[str, str]] = Counter()
    for each in openings:
        session = each.row["tenant"], each.row["session_id"]
        rows = yield from execute(_LINE, {"the_tenant": session[0], "the_session_id": session[1]})
        line: dict[str, str] = {row[0]: row[1] for row in rows}
        has_room = max(len(line), 1) + joined[session] <= MAX_WAITING_PER_SESSION
        if each.execution_id in line or (has_room and State.SUSPENDED not in line.values()):
            waiting.add(each.execution_id)
            joined[session] += 1
    return waiting


def _take_keys(openings: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    rows = yield from execute_each(
        _TAKE_KEY,
        [each.key | {"forgotten": each.key["created_at"] - IDEMPOTENCY_KEY_TTL_S} for each in openings if each.key],
    )
    return {each.execution_id for each in openings} - {holder for (holder,) in rows}


def _why(new: NewExecution, *, busy: bool, held: bool) -> Generator[StatementCall, ResultRows, InsertRefusal | None]:
    if new.key is not None and (busy or held):
        earlier = yield from execute(_HOLDER_OF_KEY, {"the_tenant": new.row["tenant"], "the_key": new.key["key"]})
        if earlier:
            execution_id, body_digest, request_id, state = earlier[0]
            if execution_id != new.execution_id:
                return IdempotencyHit(
                    execution_id, request_id, State(state), same_body=body_digest == new.key["body_digest"]
                )
    if busy and new.session is not None:
        session = {"the_tenant": new.row["tenant"], "the_session_id": new.row["session_id"]}
        states = yield from execute(_STATE_OF_HOLDER, session)
        return _busy(State(states[0][0]) if states else State.INIT)
    if held:
        return _refusal(Code.REQUEST_IN_PROGRESS, "the first request with this Idempotency-Key is still running")
    return (yield from request_id_refusal(new))


def request_id_refusal(new: NewExecution) -> Generator[StatementCall, ResultRows, RequestFailure | None]:
    """Why the execution of that name is not the one that was to be opened; None when it is."""
    name = {"the_tenant": new.row["tenant"], "the_request_id": new.row["request_id"]}
    found = yield from execute(_NAMED, name)
    if found and found[0][0] == new.execution_id:
        return None
    return RequestFailure(Code.REQUEST_ID_CONFLICT, "request_id is in use")


def _busy(state: State) -> RequestFailure:
    if state is State.SUSPENDED:
        return RequestFailure(Code.REQUEST_RESUME_REQUIRED, "the session waits for a resume")
    return _refusal(Code.REQUEST_SESSION_BUSY, "the session's last turn is still running")


def _refusal(code: Code, message: str) -> RequestFailure:
    return RequestFailure(code, message, retry_after=_RETRY_AFTER)


def _give_back(new: NewExecution) -> Generator[StatementCall, ResultRows, None]:
    holder = {"the_tenant": new.row["tenant"], "the_holder": new.execution_id}
    if new.session is not None:
        session = holder | {"the_session_id": new.row["session_id"]}
        if (yield from execute(_GIVE_BACK_TURN, session)):
            yield from execute(HAND_ON_TURN, session)
        yield from execute(_FORGET_UNUSED, new.session)
    if new.key is not None:
        yield from execute(_GIVE_BACK_KEY, holder | {"the_key": new.key["key"]})


_INSERT = Statement(
    lambda insert: (
        insert(executions)
        .on_conflict_do_nothing(index_elements=["tenant", "request_id"])
        .returning(executions.c.execution_id)
    )
)
INSERT_IF_ABSENT = Statement(lambda insert: insert(executions).on_conflict_do_nothing())
"""Leaves out what is there already."""
_NAMED = Statement(
    lambda _: select(executions.c.execution_id).where(
        executions.c.tenant == bindparam("the_tenant"), executions.c.request_id == bindparam("the_request_id")
    )
)
_TAKE_TURN = Statement(
    lambda insert: (
        insert(sessions)
        .values({name: bindparam(name) for name in ("tenant", "session_id", "created_at", "updated_at", "holder")})
        .values(messages=0)
        .on_conflict_do_update(
            index_elements=["tenant", "session_id"],
            set_={"holder": bindparam("holder"), "updated_at": bindparam("updated_at")},
            where=or_(sessions.c.holder.is_(None), sessions.c.holder == bindparam("holder")),
        )
        .returning(sessions.c.holder)
    )
)
_LINE = Statement(
    lambda _: (
        select(executions.c.execution_id, executions.c.state)
        .join(
            sessions,
            and_(
                sessions.c.tenant == executions.c.tenant,
                sessions.c.session_id == executions.c.session_id,
                sessions.c.holder <= executions.c.execution_id,
            ),
        )
        .where(
            executions.c.tenant == bindparam("the_tenant"),
            executions.c.session_id == bindparam("the_session_id"),
            text(f"executions.{IS_LIVE}"),
        )
    )
)
"""Whose turn it is, and who waits."""
_STATE_OF_HOLDER = Statement(
    lambda _: (
        select(executions.c.state)
        .join(sessions, sessions.c.holder == executions.c.execution_id)
        .where(
            sessions.c.tenant == bindparam("the_tenant"),
            sessions.c.session_id == bindparam("the_session_id"),
            executions.c.tenant == bindparam("the_tenant"),
        )
    )
)
_GIVE_BACK_TURN = Statement(
    lambda _: (
        update(sessions)
        .where(
            sessions.c.tenant == bindparam("the_tenant"),
            sessions.c.session_id == bindparam("the_session_id"),
            sessions.c.holder == bindparam("the_holder"),
        )
        .values(holder=None)
        .returning(sessions.c.session_id)
    )
)
HAND_ON_TURN = Statement(
    lambda _: (
        update(sessions)
        .where(sessions.c.tenant == bindparam("the_tenant"), sessions.c.session_id == bindparam("the_session_id"))
        .values(
            holder=select(func.min(executions.c.execution_id))
            .where(
                executions.c.tenant == bindparam("the_tenant"),
                executions.c.session_id == bindparam("the_session_id"),
                executions.c.execution_id > bindparam("the_holder"),
                text(f"executions.{IS_LIVE}"),
            )
            .scalar_subquery()
        )
    )
)
"""Gives a turn that is over to the first that waits. It comes after the statement that ended it and so, on PostgreSQL,
waited for whoever was just standing in line: that statement would not have seen them."""
_FORGET_UNUSED = Statement(
    lambda _: delete(sessions).where(
        sessions.c.tenant == bindparam("tenant"),
        sessions.c.session_id == bindparam("session_id"),
        sessions.c.created_at == bindparam("created_at"),
        sessions.c.messages == 0,
        sessions.c.holder.is_(None),
        sessions.c.details.is_(None),
    )
)
_TAKE_KEY = Statement(
    lambda insert: (
        insert(idempotency_keys)
        .values({column.name: bindparam(column.name) for column in idempotency_keys.c})
        .on_conflict_do_update(
            index_elements=["tenant", "key"],
            set_={name: bindparam(name) for name in ("body_digest", "execution_id", "created_at")},
            where=or_(
                idempotency_keys.c.created_at < bindparam("forgotten"),
                idempotency_keys.c.execution_id == bindparam("execution_id"),
            ),
        )
        .returning(idempotency_keys.c.execution_id)
    )
)
_HOLDER_OF_KEY = Statement(
    lambda _: (
        select(
            idempotency_keys.c.execution_id,
            idempotency_keys.c.body_digest,
            executions.c.request_id,
            executions.c.state,
        )
        .join(executions, executions.c.execution_id == idempotency_keys.c.execution_id)
        .where(
            idempotency_keys.c.tenant == bindparam("the_tenant"),
            executions.c.tenant == bindparam("the_tenant"),
            idempotency_keys.c.key == bindparam("the_key"),
        )
    )
)
_GIVE_BACK_KEY = Statement(
    lambda _: delete(idempotency_keys).where(
        idempotency_keys.c.tenant == bindparam("the_tenant"),
        idempotency_keys.c.key == bindparam("the_key"),
        idempotency_keys.c.execution_id == bindparam("the_holder"),
    )
)
