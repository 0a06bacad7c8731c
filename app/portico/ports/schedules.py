"""Schedule port: the stored schedules and their runs."""

from collections.abc import Sequence
from typing import Protocol

from portico.domain.access.principal import AccessScope
from portico.domain.schedules import Schedule, ScheduleRun
from portico.ports.outbox import Delivery
from portico.ports.storage import ResultPage


class ScheduleStore(Protocol):
    """Stored schedules. Those of another tenant, and those out of a scope, are missing.

    Every method raises StorageFailure.
    """

    async def put(self, schedule: Schedule, *, most: int) -> Schedule:
        """Store a schedule in place of its user's earlier one of that name, and return it with its past.

        Raises: RequestFailure (REQUEST_ID_CONFLICT) if the name is another user's; (REQUEST_RATE_LIMITED) if it is new
        and the tenant has `most` already.
        """
        ...

    async def find(self, scope: AccessScope, name: str) -> Schedule | None: ...

    async def due(self, schedule_id: str) -> Schedule | None:
        """Return a schedule that this replica has claimed; None if it was changed or deleted."""
        ...

    async def page(self, scope: AccessScope, *, after: str | None, limit: int) -> ResultPage[Schedule]:
        """Return a page of the schedules, by name."""
        ...

    async def delete(self, scope: AccessScope, name: str) -> bool:
        """Delete a schedule with the list of its runs. Return False if there is none."""
        ...

    async def settle(
        self,
        schedule: Schedule,
        runs: Sequence[ScheduleRun],
        planned_at: float | None,
        *,
        paused_because: str | None,
        deliveries: Sequence[Delivery] = (),
    ) -> None:
        """Record what became of times and the deliveries that announce it, and let the schedule be due at the next.

        All of it is one transaction; the claim ends.
        """
        ...

    async def record(self, schedule: Schedule, run: ScheduleRun) -> None:
        """Record a run that was started by hand."""
        ...

    async def runs(
        self, scope: AccessScope, name: str, *, after: str | None, limit: int
    ) -> ResultPage[ScheduleRun] | None:
        """Return a page of the runs, the latest first; None if there is no such schedule."""
        ...
