"""Keys whose creation and revocation are recorded in the audit log."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from portico.domain.access.principal import AccessScope
from portico.domain.failures import Failure, StorageFailure
from portico.domain.ids import KeyId, TenantId
from portico.domain.value import replace
from portico.ports.access import KeyStore, StoredKey
from portico.ports.audit import Action, AuditEntry, AuditLog
from portico.ports.storage import ResultPage

_COMMAND_LINE: Final = "command line"


class AuditedKeyStore:
    """Implementation of the `KeyStore` port for the command line, over another one.

    The line of a change is written before it, and a second one if it fails; without a line there is no change.
    """

    def __init__(self, plain: KeyStore, log: AuditLog) -> None:
        self._plain = plain
        self._log = log

    async def add(self, key: StoredKey) -> bool:
        entry = AuditEntry(Action.KEY_CREATE, key.tenant, target=key.key_id, owner=key.user, detail=_COMMAND_LINE)
        await self._log.write(entry)
        try:
            return await self._plain.add(key)
        except Failure as failure:
            await self._write_failure(entry, failure)
            raise

    async def revoke(self, key_id: KeyId, at: float) -> StoredKey | None:
        entry = AuditEntry(Action.KEY_REVOKE, target=key_id, detail=_COMMAND_LINE)
        for found in await self._plain.find([key_id]):
            entry = replace(entry, tenant=found.tenant, owner=found.user)
        await self._log.write(entry)
        try:
            return await self._plain.revoke(key_id, at)
        except Failure as failure:
            await self._write_failure(entry, failure)
            raise

    async def find(self, key_ids: Iterable[KeyId]) -> Sequence[StoredKey]:
        return await self._plain.find(key_ids)

    async def all(self, tenant: TenantId | None = None) -> Sequence[StoredKey]:
        return await self._plain.all(tenant)

    async def page(self, scope: AccessScope, *, after: str | None = None, limit: int) -> ResultPage[StoredKey]:
        return await self._plain.page(scope, after=after, limit=limit)

    async def cancel_executions(self, key_id: KeyId, at: float) -> int:
        return await self._plain.cancel_executions(key_id, at)

    async def webhooks_of(self, key_id: KeyId) -> Sequence[str]:
        return await self._plain.webhooks_of(key_id)

    async def disable_webhooks(self, key_id: KeyId, at: float) -> None:
        await self._plain.disable_webhooks(key_id, at)

    async def mark_used(self, uses: Mapping[KeyId, float], *, interval: float) -> None:
        await self._plain.mark_used(uses, interval=interval)

    async def _write_failure(self, entry: AuditEntry, failure: Failure) -> None:
        with suppress(StorageFailure):  # the log counts its failures
            await self._log.write(replace(entry, outcome="failed", code=failure.code))
