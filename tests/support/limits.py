"""Stores of limits and usage in memory."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from portico.adapters.stores.access.limits import MemoryLimitStore
from portico.domain.access.limits import Rate
from portico.domain.failures import Code, StorageFailure
from portico.ports.limits import RateLease, UsageCounts, UsageFilter, UsageGroup, UsageKey
from portico.ports.runtime import Clock
from tests.support.stored_journal import InMemoryDatabase


class ExactLimitStore(MemoryLimitStore):
    """The store of a replica that is alone. It counts how often it is asked, and may be out of order."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(InMemoryDatabase(), clock)
        self.leases = 0
        self.is_down = False

    async def lease_units(self, name: str, rate: Rate, needed: int) -> RateLease:
        self.leases += 1
        if self.is_down:
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")
        return await super().lease_units(name, rate, needed)

    async def lease_slots(self, name: str, limit: int, held: int) -> int:
        self.leases += 1
        if self.is_down:
            raise StorageFailure(Code.STORAGE_UNAVAILABLE, "the database does not answer")
        return await super().lease_slots(name, limit, held)


class RecordedUsage:
    """Implementation of the `UsageStore` port that remembers what was written, after `on_write`."""

    def __init__(self) -> None:
        self.process: dict[UsageKey, UsageCounts] = {}
        self.executions: dict[UsageKey, UsageCounts] = {}
        self.writes = 0
        self.on_write: Callable[[], Awaitable[None]] = _no_work

    async def write(
        self,
        process: Mapping[UsageKey, UsageCounts],
        executions: Mapping[UsageKey, UsageCounts],
        surplus: Collection[UsageKey] = (),
    ) -> None:
        await self.on_write()
        self.process |= process
        self.executions |= executions
        for key in surplus:
            self.executions.pop(key, None)
        self.writes += 1

    async def read(self, where: UsageFilter, by: UsageGroup) -> Sequence[tuple[str, UsageCounts]]:
        raise NotImplementedError

    @property
    def total(self) -> UsageCounts:
        """The sum of everything that is stored."""
        return sum([*self.process.values(), *self.executions.values()], UsageCounts())


async def _no_work() -> None:
    """Do nothing while something is written."""
