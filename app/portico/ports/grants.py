"""Grants port: leave that persons gave for later calls of tools."""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from portico.domain.access.principal import AccessScope
from portico.domain.ids import ExecutionId, GrantId, RequestId, SessionId, TenantId, UserId
from portico.domain.value import value

MAX_USES: Final = 20
"""Calls that one grant covers, since untrusted text does not end it."""


@value
class Grant:
    """A person's leave for later calls of a tool in one execution or session, of the same agent.

    `user` is the owner of the execution in which it was given. It covers calls with the `arguments_digest` only, if it
    has one, and none of a tool with another `tool_digest`. Times are in Unix seconds.
    """

    grant_id: GrantId
    tenant: TenantId
    user: UserId
    tool: str
    tool_digest: str
    scope: Literal["execution", "session"]
    execution_id: ExecutionId
    request_id: RequestId
    session_id: SessionId | None
    agent: str | None
    arguments_digest: str | None
    granted_by: UserId
    granted_at: float
    expires_at: float
    uses: int = 0


@value
class GrantedCall:
    """A call that a grant may cover."""

    tenant: TenantId
    user: UserId
    execution_id: ExecutionId
    session_id: SessionId | None
    agent: str | None
    tool: str
    tool_digest: str
    arguments_digest: str


class GrantStore(Protocol):
    """Grants of all replicas. Every method raises StorageFailure. Times are in Unix seconds.

    They are stored with the answers that give them, see `ExecutionStore.answer`.
    """

    async def use(self, call: GrantedCall, now: float) -> Grant | None:
        """Count one more use of the oldest grant that covers the call, and return it; None if none does."""
        ...

    async def grants(self, scope: AccessScope, now: float) -> Sequence[Grant]:
        """Return the grants of the scope that cover calls yet, the oldest first."""
        ...

    async def revoke(self, scope: AccessScope, grant_id: GrantId, now: float) -> bool:
        """Delete the grant; return False if the scope has no such grant that covers calls yet."""
        ...
