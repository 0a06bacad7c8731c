"""Which request_ids are in use in this process."""

from collections import Counter, deque

from app.domain.failures import Code, RequestFailure
from app.domain.journal.header import ExecutionHeader


class RequestIds:
    """Names of running executions, and of the last `keep_ended` that ended; older ones are forgotten.

    A name is taken alone, or shared where somebody else decides whether it is in use.
    """

    def __init__(self, keep_ended: int) -> None:
        self._keep_ended = keep_ended
        self._alone: set[tuple[str, str]] = set()
        self._shared: Counter[tuple[str, str]] = Counter()
        self._ended: set[tuple[str, str]] = set()
        self._oldest_first: deque[tuple[str, str]] = deque()

    def reserve(self, header: ExecutionHeader) -> None:
        """Raises: RequestFailure (REQUEST_ID_CONFLICT), as `share`."""
        name = _name(header)
        if name in self._shared:
            raise _conflict()
        self._refuse_taken(name)
        self._alone.add(name)

    def share(self, header: ExecutionHeader) -> None:
        name = _name(header)
        self._refuse_taken(name)
        self._shared[name] += 1

    def promote(self, header: ExecutionHeader) -> None:
        """From now on somebody else decides about this name."""
        name = _name(header)
        self._alone.discard(name)
        self._shared[name] += 1

    def release(self, header: ExecutionHeader) -> None:
        """The execution has ended, or goes on elsewhere. A name that was taken alone is remembered."""
        name = _name(header)
        if name not in self._alone:
            self._release_shared(name)
            return
        self._alone.discard(name)
        self._ended.add(name)
        self._oldest_first.append(name)
        if len(self._ended) > self._keep_ended:
            self._ended.discard(self._oldest_first.popleft())

    def _release_shared(self, name: tuple[str, str]) -> None:
        self._shared[name] -= 1
        if self._shared[name] == 0:
            del self._shared[name]

    def _refuse_taken(self, name: tuple[str, str]) -> None:
        if name in self._alone or name in self._ended:
            raise _conflict()


def _name(header: ExecutionHeader) -> tuple[str, str]:
    return header.tenant, header.request_id


def _conflict() -> RequestFailure:
    return RequestFailure(Code.REQUEST_ID_CONFLICT, "request_id is in use")
