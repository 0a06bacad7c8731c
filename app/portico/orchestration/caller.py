"""The caller: who it is, what it may do, and what is left of its limits."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Literal

from pydantic import BaseModel, Field

from portico.capabilities.limits.quotas import PolicyStatus
from portico.domain.access.principal import Permission, Principal
from portico.domain.ids import ChannelName, KeyId, ReplicaId, TenantId, UserId
from portico.domain.value import value

AuthMode = Literal["none", "keys", "jwt"]


@value
class ReplicaInfo:
    """This replica: its name, its version, how it authenticates callers, and how many replicas are alive."""

    name: ReplicaId
    version: str
    auth: AuthMode
    count_alive: Callable[[], int]


class CallerRights(BaseModel):
    """Rights of a caller besides those on tools, models and agents."""

    send_messages: bool = Field(description="Execute, fork, quote and resume.")
    view_full_history: bool = Field(description="Read earlier contents without redaction.")
    view_tenant: bool = Field(description="Read the data of other users of the tenant.")
    approve: bool = Field(description="Decide on calls of tools that wait for a person.")
    read_metrics: bool = Field(description="Read the metrics on a public listener, and the health of engines.")
    share_memory: bool = Field(description="Share documents within the tenant.")
    manage_keys: bool = Field(description="List, make and revoke keys. Without authentication there are none.")
    act_for: bool = Field(description="Name the user and the channel for which a request acts.")
    manage_webhooks: bool = Field(description="Make and change webhooks, together with `view_tenant`.")
    manage_credentials: bool = Field(description="Set and delete credentials of the tenant.")


class CallerLimit(BaseModel):
    """One limit of a caller, as far as this replica knows."""

    policy: str = Field(description="Name of the limit; those of the tenant begin with `tenant-`.")
    limit: int = Field(description="Units that may be taken at once; of a cost, millionths of the currency.")
    remaining: int = Field(description="Units that are left of it.")
    window_seconds: int | None = Field(description="Seconds in which so many units come back; null of `concurrency`.")
    reset_seconds: int | None = Field(description="Seconds after which all of it is back; null of `concurrency`.")


class CallerView(BaseModel):
    """The caller of a request, and the replica that answers it."""

    tenant: TenantId = Field(description="Tenant whose data the caller may access.")
    user: UserId = Field(description="User that the caller acts for.")
    key: KeyId | None = Field(description="Public id of the caller's key; null with a token, and without a key.")
    auth: AuthMode = Field(description="How callers are authenticated: `auth.mode` of the configuration.")
    channel: ChannelName = Field(description="Channel by which the request came.")
    permissions: list[str] = Field(description="Names of the permissions; a trailing `*` stands for all that follows.")
    can: CallerRights = Field(description="What these permissions allow.")
    limits: list[CallerLimit] = Field(description="Limits of the key and of the tenant; none if nothing limits it.")
    replica: ReplicaId = Field(description="Name of the replica that answers.")
    replicas: int = Field(description="Number of replicas that are alive, this one included.")
    version: str = Field(description="Version of the service.")
    now: datetime = Field(description="Time of the replica's clock.")


def caller_view(principal: Principal, limits: Sequence[PolicyStatus], replica: ReplicaInfo, now: float) -> CallerView:
    """Return the view of a caller with these limits; `now` is in Unix seconds."""
    return CallerView(
        tenant=principal.tenant,
        user=principal.user,
        key=principal.key_id,
        auth=replica.auth,
        channel=principal.channel,
        permissions=list(principal.permissions.names),
        can=_rights(principal, replica),
        limits=list(map(_limit, limits)),
        replica=replica.name,
        replicas=replica.count_alive(),
        version=replica.version,
        now=datetime.fromtimestamp(now, UTC),
    )


def _rights(principal: Principal, replica: ReplicaInfo) -> CallerRights:
    allows = principal.permissions.allows
    return CallerRights(
        send_messages=allows(Permission.SEND_MESSAGES),
        view_full_history=allows(Permission.VIEW_FULL_HISTORY),
        view_tenant=allows(Permission.VIEW_TENANT),
        approve=allows(Permission.APPROVE),
        read_metrics=allows(Permission.READ_METRICS),
        share_memory=allows(Permission.SHARE_MEMORY),
        manage_keys=replica.auth != "none" and allows(Permission.MANAGE_KEYS),
        act_for=allows(Permission.ACT_FOR),
        manage_webhooks=allows(Permission.MANAGE_WEBHOOKS),
        manage_credentials=allows(Permission.MANAGE_CREDENTIALS),
    )


def _limit(status: PolicyStatus) -> CallerLimit:
    return CallerLimit(
        policy=status.name,
        limit=status.quota,
        remaining=status.remaining,
        window_seconds=status.seconds,
        reset_seconds=None if status.seconds is None else ceil(status.full_in),
    )
