"""AuthResolve: who asks, and whether they may. Runs before INIT, so a refusal leaves no execution behind."""

from app.domain.access import Principal
from app.domain.failures import AccessFailure, Code


def auth_resolve(principal: Principal) -> Principal:
    """The principal the execution runs for. Raises: AccessFailure (ACCESS_DENIED)."""
    if not principal.can_send_messages:
        raise AccessFailure(Code.ACCESS_DENIED, "the caller may not send messages", {"permission": "can_send_messages"})
    return principal
