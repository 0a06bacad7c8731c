"""Who asks, and what they may do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: the tenant whose data it sees and the user it acts for."""

    tenant: str
    user: str
    can_send_messages: bool = True


LOCAL = Principal(tenant="local", user="local")
"""The one principal of a deployment without authentication: it may do everything."""
