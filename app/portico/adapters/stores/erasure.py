"""Erasure of executions and sessions with all copies of their messages, and what outlives their steps.

Theory of operation

1. An execution that has ended is erased at once: its rows in all tables, and its messages in the conversation of its
   session. A live one is marked, and the commit that ends it erases it (`group_commit.py`).
2. Forks have copies of the messages. Every ancestor of a fork is stored, so all forks of an execution are found even if
   a fork between them is gone. They are erased too if that was asked for; otherwise nothing is.
3. Later turns of a session have copies in the history that they read. Their steps and events are deleted, as at the end
   of their retention; their requests and answers stay. A later turn that is live refuses the erasure.
4. The insertion of a fork and the erasure of its origin lock the row of the origin, so one of them sees the other.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import JsonValue
from sqlalchemy import BigInteger, BindParameter, and_, bindparam, delete, or_, select, update

from portico.adapters.stores import codec
from portico.adapters.stores.database import Database, Statement, Transaction, execute, execute_each
from portico.adapters.stores.execution_counts import select_counts
from portico.adapters.stores.schema import (
    TEXT,
    ancestors,
    cancels,
    commits,
    credentials,
    delayed_starts,
    executions,
    grants,
    idempotency_keys,
    messages,
    metadata_entries,
    sessions,
    suspensions,
    webhook_deliveries,
)
from portico.adapters.stores.suspension_list import select_suspensions
from portico.domain.access.principal import AccessScope
from portico.domain.context.summary import SUMMARY_DETAIL
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import ExecutionId, RequestId, SessionId, TenantId
from portico.domain.lifecycle import TERMINAL, State
from portico.ports.storage import (
    CountSelection,
    ExecutionCount,
    OpenSuspension,
    OtherUsers,
    ResultPage,
    SuspensionFilter,
)

_RETRY_AFTER = 1.0


class DatabaseRecords:
    """Implementation of the `RecordStore` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def suspensions(
        self, own: AccessScope, where: SuspensionFilter, others: OtherUsers, *, after: str | None = None, limit: int
    ) -> ResultPage[OpenSuspension]:
        return await self._database.read(lambda: select_suspensions(own, where, others, after=after, limit=limit))

    async def counts(self, scope: AccessScope, where: CountSelection) -> Sequence[ExecutionCount]:
        return await self._database.read(lambda: select_counts(scope, where))

    async def erase_execution(
        self, tenant: TenantId, execution_id: ExecutionId, *, with_forks: bool
    ) -> Sequence[RequestId]:
        return await self._database.maintain(lambda: _erase_execution(tenant, execution_id, with_forks=with_forks))

    async def forks_of_session(self, scope: AccessScope, session_id: SessionId) -> Sequence[RequestId]:
        return await self._database.write(lambda: _forks_of_session(scope, session_id), idempotent=True)

    async def erase_session(
        self, scope: AccessScope, session_id: SessionId, *, with_forks: bool
    ) -> Sequence[RequestId] | None:
        return await self._database.maintain(lambda: _erase_session(scope, session_id, with_forks=with_forks))


class _Found(NamedTuple):
    """An execution that is to be erased, or that has read what is."""

    execution_id: ExecutionId
    request_id: RequestId
    session_id: SessionId | None
    state: str
    created_at: float

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


@dataclass(slots=True)
class _Copies:
    """Executions that hold messages of those to be erased: these and their forks, and later turns of their sessions."""

    erased: dict[ExecutionId, _Found] = field(default_factory=dict)
    later_turns: dict[ExecutionId, _Found] = field(default_factory=dict)


def _erase_execution(tenant: TenantId, execution_id: ExecutionId, *, with_forks: bool) -> Transaction[list[RequestId]]:
    """Erase the execution and return the request ids of those, forks included, that are live and erased at their end.

    Raises: RequestFailure (REQUEST_HAS_FORKS, REQUEST_SESSION_BUSY, REQUEST_RESUME_REQUIRED).
    """
    copies = yield from _copies(tenant, [execution_id])
    _refuse_forks(_forks(copies, [execution_id]), with_forks=with_forks)
    turns = [turn for turn in copies.later_turns.values() if turn.execution_id not in copies.erased]
    for turn in turns:
        _refuse_live_turn(turn)
    yield from delete_histories([turn.execution_id for turn in turns])
    return (yield from _erase(tenant, copies.erased.values()))


def _forks_of_session(scope: AccessScope, session_id: SessionId) -> Transaction[list[RequestId]]:
    """Return the request ids of the executions outside the session that hold its messages."""
    tenant, key = scope.tenant, {"the_tenant": scope.tenant, "the_session_id": session_id}
    if not (yield from execute(_LOCK_SESSION, key | {"the_user_id": scope.user})):
        return []
    inside = [execution_id for (execution_id,) in (yield from execute(_ITS_EXECUTIONS, key))]
    copies = yield from _copies(tenant, inside, session_id)
    return [each.request_id for each in _forks(copies, inside)]


def _erase_session(
    scope: AccessScope, session_id: SessionId, *, with_forks: bool
) -> Transaction[list[RequestId] | None]:
    """Erase the session and return the request ids of forks that are live and erased at their end.

    Return None if there is no such session. Its own executions are erased at once; one that is running is lost to its
    owner. Raises: RequestFailure (REQUEST_HAS_FORKS).
    """
    tenant, key = scope.tenant, {"the_tenant": scope.tenant, "the_session_id": session_id}
    if not (yield from execute(_LOCK_SESSION, key | {"the_user_id": scope.user})):
        return None
    inside = [execution_id for (execution_id,) in (yield from execute(_ITS_EXECUTIONS, key))]
    copies = yield from _copies(tenant, inside, session_id)
    forks = _forks(copies, inside)
    _refuse_forks(forks, with_forks=with_forks)
    pending = yield from _erase(tenant, forks)
    yield from erase_session_rows(tenant, session_id)
    return pending


def erase_session_rows(tenant: TenantId, session_id: SessionId) -> Transaction[None]:
    """Delete the session with its messages and executions."""
    key = {"the_tenant": tenant, "the_session_id": session_id}
    its = yield from execute(_ITS_EXECUTIONS, key)
    yield from erase_rows([execution_id for (execution_id,) in its])
    yield from execute(_DELETE_MESSAGES, key)
    yield from execute(_DELETE_SESSION, key)


def delete_histories(execution_ids: Iterable[str]) -> Transaction[None]:
    """Delete steps, events and suspensions of executions that have ended; header and response stay."""
    these = [{"the_execution_id": each} for each in execution_ids]
    headers: list[Mapping[str, Any]] = []
    for each in these:
        found = yield from execute(_STORED_HEADER, each)
        headers.append(each | {"header": codec.without_steps(found[0][0] if found else None)})
    yield from execute_each(_SET_HEADER, headers)
    for statement in (DELETE_COMMITS, DELETE_SUSPENSIONS, DELETE_CANCELS):
        yield from execute_each(statement, these)


def erase_rows(execution_ids: Iterable[str]) -> Transaction[None]:
    """Delete the rows of executions in all tables but the messages of sessions."""
    these = [{"the_execution_id": each} for each in execution_ids]
    for statement in _ERASE:
        yield from execute_each(statement, these)


def _erase(tenant: TenantId, these: Iterable[_Found]) -> Transaction[list[RequestId]]:
    """Erase those that have ended and mark the others; return the request ids of these."""
    pending = []
    for each in these:
        if each.ended:
            if each.session_id is not None:
                yield from _remove_turn(tenant, each.session_id, each.execution_id)
            yield from erase_rows([each.execution_id])
        else:
            yield from execute(_ERASE_AT_END, {"the_tenant": tenant, "the_execution_id": each.execution_id})
            pending.append(each.request_id)
    return pending


def _copies(
    tenant: TenantId, targets: Collection[ExecutionId], whole_session: SessionId | None = None
) -> Transaction[_Copies]:
    """Return what holds messages of the targets; in a session that is erased as a whole no turn is a later one."""
    copies, left = _Copies(), list(targets)
    while left:
        execution_id = left.pop()
        key = {"the_tenant": tenant, "the_execution_id": execution_id}
        rows = () if execution_id in copies.erased else (yield from execute(_LOCK_EXECUTION, key))
        for row in rows:
            found = copies.erased[execution_id] = _Found(*row)
            holders = {execution_id}
            if found.session_id not in {None, whole_session}:
                later = yield from _later_turns(tenant, found)
                copies.later_turns |= later
                holders |= later.keys()
            for holder in holders:
                forks = yield from execute(_DESCENDANTS, {"the_tenant": tenant, "the_ancestor_id": holder})
                left += [fork_id for (fork_id,) in forks]
    return copies


def _later_turns(tenant: TenantId, found: _Found) -> Transaction[dict[ExecutionId, _Found]]:
    """Return the other executions of its session that may have read its messages, if it has added any."""
    session = {"the_tenant": tenant, "the_session_id": found.session_id, "the_execution_id": found.execution_id}
    if not (yield from execute(_NUMBERS_OF_TURN, session)):
        return {}
    rows = yield from execute(_TURNS_SINCE, session | {"since": found.created_at})
    return {row[0]: _Found(*row) for row in rows}


def _remove_turn(tenant: TenantId, session_id: SessionId, execution_id: ExecutionId) -> Transaction[None]:
    """Delete the messages that the execution added to its session, and close the gap in their numbers."""
    session = {"the_tenant": tenant, "the_session_id": session_id, "the_execution_id": execution_id}
    numbers = yield from execute(_NUMBERS_OF_TURN, session)
    if numbers:
        gap = {"last": numbers[0][0], "shrunk_by": len(numbers)}
        yield from execute(_DELETE_TURN, session)
        # In two steps, because numbers are unique while they change one by one.
        yield from execute(_SHIFT_MESSAGES, session | gap)
        yield from execute(_RESTORE_NUMBERS, session)
        yield from execute(_SHRINK_SESSION, session | gap)
        yield from _drop_summary(session)


def _drop_summary(session: Mapping[str, Any]) -> Transaction[None]:
    """Delete the summary of the session, which may have what an erased turn said."""
    found = yield from execute(_DETAILS, session)
    details = codec.decode_value(found[0][0]) if found and found[0][0] is not None else None
    if isinstance(details, dict) and SUMMARY_DETAIL in details:
        rest: JsonValue = {name: value for name, value in details.items() if name != SUMMARY_DETAIL}
        yield from execute(_SET_DETAILS, {**session, "details": codec.encode_value(rest)})


def _forks(copies: _Copies, targets: Collection[ExecutionId]) -> list[_Found]:
    return [each for each in copies.erased.values() if each.execution_id not in set(targets)]


def _refuse_forks(forks: Sequence[_Found], *, with_forks: bool) -> None:
    if forks and not with_forks:
        names = sorted(each.request_id for each in forks)
        message = "forks hold copies of its messages; forks=delete deletes them, too"
        raise RequestFailure(Code.REQUEST_HAS_FORKS, message, {"forks": names})


def _refuse_live_turn(turn: _Found) -> None:
    if turn.ended:
        return
    details = {"request_id": turn.request_id}
    if turn.state == State.SUSPENDED:
        message = "a later turn of its session, which has read its messages, waits for a resume"
        raise RequestFailure(Code.REQUEST_RESUME_REQUIRED, message, details)
    message = "a later turn of its session, which has read its messages, is still running"
    raise RequestFailure(Code.REQUEST_SESSION_BUSY, message, details, retry_after=_RETRY_AFTER)


_IS_EXECUTION = executions.c.execution_id == bindparam("the_execution_id")
_OF_TENANT = executions.c.tenant == bindparam("the_tenant")
_IN_SESSION = and_(messages.c.tenant == bindparam("the_tenant"), messages.c.session_id == bindparam("the_session_id"))
_IS_SESSION = and_(sessions.c.tenant == bindparam("the_tenant"), sessions.c.session_id == bindparam("the_session_id"))
_OF_TURN = messages.c.execution_id == bindparam("the_execution_id")
_FOUND = (
    executions.c.execution_id,
    executions.c.request_id,
    executions.c.session_id,
    executions.c.state,
    executions.c.created_at,
)
_LOCK_EXECUTION = Statement(lambda _: select(*_FOUND).where(_OF_TENANT, _IS_EXECUTION).with_for_update())
_TURNS_SINCE = Statement(
    lambda _: (
        select(*_FOUND)
        .where(
            _OF_TENANT,
            executions.c.session_id == bindparam("the_session_id"),
            executions.c.execution_id != bindparam("the_execution_id"),
            executions.c.entered_at >= bindparam("since"),
        )
        .with_for_update()
    )
)
"""Executions of the session that were not over when this one was created; in a state since then, or not ended."""
_DESCENDANTS = Statement(
    lambda _: select(ancestors.c.execution_id).where(
        ancestors.c.tenant == bindparam("the_tenant"), ancestors.c.ancestor_id == bindparam("the_ancestor_id")
    )
)
_ITS_EXECUTIONS = Statement(
    lambda _: select(executions.c.execution_id).where(
        _OF_TENANT, executions.c.session_id == bindparam("the_session_id")
    )
)
_ERASE_AT_END = Statement(lambda _: update(executions).where(_OF_TENANT, _IS_EXECUTION).values(erase_at_end=1))
_THE_USER: BindParameter[str] = bindparam("the_user_id", type_=TEXT)
_LOCK_SESSION = Statement(
    lambda _: (
        select(sessions.c.session_id)
        .where(_IS_SESSION, or_(_THE_USER.is_(None), sessions.c.user_id == _THE_USER))
        .with_for_update()
    )
)
"""Lock the session, so that no turn begins or ends meanwhile; SQLite has one writer anyway."""
_NUMBERS_OF_TURN = Statement(
    lambda _: select(messages.c.number).where(_IN_SESSION, _OF_TURN).order_by(messages.c.number.desc())
)
_DELETE_TURN = Statement(lambda _: delete(messages).where(_IN_SESSION, _OF_TURN))
_SHIFT_MESSAGES = Statement(
    lambda _: (
        update(messages)
        .where(_IN_SESSION, messages.c.number > bindparam("last"))
        .values(number=bindparam("shrunk_by", type_=BigInteger) - messages.c.number)
    )
)
_RESTORE_NUMBERS = Statement(
    lambda _: update(messages).where(_IN_SESSION, messages.c.number < 0).values(number=-messages.c.number)
)
_SHRINK_SESSION = Statement(
    lambda _: update(sessions).where(_IS_SESSION).values(messages=sessions.c.messages - bindparam("shrunk_by"))
)
_DETAILS = Statement(lambda _: select(sessions.c.details).where(_IS_SESSION).with_for_update())
_SET_DETAILS = Statement(lambda _: update(sessions).where(_IS_SESSION).values(details=bindparam("details")))
_DELETE_MESSAGES = Statement(lambda _: delete(messages).where(_IN_SESSION))
_DELETE_SESSION = Statement(lambda _: delete(sessions).where(_IS_SESSION))
_STORED_HEADER = Statement(
    lambda _: select(commits.c.outcome).where(
        commits.c.execution_id == bindparam("the_execution_id"), commits.c.number == 0
    )
)
_SET_HEADER = Statement(lambda _: update(executions).where(_IS_EXECUTION).values(header=bindparam("header")))
DELETE_COMMITS = Statement(lambda _: delete(commits).where(commits.c.execution_id == bindparam("the_execution_id")))
DELETE_SUSPENSIONS = Statement(
    lambda _: delete(suspensions).where(suspensions.c.execution_id == bindparam("the_execution_id"))
)
DELETE_CANCELS = Statement(lambda _: delete(cancels).where(cancels.c.execution_id == bindparam("the_execution_id")))
_ERASE = (
    DELETE_COMMITS,
    DELETE_SUSPENSIONS,
    Statement(lambda _: delete(grants).where(grants.c.execution_id == bindparam("the_execution_id"))),
    Statement(lambda _: delete(credentials).where(credentials.c.execution_id == bindparam("the_execution_id"))),
    DELETE_CANCELS,
    Statement(lambda _: delete(delayed_starts).where(delayed_starts.c.timer_id == bindparam("the_execution_id"))),
    Statement(
        lambda _: delete(metadata_entries).where(metadata_entries.c.execution_id == bindparam("the_execution_id"))
    ),
    Statement(lambda _: delete(ancestors).where(ancestors.c.execution_id == bindparam("the_execution_id"))),
    Statement(
        lambda _: delete(idempotency_keys).where(idempotency_keys.c.execution_id == bindparam("the_execution_id"))
    ),
    Statement(
        lambda _: delete(webhook_deliveries).where(webhook_deliveries.c.execution_id == bindparam("the_execution_id"))
    ),
    Statement(lambda _: delete(executions).where(_IS_EXECUTION)),
)
"""Deletions from every table with rows of an execution."""
