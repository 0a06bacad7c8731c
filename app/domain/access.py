"""Callers and their permissions."""

from dataclasses import dataclass

from app.domain.ids import TenantId, UserId


@dataclass(frozen=True, slots=True)
class Principal:
    """Caller: the tenant whose data it may access, and the user it acts for."""

    tenant: TenantId
    user: UserId
    can_send_messages: bool = True


LOCAL = Principal(tenant=TenantId("local"), user=UserId("local"))
"""The only principal of a deployment without authentication; it may do everything."""
