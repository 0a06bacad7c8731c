"""API keys in memory, and a store of them that a test can break."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from portico.domain.access.api_key import ApiKey
from portico.domain.access.principal import KEY_DEFAULT, Permissions
from portico.domain.failures import Code, StorageFailure
from portico.domain.ids import KeyId, TenantId, UserId
from portico.ports.access import StoredKey
from tests.support.virtual_time import EPOCH


def api_key(number: int = 1) -> ApiKey:
    """Return the key of that number, the same one every time."""
    return ApiKey.from_random(number, number.to_bytes(32, "big"))


def stored(key: ApiKey, *, permissions: Permissions = KEY_DEFAULT, expires_at: float | None = None) -> StoredKey:
    """Return a key as it is stored, of the tenant acme and the user ann."""
    return StoredKey(
        key_id=key.key_id,
        secret_hash=key.secret_hash,
        tenant=TenantId("acme"),
        user=UserId("ann"),
        permissions=permissions,
        created_at=EPOCH,
        expires_at=expires_at,
    )


class MemoryKeys:
    """Implementation of `KeyStore` that counts reads; while `is_down`, it fails."""

    def __init__(self, *keys: StoredKey) -> None:
        self.keys = {key.key_id: key for key in keys}
        self.reads = 0
        self.uses: list[Mapping[KeyId, float]] = []
        self.is_down = False

    async def add(self, key: StoredKey) -> bool:
        return self.keys.setdefault(key.key_id, key) is key

    async def find(self, key_ids: Iterable[KeyId]) -> Sequence[StoredKey]:
        if self.is_down:
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer", retry_after=1.0)
        self.reads += 1
        return [self.keys[key_id] for key_id in key_ids if key_id in self.keys]

    async def all(self, tenant: TenantId | None = None) -> Sequence[StoredKey]:
        return [key for key in self.keys.values() if tenant in {None, key.tenant}]

    async def revoke(self, key_id: KeyId, at: float) -> StoredKey | None:
        if key_id not in self.keys:
            return None
        self.keys[key_id] = replace(self.keys[key_id], revoked_at=at)
        return self.keys[key_id]

    async def cancel_executions(self, key_id: KeyId, at: float) -> int:
        del key_id, at
        return 0

    async def mark_used(self, uses: Mapping[KeyId, float], *, interval: float) -> None:
        del interval
        self.uses.append(uses)
