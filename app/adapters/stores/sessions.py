"""Sessions as the store keeps them: their messages, whose turn it is, what the client keeps with them, their end."""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import anyio
from pydantic import JsonValue
from sqlalchemy import BigInteger, BindParameter, Select, and_, bindparam, delete, or_, select, update

from app.adapters.stores import codec
from app.adapters.stores.database import Database, ResultRow, ResultRows, Statement, Transaction, execute, execute_each
from app.adapters.stores.executions.queries import DELETE_CANCELS, DELETE_COMMITS, DELETE_SUSPENSIONS
from app.adapters.stores.history import decode_sized
from app.adapters.stores.schema import executions, idempotency_keys, messages, sessions
from app.domain.contract.messages import Message
from app.domain.failures import Code, RequestFailure, StorageFailure
from app.domain.ids import ExecutionId, SessionId, TenantId
from app.ports.storage import Page, SessionHistory, StoredSession

TURN_POLL_INTERVAL_S = 1.0
"""How often who waits for a turn looks whether one that runs elsewhere has ended."""
_AT_MOST: BindParameter[int] = bindparam("at_most", type_=BigInteger)
_THIS = and_(sessions.c.tenant == bindparam("the_tenant"), sessions.c.session_id == bindparam("the_session_id"))
_ITS_MESSAGES = and_(messages.c.tenant == bindparam("the_tenant"), messages.c.session_id == bindparam("the_session_id"))


class _Said(NamedTuple):
    """How many messages there are in all, the rows of the last of them, and what comes before these and is known."""

    number: int
    last: ResultRows
    prompt: Sequence[Message]


class DatabaseSessions:
    """Implements `keeping.Conversations`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._over: dict[tuple[str, str], anyio.Event] = {}

    async def session(self, tenant: TenantId, session_id: SessionId) -> StoredSession | None:
        found = await self._read(_FOUND, _named(tenant, session_id))
        return _session(found[0]) if found else None

    async def sessions(self, tenant: TenantId, *, after: str | None = None, limit: int) -> Page[StoredSession]:
        before, behind = _place(after)
        values = {"the_tenant": tenant, "before": before, "behind": behind, "at_most": limit + 1}
        rows = await self._read(_LISTED, values)
        items = [_session(row) for row in rows[:limit]]
        return Page(items, f"{items[-1].updated_at!r}/{items[-1].session_id}" if len(rows) > limit else None)

    async def update(
        self, tenant: TenantId, session_id: SessionId, changes: Mapping[str, JsonValue]
    ) -> StoredSession | None:
        named = _named(tenant, session_id)
        found = await self._database.write(lambda: _describe(named, changes), idempotent=True)
        return _session(found[0]) if found else None

    async def messages(
        self, tenant: TenantId, session_id: SessionId, *, after: int = 0, limit: int
    ) -> Sequence[Message]:
        rows = await self._read(_MESSAGES, _named(tenant, session_id) | {"after": after, "at_most": limit})
        return await _messages(rows)

    async def history(self, tenant: TenantId, session_id: SessionId, *, limit: int) -> SessionHistory:
        return await _past(await self._database.read(lambda: _said(_named(tenant, session_id), limit)))

    async def acquire_turn(
        self,
        tenant: TenantId,
        session_id: SessionId,
        execution_id: ExecutionId,
        *,
        limit: int,
        on_wait: Callable[[], None],
    ) -> SessionHistory:
        named = _named(tenant, session_id)
        said = await self._at_turn(named, execution_id, limit)
        if said is None:
            on_wait()
        while said is None:
            over = self._over.setdefault((tenant, session_id), anyio.Event())
            said = await self._at_turn(named, execution_id, limit)
            if said is None:
                with anyio.move_on_after(TURN_POLL_INTERVAL_S):
                    await over.wait()
        return await _past(said)

    def release_turn(self, tenant: TenantId, session_id: SessionId) -> None:
        over = self._over.pop((tenant, session_id), None)
        if over is not None:
            over.set()

    async def delete(self, tenant: TenantId, session_id: SessionId) -> bool:
        return await self._database.write(lambda: _delete(tenant, session_id), idempotent=True)

    async def _at_turn(self, named: Mapping[str, Any], execution_id: ExecutionId, limit: int) -> _Said | None:
        """None while it is another's turn. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
        holder, said = await self._database.read(lambda: _when_holding(named, execution_id, limit))
        if holder is None:
            await self._database.write(lambda: execute(_TAKE, {**named, "holder": execution_id}), idempotent=True)
            _, said = await self._database.read(lambda: _when_holding(named, execution_id, limit))
        return said

    async def _read(self, statement: Statement, values: Mapping[str, Any]) -> ResultRows:
        return await self._database.read(lambda: execute(statement, values))


def _named(tenant: TenantId, session_id: SessionId) -> dict[str, Any]:
    return {"the_tenant": tenant, "the_session_id": session_id}


def _place(after: str | None) -> tuple[float, str]:
    """Where the page before ended: when its last session was spoken in, and its id."""
    at, _, session_id = (after or "inf/").partition("/")
    try:
        return float(at), session_id
    except ValueError:
        raise RequestFailure(Code.REQUEST_INVALID, "after is none of ours") from None


async def _messages(rows: ResultRows) -> Sequence[Message]:
    return await decode_sized(lambda: codec.decode_messages([row[0] for row in rows]), sum(len(row[0]) for row in rows))


async def _past(said: _Said) -> SessionHistory:
    last = await _messages(said.last)
    if said.number > len(last):
        return SessionHistory(said.number, last, said.prompt)
    return SessionHistory(said.number, last, tuple(takewhile(lambda message: message.role == "system", last)))


def _session(row: ResultRow) -> StoredSession:
    session_id, created_at, updated_at, count, details, holder = row
    return StoredSession(session_id, created_at, updated_at, count, _details(details), busy=holder is not None)


def _details(stored: bytes | None) -> dict[str, JsonValue]:
    """Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) where they are none."""
    kept = {} if stored is None else codec.decode_value(stored)
    if not isinstance(kept, dict):
        raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored session cannot be read by this version")
    return kept


def _describe(named: Mapping[str, Any], changes: Mapping[str, JsonValue]) -> Transaction[ResultRows]:
    found = yield from execute(_LOCK, named)
    if not found:
        return found
    changed = {**_details(found[0][0]), **changes}
    details: JsonValue = {key: value for key, value in changed.items() if value is not None}
    return (yield from execute(_DESCRIBE, {**named, "details": codec.encode_value(details)}))


def _said(named: Mapping[str, Any], limit: int) -> Transaction[_Said]:
    """What was said in a session; nothing in one that is not there."""
    found = yield from execute(_FOUND, named)
    if not found:
        return _Said(0, (), ())
    number = found[0][3]
    last = yield from execute(_LAST_MESSAGES, {**named, "at_most": limit})
    return _Said(number, last[::-1], () if number == len(last) else (yield from _prompt(named)))


def _prompt(named: Mapping[str, Any]) -> Transaction[tuple[Message, ...]]:
    """The system messages that it begins with; most have one, or none."""
    prompt: tuple[Message, ...] = ()
    while True:
        rows = yield from execute(_MESSAGES, {**named, "after": len(prompt), "at_most": 1})
        read = codec.decode_messages([row[0] for row in rows])
        if not read or read[0].role != "system":
            return prompt
        prompt += tuple(read)


def _when_holding(
    named: Mapping[str, Any], execution_id: ExecutionId, limit: int
) -> Transaction[tuple[str | None, _Said | None]]:
    """Whose turn it is, and what was said when it is that execution's. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
    found = yield from execute(_HOLDER, named)
    if not found:
        raise RequestFailure(Code.REQUEST_NOT_FOUND, "the session was deleted", condition="path")
    holder: str | None = found[0][0]
    if holder != execution_id:
        return holder, None
    return holder, (yield from _said(named, limit))


def _delete(tenant: TenantId, session_id: SessionId) -> Transaction[bool]:
    named = _named(tenant, session_id)
    yield from execute(_LOCK, named)
    found = yield from execute(_EXECUTIONS, named)
    its = [{"the_tenant": tenant, "the_execution_id": execution_id} for (execution_id,) in found]
    yield from execute_each(DELETE_COMMITS, its)
    yield from execute_each(DELETE_SUSPENSIONS, its)
    yield from execute_each(DELETE_CANCELS, its)
    yield from execute(_FORGET_KEYS, named)
    yield from execute_each(_FORGET_EXECUTIONS, its)
    yield from execute(_FORGET_MESSAGES, named)
    return bool((yield from execute(_FORGET_SESSION, named)))


def _columns() -> Select[Any]:
    return select(
        sessions.c.session_id,
        sessions.c.created_at,
        sessions.c.updated_at,
        sessions.c.messages,
        sessions.c.details,
        sessions.c.holder,
    )


_FOUND = Statement(lambda _: _columns().where(_THIS))
_LOCK = Statement(lambda _: select(sessions.c.details).where(_THIS).with_for_update())
"""So that no turn begins or ends meanwhile; SQLite has one writer anyway."""
_HOLDER = Statement(lambda _: select(sessions.c.holder).where(_THIS))
_TAKE = Statement(
    lambda _: update(sessions).where(_THIS, sessions.c.holder.is_(None)).values(holder=bindparam("holder"))
)
"""A turn that was handed on to nobody: by the clock of another replica who waits came before whoever had it."""
_LISTED = Statement(
    lambda _: (
        _columns()
        .where(
            sessions.c.tenant == bindparam("the_tenant"),
            or_(
                sessions.c.updated_at < bindparam("before"),
                and_(sessions.c.updated_at == bindparam("before"), sessions.c.session_id < bindparam("behind")),
            ),
        )
        .order_by(sessions.c.updated_at.desc(), sessions.c.session_id.desc())
        .limit(_AT_MOST)
    )
)
_DESCRIBE = Statement(
    lambda _: (
        update(sessions)
        .where(_THIS)
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
        .where(_ITS_MESSAGES, messages.c.number > bindparam("after"))
        .order_by(messages.c.number)
        .limit(_AT_MOST)
    )
)
_LAST_MESSAGES = Statement(
    lambda _: select(messages.c.message).where(_ITS_MESSAGES).order_by(messages.c.number.desc()).limit(_AT_MOST)
)
_ITS_EXECUTIONS = select(executions.c.execution_id).where(
    executions.c.tenant == bindparam("the_tenant"), executions.c.session_id == bindparam("the_session_id")
)
_EXECUTIONS = Statement(lambda _: _ITS_EXECUTIONS)
_FORGET_KEYS = Statement(
    lambda _: delete(idempotency_keys).where(
        idempotency_keys.c.tenant == bindparam("the_tenant"),
        idempotency_keys.c.execution_id.in_(_ITS_EXECUTIONS),
    )
)
_FORGET_EXECUTIONS = Statement(
    lambda _: delete(executions).where(
        executions.c.tenant == bindparam("the_tenant"), executions.c.execution_id == bindparam("the_execution_id")
    )
)
_FORGET_MESSAGES = Statement(lambda _: delete(messages).where(_ITS_MESSAGES))
_FORGET_SESSION = Statement(lambda _: delete(sessions).where(_THIS).returning(sessions.c.session_id))
