"""Access ports: the stored API keys, and the authentication of callers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from portico.domain.access.limits import NO_LIMITS, AccessLimits
from portico.domain.access.principal import AccessScope, Permissions, Principal
from portico.domain.ids import API, ChannelName, KeyId, TenantId, UserId
from portico.domain.value import value
from portico.ports.storage import ResultPage


@value
class StoredKey:
    """API key as it is stored: its hash, the caller that it stands for, and its times in Unix seconds.

    `created_by` is the public id of the key that made it, `jwt` for a token, and None for the command line. A key with
    a `channel` is always in that one.
    """

    key_id: KeyId
    secret_hash: str
    tenant: TenantId
    user: UserId
    permissions: Permissions
    created_at: float
    limits: AccessLimits = NO_LIMITS
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None
    created_by: str | None = None
    channel: ChannelName | None = None

    def is_valid(self, now: float) -> bool:
        """Return True unless the key was revoked or has expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def principal(self) -> Principal:
        """The caller that a valid key stands for."""
        channel, has_own = self.channel or API, self.channel is not None
        caller = (self.tenant, self.user, self.key_id, self.permissions, self.expires_at, self.limits)
        return Principal(*caller, channel, has_own)


class KeyStore(Protocol):
    """Storage of API keys. Every coroutine raises StorageFailure."""

    async def add(self, key: StoredKey) -> bool:
        """Store a new key. Return False if its public id is taken."""
        ...

    async def find(self, key_ids: Iterable[KeyId]) -> Sequence[StoredKey]:
        """Return the keys with these ids, as far as they exist, revoked ones included."""
        ...

    async def all(self, tenant: TenantId | None = None) -> Sequence[StoredKey]:
        """Return the keys of the tenant, or of all tenants, oldest first."""
        ...

    async def page(self, scope: AccessScope, *, after: str | None = None, limit: int) -> ResultPage[StoredKey]:
        """Return a page of the keys in the scope, newest first."""
        ...

    async def revoke(self, key_id: KeyId, at: float) -> StoredKey | None:
        """Revoke a key from that time on and return it; one that was revoked before stays so. None if unknown."""
        ...

    async def cancel_executions(self, key_id: KeyId, at: float) -> int:
        """Ask the owners of the running and queued executions of a key to cancel them; return how many there are."""
        ...

    async def webhooks_of(self, key_id: KeyId) -> Sequence[str]:
        """Return the names of the webhooks that the key made and that hear of events."""
        ...

    async def disable_webhooks(self, key_id: KeyId, at: float) -> None:
        """Disable these webhooks. What waits for them is dead."""
        ...

    async def mark_used(self, uses: Mapping[KeyId, float], *, interval: float) -> None:
        """Store when keys were used last, unless a use less than `interval` seconds before is stored already."""
        ...


class Authenticator(Protocol):
    """Authentication of callers."""

    async def authenticate(self, credentials: str | None, *, audience: str | None = None) -> Principal:
        """Return the caller with these bearer credentials; None stands for a request without any.

        A token may be for that `audience`, too.

        Raises: AccessFailure (ACCESS_UNAUTHENTICATED, ACCESS_UNAVAILABLE); StorageFailure.
        """
        ...

    async def confirm(self, principal: Principal) -> Principal:
        """Return a caller that was authenticated before as it is stored now; what is remembered of its key is not used.

        Raises: AccessFailure (ACCESS_UNAUTHENTICATED) if it has no access any more; StorageFailure.
        """
        ...

    async def is_current(self, principal: Principal) -> bool:
        """Return whether a caller that was authenticated before still has access. Raises: StorageFailure."""
        ...
