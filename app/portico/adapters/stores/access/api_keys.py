"""Stored API keys, of which only a hash is stored."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Double,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)

from portico.adapters.stores.database import (
    Database,
    ResultRow,
    ResultRows,
    Statement,
    Transaction,
    count_inserted,
    execute,
    execute_each,
)
from portico.adapters.stores.outbox import disable_webhooks, webhooks_of
from portico.adapters.stores.schema import IS_LIVE, TEXT, api_keys, cancels, executions
from portico.domain.access.limits import MILLIONTHS, AccessLimits, format_rate, parse_rate
from portico.domain.access.principal import AccessScope, Permissions
from portico.domain.ids import KeyId, TenantId
from portico.ports.access import StoredKey
from portico.ports.storage import ResultPage


class DatabaseKeys:
    """Implementation of the `KeyStore` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: StoredKey) -> bool:
        """Store the key. It fails if the connection breaks during COMMIT: a second try would find the id taken."""
        return await self._database.write(lambda: count_inserted(_ADD, [_row(key)])) == 1

    async def find(self, key_ids: Iterable[KeyId]) -> Sequence[StoredKey]:
        wanted = [{"the_key_id": key_id} for key_id in key_ids]
        return list(map(_stored_key, await self._database.read(lambda: execute_each(_FIND, wanted))))

    async def all(self, tenant: TenantId | None = None) -> Sequence[StoredKey]:
        def read() -> Transaction[ResultRows]:
            return execute(_ALL, {}) if tenant is None else execute(_OF_TENANT, {"the_tenant": tenant})

        return list(map(_stored_key, await self._database.read(read)))

    async def page(self, scope: AccessScope, *, after: str | None = None, limit: int) -> ResultPage[StoredKey]:
        before, _, before_id = (after or "inf/").partition("/")
        values = {"the_tenant": scope.tenant, "the_user": scope.user, "before": float(before), "before_id": before_id}
        rows = await self._database.read(lambda: execute(_PAGE, {**values, "at_most": limit + 1}))
        found = list(map(_stored_key, rows[:limit]))
        return ResultPage(found, f"{found[-1].created_at!r}/{found[-1].key_id}" if len(rows) > limit else None)

    async def revoke(self, key_id: KeyId, at: float) -> StoredKey | None:
        rows = await self._database.write(lambda: _revoke(key_id, at), idempotent=True)
        return _stored_key(rows[0]) if rows else None

    async def cancel_executions(self, key_id: KeyId, at: float) -> int:
        return await self._database.write(lambda: _cancel_executions(key_id, at), idempotent=True)

    async def webhooks_of(self, key_id: KeyId) -> Sequence[str]:
        return [name for _, name in await self._database.read(lambda: webhooks_of(key_id))]

    async def disable_webhooks(self, key_id: KeyId, at: float) -> None:
        await self._database.write(lambda: disable_webhooks(key_id, at), idempotent=True)

    async def mark_used(self, uses: Mapping[KeyId, float], *, interval: float) -> None:
        values = [{"the_key_id": key_id, "at": at, "before": at - interval} for key_id, at in uses.items()]
        await self._database.write(_marking(values), idempotent=True)


def _marking(values: Sequence[Mapping[str, Any]]) -> Callable[[], Transaction[ResultRows]]:
    return lambda: execute_each(_MARK_USED, values)


def _revoke(key_id: KeyId, at: float) -> Transaction[ResultRows]:
    yield from execute(_REVOKE, {"the_key_id": key_id, "at": at})
    return (yield from execute(_FIND, {"the_key_id": key_id}))


def _cancel_executions(key_id: KeyId, at: float) -> Transaction[int]:
    running = yield from execute(_COUNT_RUNNING, {"the_key_id": key_id})
    yield from execute(_CANCEL_RUNNING, {"the_key_id": key_id, "at": at})
    count: int = running[0][0]
    return count


def _row(key: StoredKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "tenant": key.tenant,
        "user_id": key.user,
        "secret_hash": key.secret_hash,
        "permissions": orjson.dumps(key.permissions.names),
        "limits": orjson.dumps(_limits_json(key.limits)),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
        "created_by": key.created_by,
        "channel": key.channel,
    }


def _stored_key(row: ResultRow) -> StoredKey:
    key_id, tenant, user, secret_hash, permissions, limits, *times, created_by, channel = row
    created_at, expires_at, revoked_at, last_used_at = times
    return StoredKey(
        key_id=key_id,
        secret_hash=secret_hash,
        tenant=tenant,
        user=user,
        permissions=Permissions.of(orjson.loads(permissions)),
        created_at=created_at,
        limits=_limits(orjson.loads(limits)),
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=last_used_at,
        created_by=created_by,
        channel=channel,
    )


def _limits_json(limits: AccessLimits) -> dict[str, Any]:
    rates = {
        "requests": None if limits.requests is None else format_rate(limits.requests),
        "tokens": None if limits.tokens is None else format_rate(limits.tokens),
        "cost": None if limits.cost is None else format_rate(limits.cost, units=MILLIONTHS),
        "concurrency": limits.concurrency,
    }
    return {name: value for name, value in rates.items() if value is not None}


def _limits(given: Mapping[str, Any]) -> AccessLimits:
    return AccessLimits(
        requests=parse_rate(given["requests"]) if "requests" in given else None,
        tokens=parse_rate(given["tokens"]) if "tokens" in given else None,
        cost=parse_rate(given["cost"], units=MILLIONTHS) if "cost" in given else None,
        concurrency=given.get("concurrency"),
    )


_RUNS_UNDER_KEY = and_(
    executions.c.key_id == bindparam("the_key_id"), text(IS_LIVE), executions.c.state != literal_column("'SUSPENDED'")
)
_COUNT_RUNNING = Statement(lambda _: select(func.count()).select_from(executions).where(_RUNS_UNDER_KEY))
_CANCEL_RUNNING = Statement(
    lambda insert: (
        insert(cancels)
        .from_select(
            ["execution_id", "tenant", "asked_at"],
            select(executions.c.execution_id, executions.c.tenant, bindparam("at", type_=Double)).where(
                _RUNS_UNDER_KEY
            ),
        )
        .on_conflict_do_nothing(index_elements=["execution_id"])
    )
)
_ORDER = (api_keys.c.created_at, api_keys.c.key_id)
_ADD = Statement(
    lambda insert: (
        insert(api_keys)
        .values({column.name: bindparam(column.name) for column in api_keys.c})
        .on_conflict_do_nothing(index_elements=["key_id"])
    )
)
_FIND = Statement(lambda _: select(*api_keys.c).where(api_keys.c.key_id == bindparam("the_key_id")))
_ALL = Statement(lambda _: select(*api_keys.c).order_by(*_ORDER))
_OF_TENANT = Statement(
    lambda _: select(*api_keys.c).where(api_keys.c.tenant == bindparam("the_tenant")).order_by(*_ORDER)
)
_USER: BindParameter[str] = bindparam("the_user", type_=TEXT)
_BEFORE: BindParameter[float] = bindparam("before", type_=Double)
_PAGE = Statement(
    lambda _: (
        select(*api_keys.c)
        .where(
            api_keys.c.tenant == bindparam("the_tenant"),
            or_(_USER.is_(None), api_keys.c.user_id == _USER),
            or_(
                api_keys.c.created_at < _BEFORE,
                and_(api_keys.c.created_at == _BEFORE, api_keys.c.key_id < bindparam("before_id", type_=TEXT)),
            ),
        )
        .order_by(api_keys.c.created_at.desc(), api_keys.c.key_id.desc())
        .limit(bindparam("at_most", type_=BigInteger))
    )
)
_REVOKE = Statement(
    lambda _: (
        update(api_keys)
        .where(api_keys.c.key_id == bindparam("the_key_id"), api_keys.c.revoked_at.is_(None))
        .values(revoked_at=bindparam("at", type_=Double))
    )
)
_MARK_USED = Statement(
    lambda _: (
        update(api_keys)
        .where(
            api_keys.c.key_id == bindparam("the_key_id"),
            or_(api_keys.c.last_used_at.is_(None), api_keys.c.last_used_at <= bindparam("before", type_=Double)),
        )
        .values(last_used_at=bindparam("at", type_=Double))
    )
)
