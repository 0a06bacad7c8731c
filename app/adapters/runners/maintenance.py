"""What has to be done for stored executions from time to time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.domain.failures import StorageFailure
from app.ports.runtime import Clock

MAINTENANCE_INTERVAL_S = 15.0


@dataclass(slots=True)
class StorageHealth:
    """Whether the database answered when it was last asked."""

    storage_is_down: bool = False


async def run_maintenance(
    clock: Clock,
    chores: Sequence[Callable[[], Awaitable[object]]],
    health: StorageHealth,
    on_fault: Callable[[Exception], None],
    interval: float = MAINTENANCE_INTERVAL_S,
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
