"""Stored sessions: their messages, the execution that holds the turn, and the client's details."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
from pydantic import JsonValue
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    update,
)

from portico.adapters.stores import codec
from portico.adapters.stores.database import Database, ResultRow, ResultRows, Statement, Transaction, execute
from portico.adapters.stores.history import decode_sized
from portico.adapters.stores.journal.insert_execution import no_such_session
from portico.adapters.stores.schema import TEXT, messages, sessions
from portico.domain.access.principal import AccessScope
from portico.domain.contract.messages import Message, system_prompt
from portico.domain.failures import Code, RequestFailure, StorageFailure
from portico.domain.ids import ExecutionId, SessionId, TenantId
from portico.ports.storage import ResultPage, SessionHistory, StoredSession

TURN_POLL_INTERVAL_S = 1.0
"""Interval at which a waiting execution checks whether the turn of another replica has ended."""
_LIMIT: BindParameter[int] = bindparam("at_most", type_=BigInteger)
_IS_SESSION = and_(sessions.c.tenant == bindparam("the_tenant"), sessions.c.session_id == bindparam("the_session_id"))
_IN_SESSION = and_(messages.c.tenant == bindparam("the_tenant"), messages.c.session_id == bindparam("the_session_id"))


class _StoredHistory(NamedTuple):
    """Number of all messages, the rows of the last ones, and the system messages at the start of the session."""

    number: int
    last: ResultRows
    system_messages: Sequence[Message]


class DatabaseSessions:
    """Implementation of the `SessionStore` port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn_ends: dict[tuple[str, str], anyio.Event] = {}

    async def session(self, scope: AccessScope, session_id: SessionId) -> StoredSession | None:
        found = await self._read(_SESSION, _session_key(scope, session_id))
        return _session(found[0]) if found else None

    async def session_of_turn(self, owner: AccessScope, session_id: SessionId) -> StoredSession | None:
        found = await self._read(_SESSION_OF_TENANT, _session_key(owner, session_id))
        if not found:
            return None
        if not owner.includes(owner.tenant, found[0][-1]):
            raise no_such_session()
        return _session(found[0])

    async def sessions(self, scope: AccessScope, *, after: str | None = None, limit: int) -> ResultPage[StoredSession]:
        before, before_id = _page_start(after)
        owner = {"the_tenant": scope.tenant} | ({} if scope.user is None else {"the_user_id": scope.user})
        values = {**owner, "before": before, "before_id": before_id, "at_most": limit + 1}
        rows = await self._read(_PAGE_OF_TENANT if scope.user is None else _PAGE_OF_USER, values)
        items = [_session(row) for row in rows[:limit]]
        return ResultPage(items, f"{items[-1].updated_at!r}/{items[-1].session_id}" if len(rows) > limit else None)

    async def create(self, owner: AccessScope, session_id: SessionId, now: float) -> None:
        row = {"tenant": owner.tenant, "session_id": session_id, "user_id": owner.user}
        new = {**row, "created_at": now, "updated_at": now}
        await self._database.write(lambda: execute(_CREATE, new), idempotent=True)

    async def update(
        self, scope: AccessScope, session_id: SessionId, changes: Mapping[str, JsonValue]
    ) -> StoredSession | None:
        key = _session_key(scope, session_id)
        found = await self._database.write(lambda: _update_details(key, changes), idempotent=True)
        return _session(found[0]) if found else None

    async def messages(
        self, scope: AccessScope, session_id: SessionId, *, after: int = 0, limit: int
    ) -> Sequence[Message]:
        page = _session_key(scope, session_id) | {"after": after, "at_most": limit}
        rows = await self._read(_MESSAGES_IN_SCOPE, page)
        return await _messages(rows)

    async def authors(
        self, scope: AccessScope, session_id: SessionId, *, after: int = 0, limit: int
    ) -> Sequence[ExecutionId]:
        page = _session_key(scope, session_id) | {"after": after, "at_most": limit}
        return list(dict.fromkeys(ExecutionId(row[0]) for row in await self._read(_AUTHORS_IN_SCOPE, page)))

    async def transcript(
        self, scope: AccessScope, session_id: SessionId, execution_id: ExecutionId
    ) -> tuple[Message, ...]:
        key = _session_key(scope, session_id) | {"the_execution_id": execution_id}
        return tuple(await _messages(await self._read(_TRANSCRIPT, key)))

    async def history(self, scope: AccessScope, session_id: SessionId, *, limit: int) -> SessionHistory:
        return await _decoded_history(
            await self._database.read(lambda: _history(_session_key(scope, session_id), limit))
        )

    async def acquire_turn(
        self,
        scope: AccessScope,
        session_id: SessionId,
        execution_id: ExecutionId,
        *,
        limit: int,
        on_wait: Callable[[], None],
    ) -> SessionHistory:
        key = _session_key(scope, session_id)
        history = await self._history_at_turn(key, execution_id, limit)
        if history is None:
            on_wait()
        while history is None:
            turn_end = self._turn_ends.setdefault((scope.tenant, session_id), anyio.Event())
            history = await self._history_at_turn(key, execution_id, limit)
            if history is None:
                with anyio.move_on_after(TURN_POLL_INTERVAL_S):
                    await turn_end.wait()
        return await _decoded_history(history)

    def release_turn(self, tenant: TenantId, session_id: SessionId) -> None:
        turn_end = self._turn_ends.pop((tenant, session_id), None)
        if turn_end is not None:
            turn_end.set()

    async def _history_at_turn(
        self, key: Mapping[str, Any], execution_id: ExecutionId, limit: int
    ) -> _StoredHistory | None:
        """Return the history, or None while another execution holds the turn or the database does not answer.

        Raises: RequestFailure (REQUEST_NOT_FOUND); StorageFailure (STORAGE_SNAPSHOT_INVALID).
        """
        try:
            holder, history = await self._database.read(lambda: _history_of_holder(key, execution_id, limit))
            if holder is None:
                take = {**key, "holder": execution_id}
                await self._database.write(lambda: execute(_TAKE_TURN, take), idempotent=True)
                _, history = await self._database.read(lambda: _history_of_holder(key, execution_id, limit))
        except StorageFailure as fault:
            if fault.code is Code.STORAGE_SNAPSHOT_INVALID:
                raise
            return None
        return history

    async def _read(self, statement: Statement, values: Mapping[str, Any]) -> ResultRows:
        return await self._database.read(lambda: execute(statement, values))


def _session_key(scope: AccessScope, session_id: SessionId) -> dict[str, Any]:
    return {"the_tenant": scope.tenant, "the_user_id": scope.user, "the_session_id": session_id}


def _page_start(after: str | None) -> tuple[float, str]:
    """Return the position after the previous page: the time of its last session's last message, and its id."""
    at, _, session_id = (after or "inf/").partition("/")
    try:
        return float(at), session_id
    except ValueError:
        raise RequestFailure(Code.REQUEST_INVALID, "after is not a cursor of this service") from None


async def _messages(rows: ResultRows) -> Sequence[Message]:
    return await decode_sized(lambda: codec.decode_messages([row[0] for row in rows]), sum(len(row[0]) for row in rows))


async def _decoded_history(history: _StoredHistory) -> SessionHistory:
    last = await _messages(history.last)
    if history.number > len(last):
        return SessionHistory(history.number, last, history.system_messages)
    return SessionHistory(history.number, last, system_prompt(last))


def _session(row: ResultRow) -> StoredSession:
    session_id, created_at, updated_at, count, details, holder, _ = row
    return StoredSession(session_id, created_at, updated_at, count, _details(details), busy=holder is not None)


def _details(stored: bytes | None) -> dict[str, JsonValue]:
    """Return the stored details. Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID)."""
    details = {} if stored is None else codec.decode_value(stored)
    if not isinstance(details, dict):
        raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored session cannot be read by this version")
    return details


def _update_details(key: Mapping[str, Any], changes: Mapping[str, JsonValue]) -> Transaction[ResultRows]:
    found = yield from execute(_LOCK, key)
    if not found:
        return found
    changed = {**_details(found[0][0]), **changes}
    details: JsonValue = {name: value for name, value in changed.items() if value is not None}
    return (yield from execute(_SET_DETAILS, {**key, "details": codec.encode_value(details)}))


def _history(key: Mapping[str, Any], limit: int) -> Transaction[_StoredHistory]:
    """Return the history of a session; that of an unknown session is empty."""
    found = yield from execute(_SESSION, key)
    if not found:
        return _StoredHistory(0, (), ())
    number = found[0][3]
    last = yield from execute(_LAST_MESSAGES, {**key, "at_most": limit})
    return _StoredHistory(number, last[::-1], () if number == len(last) else (yield from _system_messages(key)))


def _system_messages(key: Mapping[str, Any]) -> Transaction[tuple[Message, ...]]:
    """Return the system messages at the start of the session; most sessions have one, or none."""
    system_messages: tuple[Message, ...] = ()
    while True:
        rows = yield from execute(_MESSAGES, {**key, "after": len(system_messages), "at_most": 1})
        read = codec.decode_messages([row[0] for row in rows])
        if not read or read[0].role != "system":
            return system_messages
        system_messages += tuple(read)


def _history_of_holder(
    key: Mapping[str, Any], execution_id: ExecutionId, limit: int
) -> Transaction[tuple[str | None, _StoredHistory | None]]:
    """Return the holder of the turn, and the history if that execution holds it.

    Raises: RequestFailure (REQUEST_NOT_FOUND).
    """
    found = yield from execute(_HOLDER, key)
    if not found:
        raise RequestFailure(Code.REQUEST_NOT_FOUND, "the session was deleted", condition="path")
    holder: str | None = found[0][0]
    if holder != execution_id:
        return holder, None
    return holder, (yield from _history(key, limit))


_COLUMNS = (
    sessions.c.session_id,
    sessions.c.created_at,
    sessions.c.updated_at,
    sessions.c.messages,
    sessions.c.details,
    sessions.c.holder,
    sessions.c.user_id,
)
_THE_USER: BindParameter[str] = bindparam("the_user_id", type_=TEXT)
_IN_SCOPE = or_(_THE_USER.is_(None), sessions.c.user_id == _THE_USER)
"""The user of the scope; None matches all users of the tenant."""
_SESSION = Statement(lambda _: select(*_COLUMNS).where(_IS_SESSION, _IN_SCOPE))
_SESSION_OF_TENANT = Statement(lambda _: select(*_COLUMNS).where(_IS_SESSION))
_LOCK = Statement(lambda _: select(sessions.c.details).where(_IS_SESSION, _IN_SCOPE).with_for_update())
"""Lock the session, so that no turn begins or ends meanwhile; SQLite has one writer anyway."""
_CREATE = Statement(
    lambda insert: (
        insert(sessions)
        .values({name: bindparam(name) for name in ("tenant", "session_id", "user_id", "created_at", "updated_at")})
        .values(messages=0)
        .on_conflict_do_nothing(index_elements=["tenant", "session_id"])
    )
)
_HOLDER = Statement(lambda _: select(sessions.c.holder).where(_IS_SESSION, _IN_SCOPE))
_TAKE_TURN = Statement(
    lambda _: (
        update(sessions).where(_IS_SESSION, _IN_SCOPE, sessions.c.holder.is_(None)).values(holder=bindparam("holder"))
    )
)
"""Take a turn without a holder: because of clock skew the waiting execution is older than the previous holder."""


def _page(*owner: ColumnElement[bool]) -> Select[Any]:
    """Select a page of the sessions of that owner."""
    return (
        select(*_COLUMNS)
        .where(
            *owner,
            or_(
                sessions.c.updated_at < bindparam("before"),
                and_(sessions.c.updated_at == bindparam("before"), sessions.c.session_id < bindparam("before_id")),
            ),
        )
        .order_by(sessions.c.updated_at.desc(), sessions.c.session_id.desc())
        .limit(_LIMIT)
    )


_OF_TENANT = sessions.c.tenant == bindparam("the_tenant")
_PAGE_OF_TENANT = Statement(lambda _: _page(_OF_TENANT))
_PAGE_OF_USER = Statement(lambda _: _page(_OF_TENANT, sessions.c.user_id == _THE_USER))
_SET_DETAILS = Statement(
    lambda _: update(sessions).where(_IS_SESSION).values(details=bindparam("details")).returning(*_COLUMNS)
)
_MESSAGES = Statement(
    lambda _: (
        select(messages.c.message)
        .where(_IN_SESSION, messages.c.number > bindparam("after"))
        .order_by(messages.c.number)
        .limit(_LIMIT)
    )
)
_OF_SESSION_IN_SCOPE = exists().where(_IS_SESSION, _IN_SCOPE)
_MESSAGES_IN_SCOPE = Statement(lambda _: _message_page(messages.c.message))
_AUTHORS_IN_SCOPE = Statement(lambda _: _message_page(messages.c.execution_id))


def _message_page(column: Column[Any]) -> Select[Any]:
    """Select a column of a page of messages, the oldest first."""
    return (
        select(column)
        .where(_IN_SESSION, _OF_SESSION_IN_SCOPE, messages.c.number > bindparam("after"))
        .order_by(messages.c.number)
        .limit(_LIMIT)
    )


_LAST_OF_EXECUTION = (
    select(func.max(messages.c.number))
    .where(_IN_SESSION, messages.c.execution_id == bindparam("the_execution_id"))
    .scalar_subquery()
)
_TRANSCRIPT = Statement(
    lambda _: (
        select(messages.c.message)
        .where(_IN_SESSION, _OF_SESSION_IN_SCOPE, messages.c.number <= _LAST_OF_EXECUTION)
        .order_by(messages.c.number)
    )
)
_LAST_MESSAGES = Statement(
    lambda _: select(messages.c.message).where(_IN_SESSION).order_by(messages.c.number.desc()).limit(_LIMIT)
)
