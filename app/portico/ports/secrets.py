"""Port of sealed secrets: what is stored of a secret of a tenant, and what opens it again."""

from typing import Protocol

from portico.domain.ids import TenantId


class SecretSeal(Protocol):
    """Seal of secrets that are stored. A sealed text names tenant, owner and secret, so that it opens nowhere else.

    The owner is a user, or the part of the service that the secret is for.
    """

    def seal(self, tenant: TenantId, owner: str, name: str, secret: str) -> bytes:
        """Return a secret as it is stored. Raises: ConfigurationFailure (CONFIG_INVALID) without a key."""
        ...

    def open(self, tenant: TenantId, owner: str, name: str, sealed: bytes) -> str | None:
        """Return a stored secret; None if no key opens it, or if it is another one's."""
        ...
