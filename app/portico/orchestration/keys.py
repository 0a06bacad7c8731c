"""API keys of a tenant: who may list, make and revoke which, and what a new key may do at most.

A key never gives more than the one that makes it: neither a permission, nor another tenant, nor a later end. A key with
limits of its own makes none, since the limits of each new key would come on top of them. No key that is made here makes
others, so that a stolen one is of no use once it and the keys that it made are revoked.
"""

from datetime import UTC, datetime
from math import floor
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from portico.capabilities.key_administration import KeyAdministration, KeyGrant
from portico.domain.access.limits import NO_LIMITS, AccessLimits
from portico.domain.access.principal import KEY_DEFAULT, Permission, Permissions, Principal, is_permission
from portico.domain.contract.constrained_types import CallerName, ChannelText, CostRate, UnitRate
from portico.domain.failures import AccessFailure, Code, RequestFailure, invalid_request
from portico.domain.ids import ChannelName, KeyId, TenantId, UserId
from portico.domain.time_zones import DAY_S
from portico.domain.value import replace, value
from portico.orchestration.caller import AuthMode
from portico.orchestration.rights import denied, require
from portico.ports.access import Authenticator, StoredKey
from portico.ports.runtime import Clock

MAX_DAYS_BY_TOKEN: Final = 90
JWT: Final[AuthMode] = "jwt"
"""The maker of a key whose caller has a token."""
_MAX_DAYS: Final = 36_500
_MAX_PERMISSIONS: Final = 1_000
_SHOWN_DAYS: Final = 1_000
"""Parts of a day in messages."""
NO_SUCH_KEY: Final = "no key has this id"


def _permission(name: str) -> str:
    if not is_permission(name):
        known = ", ".join(Permission)
        raise ValueError(f"must be one of {known}, tool:NAME, model:NAME, agent:NAME; a trailing * is a prefix")
    return name


class KeyRequest(BaseModel):
    """A key to make. Without limits of its own those of its tenant hold all the same."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    user: CallerName = Field(description="User that the key acts for; another than one's own with `can_view_tenant`.")
    permissions: list[Annotated[str, AfterValidator(_permission)]] | None = Field(
        None,
        max_length=_MAX_PERMISSIONS,
        description="Names of its permissions, each of which the caller has. Absent: those of a key of the command "
        "line that names none, as far as the caller has them.",
    )
    channel: ChannelText | None = Field(
        None,
        description="Channel of its requests, always. A key with a channel makes only keys of the same one, which is "
        "then the default.",
    )
    requests: UnitRate | None = Field(None, description="Executions and forks that may begin, as `600/60`.")
    tokens: UnitRate | None = Field(None, description="Tokens of all its inferences, as `200000/60`.")
    cost: CostRate | None = Field(None, description="Cost of all its inferences, as `5.00/86400`.")
    concurrency: int | None = Field(None, ge=1, description="Its executions that may run at the same time.")
    expires_days: float | None = Field(
        None,
        gt=0,
        le=_MAX_DAYS,
        description="Days until it is refused. It ends no later than the key that makes it; with a token at most 90 "
        "are needed.",
    )


class KeyLimits(BaseModel):
    """Limits of a key; null is no limit."""

    requests: UnitRate | None = Field(description="Executions and forks that may begin, as `600/60`.")
    tokens: UnitRate | None = Field(description="Tokens of all its inferences, as `200000/60`.")
    cost: CostRate | None = Field(description="Cost of all its inferences, as `5/86400`.")
    concurrency: int | None = Field(description="Its executions that may run at the same time.")


class KeyView(BaseModel):
    """A key without its secret, which is stored nowhere."""

    public_id: KeyId = Field(description="The 8 characters behind `ptk_`, which may be shown.")
    tenant: TenantId = Field(description="Tenant whose data the key gives access to.")
    user: UserId = Field(description="User that the key acts for.")
    permissions: list[str] = Field(description="Names of its permissions.")
    channel: ChannelName | None = Field(description="Channel of all its requests; null if it has none of its own.")
    limits: KeyLimits = Field(description="Its own limits, which hold beside those of its tenant.")
    created_by: str | None = Field(
        description="Public id of the key that made it, `jwt` for a token; null for the command line."
    )
    created_at: datetime = Field(description="Time at which it was made.")
    expires_at: datetime | None = Field(description="Time from which it is refused; null if it has no end.")
    revoked_at: datetime | None = Field(description="Time at which it was revoked; null if it was not.")
    last_used_at: datetime | None = Field(description="Time of its last use, to the minute; null before the first.")


class NewKeyView(KeyView):
    """A key that was just made."""

    secret: str = Field(description="The whole key, which cannot be shown again.")


@value
class KeyPage:
    """A page of keys, newest first; `next` is the cursor of the following page, None on the last."""

    keys: list[KeyView]
    next: str | None


@value
class KeyParts:
    """Everything that the keys need: their administration, and the authentication of callers, which has a `mode`."""

    administration: KeyAdministration
    callers: Authenticator
    clock: Clock
    mode: AuthMode


class Keys:
    """Queries and commands for the keys of a tenant, by principal; without `can_view_tenant` for the user's own.

    The caller needs `can_manage_keys`, and its key is read anew, so that a revoked one does nothing. Raises:
    AccessFailure, StorageFailure, in every method.
    """

    def __init__(self, parts: KeyParts) -> None:
        self._parts = parts

    async def page(self, principal: Principal, *, after: str | None, limit: int) -> KeyPage:
        """Return a page of the keys, revoked and expired ones included."""
        manager = await self._manager(principal)
        page = await self._parts.administration.page(manager.readable, after=after, limit=limit)
        return KeyPage(list(map(_key_view, page.items)), page.next)

    async def create(self, principal: Principal, asked: KeyRequest) -> NewKeyView:
        """Make a key. Raises: RequestFailure (REQUEST_INVALID) for an end that is too late."""
        manager = await self._manager(principal)
        if manager.limits != NO_LIMITS:
            message = "a key with limits of its own makes no keys, whose limits would come on top of them"
            raise AccessFailure(Code.ACCESS_DENIED, message)
        if not manager.readable.includes(manager.tenant, UserId(asked.user)):
            raise denied(Permission.VIEW_TENANT, "make keys of other users")
        permissions = _granted(asked, manager)
        _require_end(asked.expires_days, manager, self._parts.clock.now())
        grant = KeyGrant(
            manager.tenant,
            UserId(asked.user),
            permissions,
            AccessLimits(asked.requests, asked.tokens, asked.cost, asked.concurrency),
            asked.expires_days,
            manager.key_id or JWT,
            _channel(asked, manager),
        )
        stored, key = await self._parts.administration.create(grant)
        return NewKeyView(**dict(_key_view(stored)), secret=key.reveal())

    async def revoke(self, principal: Principal, key_id: KeyId, *, cancel: bool) -> None:
        """Revoke a key, and with `cancel` stop its stored executions. One that was revoked before stays so.

        Raises: RequestFailure (REQUEST_NOT_FOUND).
        """
        manager = await self._manager(principal)
        found = await self._parts.administration.find(key_id)
        if found is None or not manager.readable.includes(found.tenant, found.user):
            raise RequestFailure(Code.REQUEST_NOT_FOUND, NO_SUCH_KEY, condition="path")
        await self._parts.administration.revoke(key_id, cancel=cancel)

    async def _manager(self, principal: Principal) -> Principal:
        """Return the caller as it is stored now. Raises: AccessFailure for one that may not manage keys."""
        if self._parts.mode == "none":
            raise AccessFailure(Code.ACCESS_DENIED, "without authentication there are no keys; set auth.mode")
        if principal.acts_for_user:
            raise AccessFailure(Code.ACCESS_DENIED, "no keys are managed for another user; leave out portico-user")
        manager = await self._parts.callers.confirm(principal)
        if principal.outside_channel is not None:
            manager = replace(manager, permissions=manager.permissions.common(principal.permissions))
        require(manager.permissions, Permission.MANAGE_KEYS, "manage keys")
        return manager


def _granted(asked: KeyRequest, manager: Principal) -> Permissions:
    """Return the permissions of a new key. Raises: AccessFailure for one that the manager cannot give."""
    if asked.permissions is None:
        return KEY_DEFAULT.common(manager.permissions)
    for name in asked.permissions:
        if name == Permission.MANAGE_KEYS:
            message = "only the command line makes a key that makes others"
            raise AccessFailure(Code.ACCESS_DENIED, message, {"permission": name})
        if not manager.permissions.allows(name):
            raise denied(name, "give a permission that it lacks")
    return Permissions.of(asked.permissions)


def _channel(asked: KeyRequest, manager: Principal) -> ChannelName | None:
    """Return the channel of a new key. Raises: AccessFailure for another one than that of the key that makes it."""
    if not manager.has_own_channel:
        return asked.channel
    if asked.channel not in {None, manager.channel}:
        message = f"a key of the channel {manager.channel} makes keys of this channel only"
        raise AccessFailure(Code.ACCESS_DENIED, message, {"channel": manager.channel})
    return manager.channel


def _require_end(days: float | None, manager: Principal, now: float) -> None:
    """Raise RequestFailure (REQUEST_INVALID) if a key that is valid for so many days would end too late."""
    if manager.key_id is None:
        most, reason = float(MAX_DAYS_BY_TOKEN), "by a token"
    elif manager.expires_at is None:
        return
    else:
        most, reason = (manager.expires_at - now) / DAY_S, "when the key that makes it expires"
    if days is None or days > most:
        shown = floor(most * _SHOWN_DAYS) / _SHOWN_DAYS
        wanted = "is required and " if days is None else ""
        raise invalid_request(("expires_days", f"{wanted}must be at most {shown:g}: {reason}"))


def _key_view(key: StoredKey) -> KeyView:
    return KeyView(
        public_id=key.key_id,
        tenant=key.tenant,
        user=key.user,
        permissions=list(key.permissions.names),
        channel=key.channel,
        limits=KeyLimits.model_validate(key.limits, from_attributes=True),
        created_by=key.created_by,
        created_at=datetime.fromtimestamp(key.created_at, UTC),
        expires_at=_time(key.expires_at),
        revoked_at=_time(key.revoked_at),
        last_used_at=_time(key.last_used_at),
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
