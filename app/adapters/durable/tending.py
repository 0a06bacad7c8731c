"""What has to be done for stored executions from time to time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.domain.failures import StorageFailure
from app.ports import Clock

INTERVAL_S = 15.0


@dataclass(slots=True)
class Health:
    """Whether the database answered when it was last asked."""

    storage_is_down: bool = False


async def tend(
    clock: Clock,
    chores: Sequence[Callable[[], Awaitable[object]]],
    health: Health,
    on_fault: Callable[[Exception], None],
    interval: float = INTERVAL_S,
) -> None:
    """Does the chores every `interval` seconds, in order, until it is cancelled. What a fault leaves is done later."""
    while True:
        await clock.sleep(interval)
        try:
            for chore in chores:
                await chore()
        except StorageFailure as fault:
            if not health.storage_is_down:
                on_fault(fault)
            health.storage_is_down = True
        else:
            health.storage_is_down = False
