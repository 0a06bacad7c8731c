"""Stored grants: leave that persons gave for later calls of tools."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Double, and_, bindparam, delete, insert, or_, select, update

from portico.adapters.stores.database import Database, ResultRow, Statement, Transaction, execute, execute_each
from portico.adapters.stores.schema import TEXT, grants
from portico.domain.access.principal import AccessScope
from portico.domain.ids import GrantId
from portico.ports.grants import MAX_USES, Grant, GrantedCall


class DatabaseGrants:
    """Implementation of the `GrantStore` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def use(self, call: GrantedCall, now: float) -> Grant | None:
        values = {f"the_{name}": each for name, each in asdict(call).items()} | {
            "the_agent": call.agent or "",
            "now": now,
        }
        rows = await self._database.write(lambda: execute(_USE, values))
        return _grant(rows[0]) if rows else None

    async def grants(self, scope: AccessScope, now: float) -> Sequence[Grant]:
        rows = await self._database.read(lambda: execute(_VALID, _of(scope, now)))
        return [_grant(row) for row in rows]

    async def revoke(self, scope: AccessScope, grant_id: GrantId, now: float) -> bool:
        which = {**_of(scope, now), "the_grant_id": grant_id}
        return bool(await self._database.write(lambda: execute(_REVOKE, which)))


def insert_grants(given: Iterable[Grant], now: float) -> Transaction[None]:
    """Store grants, and delete those of their tenants that have expired."""
    for each in given:
        yield from execute(_DELETE_EXPIRED, {"the_tenant": each.tenant, "now": now})
        row = asdict(each) | {
            "user_id": each.user,
            "agent": each.agent or "",
            "arguments_digest": each.arguments_digest or "",
        }
        yield from execute_each(_INSERT, [{column.name: row[column.name] for column in grants.c}])


def _of(scope: AccessScope, now: float) -> Mapping[str, Any]:
    return {"the_tenant": scope.tenant, "the_user": scope.user, "now": now}


def _grant(row: ResultRow) -> Grant:
    named = dict(zip([column.name for column in grants.c], row, strict=True))
    named["user"] = named.pop("user_id")
    return Grant(**named | {name: named[name] or None for name in ("agent", "arguments_digest")})


_IS_VALID = and_(grants.c.expires_at > bindparam("now", type_=Double), grants.c.uses < MAX_USES)
_IN_SCOPE = and_(
    grants.c.tenant == bindparam("the_tenant"),
    or_(bindparam("the_user", type_=TEXT).is_(None), grants.c.user_id == bindparam("the_user", type_=TEXT)),
)
_COVERS = and_(
    grants.c.tenant == bindparam("the_tenant"),
    grants.c.user_id == bindparam("the_user"),
    grants.c.tool == bindparam("the_tool"),
    grants.c.tool_digest == bindparam("the_tool_digest"),
    grants.c.agent == bindparam("the_agent"),
    or_(
        and_(grants.c.scope == "execution", grants.c.execution_id == bindparam("the_execution_id")),
        and_(grants.c.scope == "session", grants.c.session_id == bindparam("the_session_id", type_=TEXT)),
    ),
    grants.c.arguments_digest.in_(["", bindparam("the_arguments_digest", type_=TEXT)]),
)
_USE = Statement(
    lambda _: (
        update(grants)
        .where(
            _IS_VALID,
            grants.c.grant_id
            == select(grants.c.grant_id)
            .where(_COVERS, _IS_VALID)
            .order_by(grants.c.granted_at, grants.c.grant_id)
            .limit(1)
            .scalar_subquery(),
        )
        .values(uses=grants.c.uses + 1)
        .returning(*grants.c)
    )
)
_VALID = Statement(
    lambda _: select(*grants.c).where(_IN_SCOPE, _IS_VALID).order_by(grants.c.granted_at, grants.c.grant_id)
)
_REVOKE = Statement(
    lambda _: (
        delete(grants)
        .where(_IN_SCOPE, _IS_VALID, grants.c.grant_id == bindparam("the_grant_id"))
        .returning(grants.c.grant_id)
    )
)
_INSERT = Statement(lambda _: insert(grants).values({column.name: bindparam(column.name) for column in grants.c}))
_DELETE_EXPIRED = Statement(
    lambda _: delete(grants).where(grants.c.tenant == bindparam("the_tenant"), grants.c.expires_at <= bindparam("now"))
)
