"""What we need from outside, on one page."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from app.domain.ids import ExecutionId, TenantId

T = TypeVar("T")


class Clock(Protocol):
    """Time. `now` is Unix seconds, `monotonic` seconds of no particular origin."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back once after that time; the returned function calls it off."""
        ...


class Entropy(Protocol):
    """Randomness and new ids."""

    def uuid7(self) -> str: ...

    def token(self, size: int) -> str:
        """`size` random bytes as lower-case hex."""
        ...

    def random_below(self, bound: int) -> int:
        """A uniform integer from 0 to `bound` - 1."""
        ...


class ThreadPool(Protocol):
    """Threads for computations that would hold up the event loop."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work on a thread and return what it returns. Raises: what the work raises."""
        ...


@dataclass(frozen=True, slots=True)
class QueueTicket:
    """A stored execution that waits for its turn to run. It is of use while the execution is in that epoch."""

    tenant: TenantId
    execution_id: ExecutionId
    epoch: int


class Runner(Protocol):
    """Who runs executions: admission, in-flight limit, tasks, the line of those that wait, drain."""

    def start(self, execution_id: ExecutionId, body: Callable[[], Awaitable[None]]) -> None:
        """Runs `body` here and now, in a task of its own, which outlives the caller.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN).
        """
        ...

    async def admit(self) -> None:
        """Makes sure that one more may wait for its turn.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN); StorageFailure.
        """
        ...

    async def queue(self, ticket: QueueTicket) -> None:
        """Has the execution advanced, here or elsewhere, when its turn comes; once, however often it is queued.

        Raises: StorageFailure.
        """
        ...

    @property
    def is_draining(self) -> bool: ...
