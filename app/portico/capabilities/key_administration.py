"""Creation, list and revocation of API keys."""

from collections.abc import Sequence

from portico.domain.access.api_key import ID_COUNT, SECRET_BYTES, ApiKey
from portico.domain.access.limits import AccessLimits
from portico.domain.access.principal import AccessScope, Permissions
from portico.domain.ids import ChannelName, KeyId, TenantId, UserId
from portico.domain.time_zones import DAY_S
from portico.domain.value import value
from portico.ports.access import KeyStore, StoredKey
from portico.ports.runtime import Clock, Entropy
from portico.ports.storage import ResultPage


@value
class KeyGrant:
    """The caller that a new key stands for, how many days it is valid, and who grants it.

    None stands for no end, for a key without a channel of its own, and as `created_by` for the command line.
    """

    tenant: TenantId
    user: UserId
    permissions: Permissions
    limits: AccessLimits
    days: float | None
    created_by: str | None = None
    channel: ChannelName | None = None


class KeyAdministration:
    """Keys of a database, and the webhooks that they made. Every coroutine raises StorageFailure."""

    def __init__(self, store: KeyStore, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy

    async def create(self, grant: KeyGrant) -> tuple[StoredKey, ApiKey]:
        """Store a new key; return it as it is stored, and the key itself, which cannot be shown again."""
        now = self._clock.now()
        while True:
            key = generate_key(self._entropy)
            stored = StoredKey(
                key_id=key.key_id,
                secret_hash=key.secret_hash,
                tenant=grant.tenant,
                user=grant.user,
                permissions=grant.permissions,
                created_at=now,
                limits=grant.limits,
                expires_at=None if grant.days is None else now + grant.days * DAY_S,
                created_by=grant.created_by,
                channel=grant.channel,
            )
            if await self._store.add(stored):
                return stored, key

    async def all(self, tenant: TenantId | None) -> Sequence[StoredKey]:
        """Return the keys of the tenant, or all, oldest first."""
        return await self._store.all(tenant)

    async def page(self, scope: AccessScope, *, after: str | None, limit: int) -> ResultPage[StoredKey]:
        """Return a page of the keys in the scope, newest first."""
        return await self._store.page(scope, after=after, limit=limit)

    async def find(self, key_id: KeyId) -> StoredKey | None:
        """Return the key with that public id."""
        found = await self._store.find((key_id,))
        return found[0] if found else None

    async def webhooks_of(self, key_id: KeyId) -> Sequence[str]:
        """Return the names of the webhooks that the key made and that hear of events."""
        return await self._store.webhooks_of(key_id)

    async def revoke(self, key_id: KeyId, *, cancel: bool) -> tuple[StoredKey, int] | None:
        """Revoke a key; return it and how many executions are being cancelled. None if it is unknown.

        With `cancel` its executions are cancelled, and the webhooks that it made are disabled.
        """
        now = self._clock.now()
        stored = await self._store.revoke(key_id, now)
        if stored is None:
            return None
        if not cancel:
            return stored, 0
        await self._store.disable_webhooks(key_id, now)
        return stored, await self._store.cancel_executions(key_id, now)


def generate_key(entropy: Entropy) -> ApiKey:
    """Return a new random key."""
    return ApiKey.from_random(entropy.random_below(ID_COUNT), bytes.fromhex(entropy.token(SECRET_BYTES)))
