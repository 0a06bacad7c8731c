"""Insertion of new executions: what each of them has to be granted, and why it is refused.

If its session is busy, an execution is refused, or inserted without the turn if its request requested to wait. Waiting
executions are ordered by id, which is the order of time; the commit that ends a turn passes it on to the first of them.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import and_, bindparam, delete, func, or_, select, text, update

from portico.adapters.stores.database import ResultRows, Statement, StatementCall, execute, execute_each
from portico.adapters.stores.schema import IS_LIVE, NOT_DELAYED, delayed_starts, executions, idempotency_keys, sessions
from portico.capabilities.context.title import title_of
from portico.domain.failures import Code, Failure, RequestFailure
from portico.domain.ids import RequestId, TenantId
from portico.domain.journal.header import ExecutionHeader
from portico.domain.lifecycle import State
from portico.domain.value import replace, value
from portico.ports.journal import IdempotencyHit

Values: TypeAlias = dict[str, Any]
InsertRefusal: TypeAlias = Failure | IdempotencyHit
IDEMPOTENCY_KEY_TTL_S = 24 * 3600.0
MAX_WAITING_PER_SESSION = 16
"""Number of executions that may wait for their turn in one session, the running one included."""
MAX_DELAYED_PER_TENANT = 1_000
"""Number of executions of a tenant that may wait for the time at which they are to start."""
_RETRY_AFTER = 1.0
_RETRY_AFTER_STARTS = 60.0


@value
class NewExecution:
    """Row and commit 0 of a new execution, with the key and the session's turn that it has to be granted.

    The title is no part of the row: it is made when the row is written, which is after the answer of an execution that
    ended in memory.

    If it `may_wait`, the turn may be granted later. `suspensions` are questions that are open already, `metadata` the
    entries by which it is found. `ancestors` are the executions of which it has copies, that it goes on from last.
    """

    header: ExecutionHeader
    row: Values
    commits: Sequence[Values]
    key: Values | None = None
    session: Values | None = None
    may_wait: bool = False
    suspensions: Sequence[Values] = ()
    metadata: Sequence[Values] = ()
    ancestors: Sequence[Values] = ()
    start: Values | None = None
    """The time at which it is to start, if that is later; its turn is granted then."""

    def with_row(self, after: Mapping[str, Any]) -> "NewExecution":
        """Return a copy with the columns that its first commits changed."""
        return replace(self, row={**self.row, **after})

    @property
    def titled_row(self) -> Values:
        """The row as it is written."""
        title = title_of(self.header)
        return {**self.row, "title": None if title is None else title.encode(errors="replace")}


def insert_executions(
    new_executions: Iterable[NewExecution], *, without_origin: Collection[str] = ()
) -> Generator[StatementCall, ResultRows, tuple[dict[str, int], dict[str, InsertRefusal]]]:
    """Return the executions inserted now, each with its mark to be erased at its end, and the reasons of the refused.

    Earlier inserted ones are in neither. Those `without_origin` are refused, because it was erased meanwhile.
    """
    requested = {each.header.execution_id: each for each in new_executions}
    busy: set[str] = set()
    with_session = [each for each in requested.values() if each.session]
    if with_session:
        busy = yield from _take_turns(with_session)
        busy -= yield from _may_wait(
            [each for each in with_session if each.may_wait and each.header.execution_id in busy]
        )
    with_used_key: set[str] = set()
    with_key = [each for each in requested.values() if each.key and each.header.execution_id not in busy]
    if with_key:
        with_used_key = yield from _take_keys(with_key)
    crowded: set[str] = set()
    delayed = [each for each in requested.values() if each.start]
    if delayed:
        crowded = yield from _crowded(delayed)
    left_out = {*busy, *with_used_key, *without_origin, *crowded}
    granted = [each for each in requested.values() if each.header.execution_id not in left_out]
    inserted = yield from execute_each(_INSERT, [each.titled_row for each in granted])
    inserted_ids: dict[str, int] = {row[0]: row[1] for row in inserted}
    if delayed:
        stored = [each for each in granted if each.header.execution_id in inserted_ids]
        yield from execute_each(_ADD_START, [each.start for each in stored if each.start])
    refused: dict[str, InsertRefusal] = {}
    for each in requested.values():
        if each.header.execution_id not in inserted_ids:
            refusal: InsertRefusal | None = origin_refusal()
            if each.header.execution_id in crowded:
                refusal = _too_many_starts()
            elif each.header.execution_id not in without_origin:
                refusal = yield from _refusal_reason(
                    each, busy=each.header.execution_id in busy, with_used_key=each.header.execution_id in with_used_key
                )
            if refusal is not None:
                refused[each.header.execution_id] = refusal
                yield from _release(each)
    return inserted_ids, refused


def take_turn(new: NewExecution) -> Generator[StatementCall, ResultRows, Failure | None]:
    """Take the turn in its session for an execution that is stored already, or let it wait; return why it may not."""
    if not (yield from _take_turns([new])) or (new.may_wait and (yield from _may_wait([new]))):
        return None
    refusal = yield from _refusal_reason(new, busy=True, with_used_key=False)
    return refusal if isinstance(refusal, Failure) else None


def _crowded(delayed: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    """Return those for which too many executions of their tenant wait for their start."""
    crowded: set[str] = set()
    joined: Counter[str] = Counter()
    for each in delayed:
        tenant = each.row["tenant"]
        rows = yield from execute(_COUNT_STARTS, {"the_tenant": tenant, "the_execution_id": each.header.execution_id})
        if rows[0][0] + joined[tenant] >= MAX_DELAYED_PER_TENANT:
            crowded.add(each.header.execution_id)
        else:
            joined[tenant] += 1
    return crowded


def _take_turns(new_executions: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    rows = yield from execute_each(_TAKE_TURN, [each.session for each in new_executions if each.session])
    everyone: set[str] = {each.header.execution_id for each in new_executions}
    return everyone - {holder for (holder,) in rows}


def _may_wait(new_executions: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    """Return those that may wait for their turn: not behind a suspended execution, and not too many."""
    waiting: set[str] = set()
    joined: Counter[tuple[str, str]] = Counter()
    for each in new_executions:
        session = each.row["tenant"], each.row["session_id"]
        which = {"the_tenant": session[0], "the_session_id": session[1]}
        if not (yield from execute(_IS_OWN_SESSION, which | {"the_user_id": each.row["user_id"]})):
            continue
        rows = yield from execute(_TURN_QUEUE, which)
        queue: dict[str, str] = {row[0]: row[1] for row in rows}
        has_room = max(len(queue), 1) + joined[session] <= MAX_WAITING_PER_SESSION
        if each.header.execution_id in queue or (has_room and State.SUSPENDED not in queue.values()):
            waiting.add(each.header.execution_id)
            joined[session] += 1
    return waiting


def _take_keys(new_executions: Sequence[NewExecution]) -> Generator[StatementCall, ResultRows, set[str]]:
    rows = yield from execute_each(
        _TAKE_KEY,
        [
            each.key | {"expired_before": each.key["created_at"] - IDEMPOTENCY_KEY_TTL_S}
            for each in new_executions
            if each.key
        ],
    )
    everyone: set[str] = {each.header.execution_id for each in new_executions}
    return everyone - {holder for (holder,) in rows}


def _refusal_reason(
    new: NewExecution, *, busy: bool, with_used_key: bool
) -> Generator[StatementCall, ResultRows, InsertRefusal | None]:
    if new.key is not None and (busy or with_used_key):
        earlier = yield from holder_of_key(new.key)
        if earlier is not None and earlier.execution_id != new.header.execution_id:
            return earlier
    if busy and new.session is not None:
        session = {"the_tenant": new.row["tenant"], "the_session_id": new.row["session_id"]}
        if not (yield from execute(_IS_OWN_SESSION, session | {"the_user_id": new.row["user_id"]})):
            return no_such_session()
        states = yield from execute(_STATE_OF_HOLDER, session)
        return _busy_session(State(states[0][0]) if states else State.INIT)
    if with_used_key:
        return _retryable(Code.REQUEST_IN_PROGRESS, "the first request with this Idempotency-Key is still running")
    return (yield from request_id_refusal(new))


def holder_of_key(
    key: Values, expired_before: float = 0.0
) -> Generator[StatementCall, ResultRows, IdempotencyHit | None]:
    """Return the execution that holds the idempotency key of that row, unless the key has expired."""
    which = {"the_tenant": key["tenant"], "the_key": key["key"], "expired_before": expired_before}
    rows = yield from execute(_HOLDER_OF_KEY, which)
    if not rows:
        return None
    execution_id, body_digest, request_id, state = rows[0]
    return IdempotencyHit(execution_id, request_id, State(state), same_body=body_digest == key["body_digest"])


def has_request_id(tenant: TenantId, request_id: RequestId) -> Generator[StatementCall, ResultRows, bool]:
    """Return whether a stored execution has the id."""
    return bool((yield from execute(BY_REQUEST_ID, {"the_tenant": tenant, "the_request_id": request_id})))


def request_id_refusal(new: NewExecution) -> Generator[StatementCall, ResultRows, RequestFailure | None]:
    """Return the refusal if another execution has this request_id, or None."""
    name = {"the_tenant": new.row["tenant"], "the_request_id": new.row["request_id"]}
    found = yield from execute(BY_REQUEST_ID, name)
    if found and found[0][0] == new.header.execution_id:
        return None
    return RequestFailure(Code.REQUEST_ID_CONFLICT, "request_id is in use")


def no_such_session() -> RequestFailure:
    """Return the refusal of a turn in the session of another user."""
    return RequestFailure(Code.REQUEST_NOT_FOUND, "no session has this id", condition="path")


def origin_refusal() -> RequestFailure:
    """Return the refusal of an execution whose origin was erased before it was stored."""
    return RequestFailure(Code.REQUEST_NOT_FOUND, "the execution to go on from was deleted", condition="path")


def _busy_session(state: State) -> RequestFailure:
    if state is State.SUSPENDED:
        return RequestFailure(Code.REQUEST_RESUME_REQUIRED, "the session waits for a resume")
    return _retryable(Code.REQUEST_SESSION_BUSY, "the session's last turn is still running")


def _too_many_starts() -> RequestFailure:
    message = f"the tenant has {MAX_DELAYED_PER_TENANT} executions that wait for their run_at; cancel one"
    return RequestFailure(Code.REQUEST_RATE_LIMITED, message, retry_after=_RETRY_AFTER_STARTS)


def _retryable(code: Code, message: str) -> RequestFailure:
    return RequestFailure(code, message, retry_after=_RETRY_AFTER)


def _release(new: NewExecution) -> Generator[StatementCall, ResultRows, None]:
    holder = {"the_tenant": new.row["tenant"], "the_holder": new.header.execution_id}
    if new.session is not None:
        session = holder | {"the_session_id": new.row["session_id"]}
        if (yield from execute(_RELEASE_TURN, session)):
            yield from execute(PASS_ON_TURN, session)
        yield from execute(DELETE_UNUSED_SESSION, new.session)
    if new.key is not None:
        yield from execute(_RELEASE_KEY, holder | {"the_key": new.key["key"]})


_NEW_COLUMNS: Mapping[str, Any] = {
    column.name: bindparam(column.name) for column in executions.c if column.name != "header"
}
_INSERT = Statement(
    lambda insert: (
        insert(executions)
        .values(_NEW_COLUMNS)
        .on_conflict_do_nothing(index_elements=["tenant", "request_id"])
        .returning(executions.c.execution_id, executions.c.erase_at_end)
    )
)
INSERT_IF_ABSENT = Statement(lambda insert: insert(executions).values(_NEW_COLUMNS).on_conflict_do_nothing())
"""Insert, and ignore existing rows."""
_ADD_START = Statement(lambda insert: insert(delayed_starts))
_COUNT_STARTS = Statement(
    lambda _: (
        select(func.count())
        .select_from(delayed_starts)
        .where(
            delayed_starts.c.tenant == bindparam("the_tenant"),
            delayed_starts.c.timer_id != bindparam("the_execution_id"),
        )
    )
)

BY_REQUEST_ID = Statement(
    lambda _: select(executions.c.execution_id).where(
        executions.c.tenant == bindparam("the_tenant"), executions.c.request_id == bindparam("the_request_id")
    )
)
"""The execution of a request id."""
_SESSION_COLUMNS = ("tenant", "session_id", "user_id", "created_at", "updated_at", "holder")
_TAKE_TURN = Statement(
    lambda insert: (
        insert(sessions)
        .values({name: bindparam(name) for name in _SESSION_COLUMNS})
        .values(messages=0)
        .on_conflict_do_update(
            index_elements=["tenant", "session_id"],
            set_={"holder": bindparam("holder"), "updated_at": bindparam("updated_at")},
            where=and_(
                sessions.c.user_id == bindparam("user_id"),
                or_(sessions.c.holder.is_(None), sessions.c.holder == bindparam("holder")),
            ),
        )
        .returning(sessions.c.holder)
    )
)
_TURN_QUEUE = Statement(
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
            text(NOT_DELAYED),
        )
    )
)
"""Holder of the turn and waiting executions."""
_IS_OWN_SESSION = Statement(
    lambda _: select(sessions.c.session_id).where(
        sessions.c.tenant == bindparam("the_tenant"),
        sessions.c.session_id == bindparam("the_session_id"),
        sessions.c.user_id == bindparam("the_user_id"),
    )
)
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
_RELEASE_TURN = Statement(
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
PASS_ON_TURN = Statement(
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
                text(NOT_DELAYED),
            )
            .scalar_subquery()
        )
    )
)
"""Pass a turn that has ended on to the first waiting execution.

It must follow the statement that ended the turn: on PostgreSQL that statement waits for executions that are being
inserted, and would not see them itself.
"""
DELETE_UNUSED_SESSION = Statement(
    lambda _: delete(sessions).where(
        sessions.c.tenant == bindparam("tenant"),
        sessions.c.session_id == bindparam("session_id"),
        sessions.c.user_id == bindparam("user_id"),
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
                idempotency_keys.c.created_at < bindparam("expired_before"),
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
            idempotency_keys.c.created_at >= bindparam("expired_before"),
        )
    )
)
_RELEASE_KEY = Statement(
    lambda _: delete(idempotency_keys).where(
        idempotency_keys.c.tenant == bindparam("the_tenant"),
        idempotency_keys.c.key == bindparam("the_key"),
        idempotency_keys.c.execution_id == bindparam("the_holder"),
    )
)
