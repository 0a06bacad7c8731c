"""Credentials port: the stored values, and the issuers of tokens."""

from collections.abc import Sequence
from dataclasses import field
from typing import Final, Protocol

from portico.domain.ids import ExecutionId, TenantId, UserId
from portico.domain.value import value

THE_TENANT: Final = UserId("")
"""Stands for the tenant where a user is named; no user can have this name."""


@value
class StoredValue:
    """A stored value of a user, or of the tenant, or, with an `execution_id`, of the request of an execution.

    One that was refused elsewhere is `rejected`. `set_at` is in Unix seconds.
    """

    tenant: TenantId
    user: UserId
    name: str
    sealed: bytes = field(repr=False)
    set_at: float
    rejected: bool = False
    execution_id: ExecutionId | None = None


class CredentialStore(Protocol):
    """Stored values of credentials. Every method raises StorageFailure."""

    async def find(
        self, tenant: TenantId, user: UserId, name: str, execution_id: ExecutionId | None
    ) -> Sequence[StoredValue]:
        """Return the values of that name: of the user, of the tenant, and of the request of the execution."""
        ...

    async def all_of(self, tenant: TenantId, user: UserId) -> Sequence[StoredValue]:
        """Return the values of the user and of the tenant, without those of requests."""
        ...

    async def put(self, stored: StoredValue) -> None:
        """Store a value in place of an earlier one."""
        ...

    async def delete(self, tenant: TenantId, user: UserId, name: str) -> bool:
        """Delete the value of a user or of the tenant; return False if there is none."""
        ...

    async def reject(self, stored: StoredValue) -> bool:
        """Mark the value as rejected; return False if another one was stored in its place, or it is gone."""
        ...

    async def forget(self, execution_id: ExecutionId) -> None:
        """Delete the values of the request of an execution."""
        ...

    async def waiting_tenants(self) -> Sequence[TenantId]:
        """Return the tenants with a call that waits for a credential."""
        ...

    async def forget_ended(self, before: float) -> None:
        """Delete the values of requests that were stored before that time and whose execution has ended or is gone."""
        ...


@value
class IssuedToken:
    """A token of an issuer, and until when it is valid, in Unix seconds; None if that is not known."""

    value: str = field(repr=False)
    expires_at: float | None


class IssuerError(Exception):
    """The issuer gave no token; the text is for operators and holds no secret."""


class TokenIssuer(Protocol):
    """Issuer of the token of one credential."""

    async def fetch(self) -> IssuedToken:
        """Return a new token. Raises: IssuerError."""
        ...
