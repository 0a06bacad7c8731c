"""Who asks, and what they may do."""

from dataclasses import dataclass

from app.domain.ids import TenantId, UserId


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: the tenant whose data it sees and the user it acts for."""

    tenant: TenantId
    user: UserId
    can_send_messages: bool = True


LOCAL = Principal(tenant=TenantId("local"), user=UserId("local"))
"""The one principal of a deployment without authentication: it may do everything."""
