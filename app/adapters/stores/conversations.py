"""Sessions as the store keeps them: their messages, what the client keeps with them, their end."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from sqlalchemy import BigInteger, BindParameter, Select, and_, bindparam, delete, or_, select, update

from app.adapters.stores import codec
from app.adapters.stores.database import Cells, Database, Rows, Statement, Transaction, ask, ask_each
from app.adapters.stores.queries import FORGET_COMMITS, FORGET_SUSPENSIONS
from app.adapters.stores.records import decoded
from app.adapters.stores.schema import executions, idempotency_keys, messages, sessions
from app.domain.failures import Code, RequestFailure
from app.domain.messages import Message
from app.keeping import Page, Session

_AT_MOST: BindParameter[int] = bindparam("at_most", type_=BigInteger)
_THIS = and_(sessions.c.tenant == bindparam("the_tenant"), sessions.c.session_id == bindparam("the_session_id"))
_ITS_MESSAGES = and_(messages.c.tenant == bindparam("the_tenant"), messages.c.session_id == bindparam("the_session_id"))


class DatabaseConversations:
    """Implements `keeping.Conversations`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def session(self, tenant: str, session_id: str) -> Session | None:
        found = await self._read(_FOUND, _named(tenant, session_id))
        return _session(found[0]) if found else None

    async def sessions(self, tenant: str, *, after: str | None = None, limit: int) -> Page[Session]:
        before, behind = _place(after)
        values = {"the_tenant": tenant, "before": before, "behind": behind, "at_most": limit + 1}
        rows = await self._read(_LISTED, values)
        items = [_session(row) for row in rows[:limit]]
        return Page(items, f"{items[-1].updated_at!r}/{items[-1].session_id}" if len(rows) > limit else None)

    async def describe(self, tenant: str, session_id: str, details: JsonValue) -> Session | None:
        values = _named(tenant, session_id) | {"details": codec.encode_value(details)}
        found = await self._database.write(lambda: ask(_DESCRIBE, values), recognisable=True)
        return _session(found[0]) if found else None

    async def messages(self, tenant: str, session_id: str, *, after: int = 0, limit: int) -> Sequence[Message]:
        rows = await self._read(_MESSAGES, _named(tenant, session_id) | {"after": after, "at_most": limit})
        return await _messages(rows)

    async def last_messages(self, tenant: str, session_id: str, limit: int) -> Sequence[Message]:
        rows = await self._read(_LAST_MESSAGES, _named(tenant, session_id) | {"at_most": limit})
        return await _messages(rows[::-1])

    async def delete(self, tenant: str, session_id: str) -> bool:
        return await self._database.write(lambda: _delete(tenant, session_id), recognisable=True)

    async def _read(self, statement: Statement, values: Mapping[str, Any]) -> Rows:
        return await self._database.read(lambda: ask(statement, values))


def _named(tenant: str, session_id: str) -> dict[str, Any]:
    return {"the_tenant": tenant, "the_session_id": session_id}


def _place(after: str | None) -> tuple[float, str]:
    """Where the page before ended: when its last session was spoken in, and its id."""
    at, _, session_id = (after or "inf/").partition("/")
    try:
        return float(at), session_id
    except ValueError:
        raise RequestFailure(Code.REQUEST_INVALID, "after is none of ours") from None


async def _messages(rows: Rows) -> Sequence[Message]:
    return await decoded(lambda: [codec.decode_message(row[0]) for row in rows], sum(len(row[0]) for row in rows))


def _session(row: Cells) -> Session:
    session_id, created_at, updated_at, count, details, holder = row
    kept = None if details is None else codec.decode_value(details)
    return Session(session_id, created_at, updated_at, count, kept, busy=holder is not None)


def _delete(tenant: str, session_id: str) -> Transaction[bool]:
    named = _named(tenant, session_id)
    found = yield from ask(_EXECUTIONS, named)
    its = [{"the_tenant": tenant, "the_execution_id": execution_id} for (execution_id,) in found]
    yield from ask_each(FORGET_COMMITS, its)
    yield from ask_each(FORGET_SUSPENSIONS, its)
    yield from ask(_FORGET_KEYS, named)
    yield from ask_each(_FORGET_EXECUTIONS, its)
    yield from ask(_FORGET_MESSAGES, named)
    return bool((yield from ask(_FORGET_SESSION, named)))


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
