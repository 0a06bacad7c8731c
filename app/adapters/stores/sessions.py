"""Stored sessions: their messages, the execution that holds the turn, and the client's details."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
from pydantic import JsonValue
from sqlalchemy import BigInteger, BindParameter, Select, and_, bindparam, func, or_, select, update

from app.adapters.stores import codec
from app.adapters.stores.database import Database, ResultRow, ResultRows, Statement, Transaction, execute
from app.adapters.stores.history import decode_sized
from app.adapters.stores.schema import messages, sessions
from app.domain.contract.messages import Message, system_prompt
from app.domain.failures import Code, RequestFailure, StorageFailure
from app.domain.ids import ExecutionId, SessionId, TenantId
from app.ports.storage import ResultPage, SessionHistory, StoredSession

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

    async def session(self, tenant: TenantId, session_id: SessionId) -> StoredSession | None:
        found = await self._read(_SESSION, _session_key(tenant, session_id))
        return _session(found[0]) if found else None

    async def sessions(self, tenant: TenantId, *, after: str | None = None, limit: int) -> ResultPage[StoredSession]:
        before, before_id = _page_start(after)
        values = {"the_tenant": tenant, "before": before, "before_id": before_id, "at_most": limit + 1}
        rows = await self._read(_PAGE, values)
        items = [_session(row) for row in rows[:limit]]
        return ResultPage(items, f"{items[-1].updated_at!r}/{items[-1].session_id}" if len(rows) > limit else None)

    async def update(
        self, tenant: TenantId, session_id: SessionId, changes: Mapping[str, JsonValue]
    ) -> StoredSession | None:
        key = _session_key(tenant, session_id)
        found = await self._database.write(lambda: _update_details(key, changes), idempotent=True)
        return _session(found[0]) if found else None

    async def messages(
        self, tenant: TenantId, session_id: SessionId, *, after: int = 0, limit: int
    ) -> Sequence[Message]:
        rows = await self._read(_MESSAGES, _session_key(tenant, session_id) | {"after": after, "at_most": limit})
        return await _messages(rows)

    async def transcript(
        self, tenant: TenantId, session_id: SessionId, execution_id: ExecutionId
    ) -> tuple[Message, ...]:
        key = _session_key(tenant, session_id) | {"the_execution_id": execution_id}
        return tuple(await _messages(await self._read(_TRANSCRIPT, key)))

    async def history(self, tenant: TenantId, session_id: SessionId, *, limit: int) -> SessionHistory:
        return await _decoded_history(
            await self._database.read(lambda: _history(_session_key(tenant, session_id), limit))
        )

    async def acquire_turn(
        self,
        tenant: TenantId,
        session_id: SessionId,
        execution_id: ExecutionId,
        *,
        limit: int,
        on_wait: Callable[[], None],
    ) -> SessionHistory:
        key = _session_key(tenant, session_id)
        history = await self._history_at_turn(key, execution_id, limit)
        if history is None:
            on_wait()
        while history is None:
            turn_end = self._turn_ends.setdefault((tenant, session_id), anyio.Event())
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


def _session_key(tenant: TenantId, session_id: SessionId) -> dict[str, Any]:
    return {"the_tenant": tenant, "the_session_id": session_id}


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
    session_id, created_at, updated_at, count, details, holder = row
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


def _columns() -> Select[Any]:
    return select(
        sessions.c.session_id,
        sessions.c.created_at,
        sessions.c.updated_at,
        sessions.c.messages,
        sessions.c.details,
        sessions.c.holder,
    )


_SESSION = Statement(lambda _: _columns().where(_IS_SESSION))
_LOCK = Statement(lambda _: select(sessions.c.details).where(_IS_SESSION).with_for_update())
"""Lock the session, so that no turn begins or ends meanwhile; SQLite has one writer anyway."""
_HOLDER = Statement(lambda _: select(sessions.c.holder).where(_IS_SESSION))
_TAKE_TURN = Statement(
    lambda _: update(sessions).where(_IS_SESSION, sessions.c.holder.is_(None)).values(holder=bindparam("holder"))
)
"""Take a turn without a holder: because of clock skew the waiting execution is older than the previous holder."""
_PAGE = Statement(
    lambda _: (
        _columns()
        .where(
            sessions.c.tenant == bindparam("the_tenant"),
            or_(
                sessions.c.updated_at < bindparam("before"),
                and_(sessions.c.updated_at == bindparam("before"), sessions.c.session_id < bindparam("before_id")),
            ),
        )
        .order_by(sessions.c.updated_at.desc(), sessions.c.session_id.desc())
        .limit(_LIMIT)
    )
)
_SET_DETAILS = Statement(
    lambda _: (
        update(sessions)
        .where(_IS_SESSION)
        .values(details=bindparam("details"))
        .returning(
            sessions.c.session_id,
            sessions.c.created_at,
            sessions.c.updated_at,
            sessions.c.messages,
            sessions.c.details,
            sessions.c.holder,
        )
    )
)
_MESSAGES = Statement(
    lambda _: (
        select(messages.c.message)
        .where(_IN_SESSION, messages.c.number > bindparam("after"))
        .order_by(messages.c.number)
        .limit(_LIMIT)
    )
)
_LAST_OF_EXECUTION = (
    select(func.max(messages.c.number))
    .where(_IN_SESSION, messages.c.execution_id == bindparam("the_execution_id"))
    .scalar_subquery()
)
_TRANSCRIPT = Statement(
    lambda _: (
        select(messages.c.message)
        .where(_IN_SESSION, messages.c.number <= _LAST_OF_EXECUTION)
        .order_by(messages.c.number)
    )
)
_LAST_MESSAGES = Statement(
    lambda _: select(messages.c.message).where(_IN_SESSION).order_by(messages.c.number.desc()).limit(_LIMIT)
)
