"""Request ids that are in use in this process."""

from collections import Counter, deque

from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, TenantId
from portico.domain.journal.header import ExecutionHeader


class RequestIds:
    """Request ids of running executions and of the last `remembered` that ended in memory.

    An id is reserved exclusively for an execution in memory, and shared for a stored one, where the database decides
    whether it is in use.
    """

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._exclusive: set[tuple[str, str]] = set()
        self._shared: Counter[tuple[str, str]] = Counter()
        self._ended: set[tuple[str, str]] = set()
        self._oldest_first: deque[tuple[str, str]] = deque()

    def reserve(self, header: ExecutionHeader) -> None:
        """Reserve the id exclusively. Raises: RequestFailure (REQUEST_ID_CONFLICT), as `share`."""
        request = _key(header)
        if request in self._shared or request in self._exclusive or request in self._ended:
            raise conflict()
        self._exclusive.add(request)

    def share(self, header: ExecutionHeader) -> None:
        request = _key(header)
        if request in self._exclusive or request in self._ended:
            raise conflict()
        self._shared[request] += 1

    def promote(self, header: ExecutionHeader) -> None:
        """Turn an exclusive reservation into a shared one."""
        request = _key(header)
        self._exclusive.discard(request)
        self._shared[request] += 1

    def release(self, header: ExecutionHeader) -> None:
        """Release the id of an execution that has ended or was lost; an exclusive one is remembered."""
        request = _key(header)
        if request not in self._exclusive:
            self._release_shared(request)
            return
        self._exclusive.discard(request)
        self._ended.add(request)
        self._oldest_first.append(request)
        if len(self._ended) > self._remembered:
            self._ended.discard(self._oldest_first.popleft())

    def forget(self, tenant: TenantId, request_id: RequestId) -> None:
        """Forget an id that is remembered, so that it can be used again."""
        if (tenant, request_id) in self._ended:
            self._ended.discard((tenant, request_id))
            self._oldest_first.remove((tenant, request_id))

    def _release_shared(self, request: tuple[str, str]) -> None:
        self._shared[request] -= 1
        if self._shared[request] == 0:
            del self._shared[request]


def _key(header: ExecutionHeader) -> tuple[str, str]:
    return header.tenant, header.request_id


def conflict() -> RequestFailure:
    """Return the refusal of an id that another execution has."""
    return RequestFailure(Code.REQUEST_ID_CONFLICT, "request_id is in use")
