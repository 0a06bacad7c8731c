"""Runtime ports: time, randomness, threads, and the runner of executions."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from portico.domain.ids import ExecutionId, TenantId
from portico.domain.value import value

T = TypeVar("T")


class Clock(Protocol):
    """Source of time. `now` is in Unix seconds, `monotonic` in seconds of no particular origin."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once after that time; the returned function cancels it."""
        ...


class Timeline:
    """Times of one execution in one process, in Unix seconds: they begin with the wall clock and follow the monotonic
    one, so that a wall clock that is set meanwhile changes no duration.
    """

    __slots__ = ("_began", "_monotonic", "_offset")

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._began = clock.now()
        self._offset = clock.monotonic()

    def now(self) -> float:
        """Return the current time."""
        return self._began + (self._monotonic() - self._offset)


class Entropy(Protocol):
    """Source of randomness and new ids."""

    def uuid7(self) -> str: ...

    def token(self, size: int) -> str:
        """Return `size` random bytes as lower-case hex."""
        ...

    def random_below(self, bound: int) -> int:
        """Return a uniformly distributed integer from 0 to `bound` - 1."""
        ...


class ThreadPool(Protocol):
    """Threads for computations that would hold up the event loop."""

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work on a thread and return what it returns. Raises: what the work raises."""
        ...


@value
class QueueTicket:
    """Queued execution. The ticket is valid while the execution is in that epoch."""

    tenant: TenantId
    execution_id: ExecutionId
    epoch: int


class ReservedPlace(Protocol):
    """Place for one execution that has not started, which counts as running until it has ended or was given back."""

    def start(self, execution_id: ExecutionId, body: Callable[[], Awaitable[None]]) -> None:
        """Run `body` in this place, as `Runner.start` does, also once no new work is accepted."""
        ...

    def release(self) -> None:
        """Give the place back; after `start`, or a second time, nothing changes."""
        ...


class Runner(Protocol):
    """Scheduler of executions: admission, in-flight limit, tasks, the queue, and draining."""

    def start(self, execution_id: ExecutionId, body: Callable[[], Awaitable[None]]) -> None:
        """Run `body` here and now, in a task of its own that outlives the caller.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN).
        """
        ...

    def reserve(self) -> ReservedPlace:
        """Take the place of an execution that is to be stored before it starts. Raises: as `start`."""
        ...

    async def admit(self) -> None:
        """Make sure that one more execution may be queued.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN); StorageFailure.
        """
        ...

    async def queue(self, ticket: QueueTicket) -> None:
        """Have the execution run when its turn comes, in this process or another: once, however often it is queued.

        Raises: StorageFailure.
        """
        ...

    @property
    def is_draining(self) -> bool:
        """Return True if no new work is accepted because the process is stopping."""
        ...
