"""Count of the requests that wait for a person in this process."""

from collections import Counter
from typing import Final

from portico.domain.access.principal import Principal
from portico.domain.ids import TenantId, UserId

USER_SHARE: Final = 10
"""One user may have this part of all waiting requests."""


class WaitingRequests:
    """Count of the requests that wait for a person in this process: at most `limit`, of one user at most a tenth."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of_one = -(-limit // USER_SHARE)
        self._by_user: Counter[tuple[TenantId, UserId]] = Counter()

    def enter(self, principal: Principal) -> bool:
        """Count one more; return False, and count nothing, if there are too many."""
        user = principal.tenant, principal.user
        if self._by_user.total() >= self._limit or self._by_user[user] >= self._of_one:
            return False
        self._by_user[user] += 1
        return True

    def leave(self, principal: Principal) -> None:
        """Count one less."""
        user = principal.tenant, principal.user
        self._by_user[user] -= 1
        if not self._by_user[user]:
            del self._by_user[user]
