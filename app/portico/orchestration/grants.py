"""Grants: leave that persons gave for later calls of tools, as users see and revoke it."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from portico.domain.access.principal import AccessScope, Permission, Principal
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import GrantId, RequestId, SessionId, UserId
from portico.ports.grants import Grant, GrantStore
from portico.ports.runtime import Clock


class GrantView(BaseModel):
    """A person's leave for later calls of a tool, which need no answer of their own."""

    model_config = ConfigDict(populate_by_name=True)

    grant_id: GrantId = Field(description="Id of the grant.")
    tool: str = Field(description="The tool whose calls it covers.")
    scope: Literal["execution", "session"] = Field(alias="for", description="Where it covers calls.")
    request_id: RequestId = Field(description="The execution in which it was given.")
    session_id: SessionId | None = Field(description="The session of that execution.")
    agent: str | None = Field(description="The configured agent whose calls it covers; null for those of none.")
    match: Literal["tool", "arguments"] = Field(
        description="`arguments` if it covers calls with the approved arguments only."
    )
    user: UserId = Field(description="User who asked for the execution.")
    granted_by: UserId = Field(description="User who gave it.")
    granted_at: datetime = Field(description="Time at which it was given.")
    expires_at: datetime = Field(description="Time from which it covers nothing.")
    uses: int = Field(description="Calls that it has covered; after 20 it ends.")


class Grants:
    """Grants of a principal's own executions; of all users of its tenant, if it may approve.

    Every method raises StorageFailure.
    """

    def __init__(self, store: GrantStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, principal: Principal) -> list[GrantView]:
        """Return the grants that cover calls yet, the oldest first."""
        return [_view(each) for each in await self._store.grants(_scope(principal), self._clock.now())]

    async def revoke(self, principal: Principal, grant_id: GrantId) -> None:
        """Let the grant cover no call any more. Raises: RequestFailure (REQUEST_NOT_FOUND)."""
        if not await self._store.revoke(_scope(principal), grant_id, self._clock.now()):
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "there is no such grant", condition="path")


def _scope(principal: Principal) -> AccessScope:
    return AccessScope(principal.tenant) if principal.permissions.allows(Permission.APPROVE) else principal.own


def _view(grant: Grant) -> GrantView:
    return GrantView(
        grant_id=grant.grant_id,
        tool=grant.tool,
        scope=grant.scope,
        request_id=grant.request_id,
        session_id=grant.session_id,
        agent=grant.agent,
        match="tool" if grant.arguments_digest is None else "arguments",
        user=grant.user,
        granted_by=grant.granted_by,
        granted_at=datetime.fromtimestamp(grant.granted_at, UTC),
        expires_at=datetime.fromtimestamp(grant.expires_at, UTC),
        uses=grant.uses,
    )
