"""Rights of what starts later: those that its user has at that moment, by its key, or for a while by its token."""

from typing import Final

from portico.domain.access.channels import Entrance
from portico.domain.access.principal import Permission, Principal
from portico.domain.failures import AccessFailure, Code
from portico.domain.ids import ChannelName
from portico.domain.schedules import ScheduleOwner
from portico.domain.time_zones import DAY_S
from portico.domain.value import replace
from portico.orchestration.caller import AuthMode
from portico.orchestration.channels import Channels
from portico.orchestration.rights import require
from portico.ports.access import Authenticator

TOKEN_DAYS: Final = 30
"""Days for which the rights of a token hold."""


class LaterRights:
    """Rights that an owner has when something of it starts."""

    def __init__(self, callers: Authenticator, channels: Channels, mode: AuthMode) -> None:
        self._callers = callers
        self._channels = channels
        self._mode = mode

    def owner(self, principal: Principal, at: float) -> ScheduleOwner:
        """Return the owner of what the principal has asked for at that time, in Unix seconds."""
        expires_at = at + TOKEN_DAYS * DAY_S if self._mode != "none" and principal.key_id is None else None
        return ScheduleOwner(principal.tenant, principal.user, principal.key_id, principal.permissions, expires_at)

    async def principal(self, owner: ScheduleOwner, channel: ChannelName) -> Principal:
        """Return the principal with the rights that the owner has now in the channel, and in that of its key.

        Raises: AccessFailure without any; StorageFailure.
        """
        if self._mode != "none" and owner.key_id is None and owner.expires_at is None:
            raise AccessFailure(Code.ACCESS_UNAUTHENTICATED, "it was stored without authentication")
        principal = Principal(owner.tenant, owner.user, owner.key_id, owner.permissions, owner.expires_at)
        holder = await self._callers.confirm(principal)
        if holder.has_own_channel:
            holder = self._channels.enter(holder, Entrance(channel=channel))
        if owner.user != holder.user:
            require(holder.permissions, Permission.ACT_FOR, "act for another user")
        return self._channels.enter(replace(holder, user=owner.user, has_own_channel=False), Entrance(channel=channel))
