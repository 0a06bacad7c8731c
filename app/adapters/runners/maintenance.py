"""Periodic maintenance of stored executions."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.domain.failures import StorageFailure
from app.ports.runtime import Clock

MAINTENANCE_INTERVAL_S = 15.0


@dataclass(slots=True)
class StorageHealth:
    """Result of the last access to the database."""

    storage_is_down: bool = False


async def run_maintenance(
    clock: Clock,
    jobs: Sequence[Callable[[], Awaitable[object]]],
    health: StorageHealth,
    on_fault: Callable[[Exception], None],
    interval: float = MAINTENANCE_INTERVAL_S,
) -> None:
    """Run the jobs in order every `interval` seconds until cancelled.

    After a storage failure the remaining jobs wait for the next interval; `on_fault` is called for the first of
    consecutive failures.
    """
    while True:
        await clock.sleep(interval)
        try:
            for job in jobs:
                await job()
        except StorageFailure as fault:
            if not health.storage_is_down:
                on_fault(fault)
            health.storage_is_down = True
        else:
            health.storage_is_down = False
