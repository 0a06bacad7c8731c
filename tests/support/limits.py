"""Stores of limits and usage in memory."""

from collections.abc import Mapping, Sequence

from app.adapters.stores.limits import MemoryLimitStore
from app.ports.limits import UsageCounts, UsageFilter, UsageGroup, UsageKey
from app.ports.runtime import Clock
from tests.support.stored_journal import InMemoryDatabase


class ExactLimitStore(MemoryLimitStore):
    """The store of a replica that is alone, which counts how often it is asked."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(InMemoryDatabase(), clock)


class RecordedUsage:
    """Implementation of the `UsageStore` port that remembers what was written."""

    def __init__(self) -> None:
        self.process: dict[UsageKey, UsageCounts] = {}
        self.executions: dict[UsageKey, UsageCounts] = {}
        self.writes = 0

    async def write(self, process: Mapping[UsageKey, UsageCounts], executions: Mapping[UsageKey, UsageCounts]) -> None:
        self.process |= process
        self.executions |= executions
        self.writes += 1

    async def read(self, where: UsageFilter, by: UsageGroup) -> Sequence[tuple[str, UsageCounts]]:
        raise NotImplementedError
