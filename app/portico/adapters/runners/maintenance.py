"""Periodic maintenance of stored executions."""

from collections.abc import Awaitable, Callable, Sequence

from portico.domain.failures import StorageFailure
from portico.ports.runtime import Clock

MAINTENANCE_INTERVAL_S = 15.0
CANCEL_INTERVAL_S = 0.5
"""Interval of the look for executions that another process, as the command line, was asked to cancel."""
CHECK_INTERVAL_S = 2.0
"""Interval of the check whether the database answers."""


async def run_maintenance(
    clock: Clock,
    jobs: Sequence[Callable[[], Awaitable[object]]],
    on_fault: Callable[[Exception], None],
    interval: float = MAINTENANCE_INTERVAL_S,
) -> None:
    """Run the jobs in order every `interval` seconds until cancelled.

    After a storage failure the remaining jobs wait for the next interval; `on_fault` is called for the first of
    consecutive failures.
    """
    failed_before = False
    while True:
        await clock.sleep(interval)
        try:
            for job in jobs:
                await job()
        except StorageFailure as fault:
            if not failed_before:
                on_fault(fault)
            failed_before = True
        else:
            failed_before = False
