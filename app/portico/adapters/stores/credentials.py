"""Stored values of credentials, sealed: those of users and tenants, and those of the requests of executions."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, bindparam, delete, exists, or_, select, update

from portico.adapters.stores.database import Database, ResultRow, Statement, Transaction, execute
from portico.adapters.stores.schema import credentials, executions, suspensions
from portico.domain.contract.response import SuspensionKind
from portico.domain.ids import ExecutionId, TenantId, UserId
from portico.domain.lifecycle import TERMINAL
from portico.ports.credentials import THE_TENANT, StoredValue

_NO_EXECUTION = ""
"""Stands for the execution of a value that belongs to no request."""


class DatabaseCredentials:
    """Implementation of the `CredentialStore` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(
        self, tenant: TenantId, user: UserId, name: str, execution_id: ExecutionId | None
    ) -> Sequence[StoredValue]:
        values = _key(tenant, user, name) | {"the_execution_id": execution_id or _NO_EXECUTION}
        return [_stored(row) for row in await self._database.read(lambda: execute(_FIND, values))]

    async def all_of(self, tenant: TenantId, user: UserId) -> Sequence[StoredValue]:
        values = {"the_tenant": tenant, "the_user_id": user}
        return [_stored(row) for row in await self._database.read(lambda: execute(_ALL, values))]

    async def put(self, stored: StoredValue) -> None:
        row = _key(stored.tenant, stored.user, stored.name) | {
            "the_execution_id": stored.execution_id or _NO_EXECUTION,
            "sealed": stored.sealed,
            "set_at": stored.set_at,
        }
        await self._database.write(lambda: execute(_PUT, row), idempotent=True)

    async def delete(self, tenant: TenantId, user: UserId, name: str) -> bool:
        key = _key(tenant, user, name)
        return bool(await self._database.write(lambda: execute(_DELETE, key)))

    async def reject(self, stored: StoredValue) -> bool:
        values = _key(stored.tenant, stored.user, stored.name) | {
            "the_execution_id": stored.execution_id or _NO_EXECUTION,
            "the_sealed": stored.sealed,
        }
        return bool(await self._database.write(lambda: execute(_REJECT, values)))

    async def forget(self, execution_id: ExecutionId) -> None:
        await self._database.write(lambda: execute(FORGET, {"the_execution_id": execution_id}), idempotent=True)

    async def waiting_tenants(self) -> Sequence[TenantId]:
        return [tenant for (tenant,) in await self._database.read(lambda: execute(_WAITING, {}))]

    async def forget_ended(self, before: float) -> None:
        def work() -> Transaction[None]:
            yield from execute(_FORGET_ENDED, {"before": before})

        await self._database.maintain(work)


def _key(tenant: TenantId, user: UserId, name: str) -> dict[str, Any]:
    return {"the_tenant": tenant, "the_user_id": user, "the_name": name}


def _stored(row: ResultRow) -> StoredValue:
    tenant, user, execution_id, name, sealed, set_at, rejected = row
    return StoredValue(tenant, user, name, sealed, set_at, bool(rejected), execution_id or None)


_OF_USER_OR_TENANT = and_(
    credentials.c.execution_id == _NO_EXECUTION,
    or_(credentials.c.user_id == bindparam("the_user_id"), credentials.c.user_id == THE_TENANT),
)
_IS_ONE = and_(
    credentials.c.tenant == bindparam("the_tenant"),
    credentials.c.user_id == bindparam("the_user_id"),
    credentials.c.name == bindparam("the_name"),
)
_FIND = Statement(
    lambda _: select(*credentials.c).where(
        credentials.c.tenant == bindparam("the_tenant"),
        credentials.c.name == bindparam("the_name"),
        or_(
            _OF_USER_OR_TENANT,
            and_(
                credentials.c.user_id == bindparam("the_user_id"),
                credentials.c.execution_id == bindparam("the_execution_id"),
            ),
        ),
    )
)
_ALL = Statement(
    lambda _: select(*credentials.c).where(credentials.c.tenant == bindparam("the_tenant"), _OF_USER_OR_TENANT)
)
_PUT = Statement(
    lambda insert: (
        insert(credentials)
        .values(
            tenant=bindparam("the_tenant"),
            user_id=bindparam("the_user_id"),
            execution_id=bindparam("the_execution_id"),
            name=bindparam("the_name"),
            sealed=bindparam("sealed"),
            set_at=bindparam("set_at"),
            rejected=0,
        )
        .on_conflict_do_update(
            index_elements=["tenant", "user_id", "execution_id", "name"],
            set_={"sealed": bindparam("sealed"), "set_at": bindparam("set_at"), "rejected": 0},
        )
    )
)
_DELETE = Statement(
    lambda _: (
        delete(credentials).where(_IS_ONE, credentials.c.execution_id == _NO_EXECUTION).returning(credentials.c.name)
    )
)
_REJECT = Statement(
    lambda _: (
        update(credentials)
        .where(
            _IS_ONE,
            credentials.c.execution_id == bindparam("the_execution_id"),
            credentials.c.sealed == bindparam("the_sealed"),
        )
        .values(rejected=1)
        .returning(credentials.c.name)
    )
)
FORGET = Statement(lambda _: delete(credentials).where(credentials.c.execution_id == bindparam("the_execution_id")))
"""Deletion of the values of an execution's request."""
_WAITING = Statement(
    lambda _: (
        select(suspensions.c.tenant)
        .where(suspensions.c.kind == SuspensionKind.AUTHORIZATION.value, suspensions.c.answered_at.is_(None))
        .distinct()
    )
)
_FORGET_ENDED = Statement(
    lambda _: delete(credentials).where(
        credentials.c.execution_id != _NO_EXECUTION,
        credentials.c.set_at < bindparam("before"),
        ~exists().where(
            executions.c.execution_id == credentials.c.execution_id,
            *(executions.c.state != each for each in sorted(TERMINAL)),
        ),
    )
)
