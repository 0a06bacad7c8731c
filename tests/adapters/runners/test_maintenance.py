"""Maintenance: periodic jobs, and which of their failures are reported."""

import anyio

from portico.adapters.runners.maintenance import run_maintenance
from portico.domain.failures import Code, StorageFailure
from tests.support.virtual_time import VirtualClock


async def test_each_loop_reports_the_first_of_its_consecutive_failures(clock: VirtualClock) -> None:
    """A second loop, whose jobs succeed, does not make the failures of the first new ones."""
    faults: list[Exception] = []
    outcomes = [True, False, False, False, True, False, True]
    skipped: list[float] = []

    async def fail_sometimes() -> None:
        if not outcomes.pop(0):
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, "away")

    async def follow() -> None:
        skipped.append(clock.monotonic())

    async def succeed() -> None:
        pass

    async with anyio.create_task_group() as group:
        group.start_soon(run_maintenance, clock, (fail_sometimes, follow), faults.append, 10.0)
        group.start_soon(run_maintenance, clock, (succeed,), faults.append, 1.0)
        await clock.sleep(75)
        group.cancel_scope.cancel()
    assert len(faults) == 2
    assert len(skipped) == 3
