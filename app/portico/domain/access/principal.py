"""Callers and their permissions."""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal

from portico.domain.access.limits import NO_LIMITS, AccessLimits
from portico.domain.ids import API, ChannelName, KeyId, TenantId, UserId
from portico.domain.tools import agent_of, reference_of
from portico.domain.value import value


class Permission(StrEnum):
    """Permissions without an object; those of tools, models and agents are `tool:NAME`, `model:NAME`, `agent:NAME`."""

    SEND_MESSAGES = "can_send_messages"
    VIEW_FULL_HISTORY = "can_view_full_history"
    VIEW_TENANT = "can_view_tenant"
    APPROVE = "can_approve"
    READ_METRICS = "can_read_metrics"
    SHARE_MEMORY = "can_share_memory"
    MANAGE_KEYS = "can_manage_keys"
    ACT_FOR = "can_act_for"
    MANAGE_WEBHOOKS = "can_manage_webhooks"
    MANAGE_CREDENTIALS = "can_manage_credentials"


ObjectKind = Literal["tool", "model", "agent"]


@value(slots=False)
class Permissions:
    """Set of permissions by name, sorted. A name that ends with `*` permits all that begin like it."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> "Permissions":
        """Return the set of these names."""
        return cls(tuple(sorted(set(names))))

    def allows(self, name: str) -> bool:
        """Return whether the permission of that name is in the set."""
        return name in self.names or name.startswith(_prefixes(self.names))

    def narrowed(self, kind: ObjectKind, names: Iterable[str]) -> "Permissions":
        """Return the set in which only those names of a kind are permitted, as far as they are in this one."""
        begin, given = f"{kind}:", _EVERYTHING if "*" in self.names else self.names
        own = [each for each in given if each.startswith(begin)]
        allowed = [begin + name for name in names]
        common = {narrower for one in own for other in allowed if (narrower := _narrower(one, other)) is not None}
        return Permissions.of([*(each for each in given if not each.startswith(begin)), *common])

    def without_others(self, names: Iterable[str]) -> "Permissions":
        """Return the set without the permissions that have no object and are not among the names."""
        given, kept = _EVERYTHING if "*" in self.names else self.names, {*names}
        return Permissions.of(each for each in given if ":" in each or each in kept)

    def common(self, other: "Permissions") -> "Permissions":
        """Return the set of what both permit."""
        pairs = ((one, another) for one in self.names for another in other.names)
        return Permissions.of(narrower for pair in pairs if (narrower := _narrower(*pair)) is not None)

    def allows_tool(self, name: str) -> bool:
        """Return whether the tool is permitted; an agent as a tool is by the permission for the agent."""
        return self.allows(tool_permission(name))

    def allows_tool_of(self, server: str) -> bool:
        """Return whether any tool is permitted whose name begins with `SERVER__`, as those of a server do."""
        begin = tool_permission(f"{server}__")
        return begin.startswith(_prefixes(self.names)) or any(name.startswith(begin) for name in self.names)

    def permitted_tools(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the tools that are permitted, in their order."""
        return tuple(names) if "*" in self.names else tuple(filter(self.allows_tool, names))

    def allows_model(self, name: str) -> bool:
        """Return whether a route or engine of that name is permitted; a route's permission covers its engines."""
        return self.allows(f"model:{name}")

    def allows_agent(self, name: str) -> bool:
        return self.allows(f"agent:{name}")


@lru_cache(maxsize=1_024)
def _prefixes(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the beginnings of the names that end with `*`."""
    return tuple(name[:-1] for name in names if name.endswith("*"))


def _narrower(one: str, other: str) -> str | None:
    """Return the name or prefix that permits what both permit; None if that is nothing."""
    for narrow, wide in ((one, other), (other, one)):
        if narrow == wide or (wide.endswith("*") and narrow.startswith(wide[:-1])):
            return narrow
    return None


_EVERYTHING: Final = (*Permission, "tool:*", "model:*", "agent:*")
_OBJECT_PERMISSION: Final = re.compile(r"(tool|model|agent):([A-Za-z0-9_.:/-]{1,128}\*?|\*)")


def is_permission(name: str) -> bool:
    """Return whether that is how a permission is spelt."""
    return name in set(Permission) or _OBJECT_PERMISSION.fullmatch(name) is not None


def tool_permission(name: str) -> str:
    """Return the name of the permission that a call of the tool needs."""
    return f"tool:{name}" if agent_of(name) is None else reference_of(name)


ALL: Final = Permissions(("*",))
"""Every permission."""
KEY_DEFAULT: Final = Permissions.of(
    (
        Permission.SEND_MESSAGES,
        Permission.VIEW_FULL_HISTORY,
        Permission.APPROVE,
        Permission.SHARE_MEMORY,
        *("tool:*", "model:*", "agent:*"),
    )
)
"""Permissions of a key that names none: everything in its tenant, but neither other users' data, nor the metrics, nor
what manages keys, webhooks and credentials or acts for others.
"""


@value
class AccessScope:
    """Data that a query may find: of one user of a tenant, or of all its users if `user` is None."""

    tenant: TenantId
    user: UserId | None = None

    def includes(self, tenant: TenantId, user: UserId) -> bool:
        """Return whether data of that owner is in the scope."""
        return tenant == self.tenant and self.user in {None, user}


@value
class Principal:
    """Caller: the tenant and the user that it acts for, its key, what it may do, until when, and the channel it uses.

    `key_id` is None without a key, and `expires_at`, in Unix seconds, without an end. `limits` are those of the key,
    which hold beside those of the tenant. A key that `has_own_channel` is always in that one. `outside_channel` are the
    permissions that it has without the rules of its channel, None if that has none. One that `acts_for_user` was named
    by the header `portico-user`.
    """

    tenant: TenantId
    user: UserId
    key_id: KeyId | None = None
    permissions: Permissions = ALL
    expires_at: float | None = None
    limits: AccessLimits = NO_LIMITS
    channel: ChannelName = API
    has_own_channel: bool = False
    outside_channel: Permissions | None = None
    acts_for_user: bool = False

    @property
    def own(self) -> AccessScope:
        """Its own data, which it may continue, change and cancel."""
        return AccessScope(self.tenant, self.user)

    @property
    def readable(self) -> AccessScope:
        """The data that it may read."""
        return AccessScope(self.tenant) if self.permissions.allows(Permission.VIEW_TENANT) else self.own


LOCAL: Final = Principal(tenant=TenantId("local"), user=UserId("local"))
"""The only principal of a deployment without authentication; it may do everything."""
