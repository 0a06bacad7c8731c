"""What an HTTP status of a provider means where its body says nothing more."""

from collections.abc import Mapping
from types import MappingProxyType

from app.domain.effects import Reason

BY_STATUS: Mapping[int, Reason] = MappingProxyType(
    {
        401: Reason.CREDENTIALS,
        402: Reason.QUOTA,
        403: Reason.CREDENTIALS,
        404: Reason.MODEL_MISSING,
        408: Reason.TIMED_OUT,
        413: Reason.CONTEXT_EXCEEDED,
        429: Reason.RATE_LIMITED,
        529: Reason.OVERLOADED,
    }
)
BY_CLASS: Mapping[int, Reason] = MappingProxyType({3: Reason.UNREACHABLE, 4: Reason.REFUSED, 5: Reason.SERVER_ERROR})


def reason_by_status(status: int) -> Reason:
    """Why a reply with that status is no answer; what is no status of HTTP is a malformed reply."""
    return BY_STATUS.get(status) or BY_CLASS.get(status // 100, Reason.MALFORMED)
