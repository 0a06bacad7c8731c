"""Usage meter: counts what executions take, and stores it every few seconds.

Theory of operation

1. Counts are totals and not increments, so storing them twice changes nothing. The totals of a journaled execution are
   its own: its next owner, who replays the recorded attempts, arrives at the same totals and goes on from them. Nothing
   that is recorded is lost or counted twice.
2. An execution in memory cannot be continued. Its usage is part of the totals of this process, since one row for each
   plain chat would be many. Of a process that is killed, the seconds since they were last stored are lost.
3. One that becomes journaled while it runs moves from the totals of the process to its own, in one transaction.
4. Stored totals of an execution never go down: its next owner may be stopped before it has replayed everything.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from portico.capabilities.limits.quotas import RunSlot
from portico.domain.access.principal import Principal
from portico.domain.ids import ExecutionId
from portico.domain.journal.header import ExecutionHeader
from portico.ports.limits import UsageCounts, UsageFilter, UsageGroup, UsageKey, UsageStore

HOUR_S: Final = 3_600
NO_COUNTS: Final = UsageCounts()


class ExecutionUsage:
    """Usage and slot of one execution that runs here. `is_journaled` tells if another owner may go on."""

    def __init__(self, header: ExecutionHeader, is_journaled: Callable[[], bool], slot: RunSlot | None) -> None:
        self.has_reserved = False
        """True once an attempt has reserved from the limits of the caller, or tried to."""
        self.slot = slot
        """The slot in the limits of the caller, if there are any."""
        self.is_journaled = is_journaled
        self._header = header
        self._counts: dict[tuple[int, str], UsageCounts] = {(_hour(header.created_at), ""): UsageCounts(executions=1)}
        self._models: set[str] = set()

    def add(self, model: str, at: float, *, input_tokens: int, output_tokens: int, cost: float) -> None:
        """Count an attempt that ended at that time."""
        key = _hour(at), model
        counts = UsageCounts(model not in self._models, input_tokens, output_tokens, cost)
        self._models.add(model)
        self._counts[key] = self._counts[key] + counts if key in self._counts else counts

    def counts(self, source: str) -> dict[UsageKey, UsageCounts]:
        """Return the totals under the name of that source."""
        counts: dict[UsageKey, UsageCounts] = {}
        self.add_to(counts, source)
        return counts

    def add_to(self, totals: dict[UsageKey, UsageCounts], source: str) -> None:
        """Add the totals to those of that source."""
        header = self._header
        tenant, user, key_id, agent = header.tenant, header.user, header.key_id or "", header.request.agent or ""
        for (hour, model), counts in self._counts.items():
            key = UsageKey(source, tenant, hour, user, key_id, agent, model)
            totals[key] = totals[key] + counts if key in totals else counts


class UsageMeter:
    """Meter of all executions that run here. `process` names this run of the service."""

    def __init__(self, store: UsageStore, process: str) -> None:
        self._store = store
        self._process = process
        self._running: dict[ExecutionId, ExecutionUsage] = {}
        self._ended: dict[ExecutionId, Mapping[UsageKey, UsageCounts]] = {}
        """Totals of journaled executions that have ended and are not stored yet."""
        self._totals: dict[UsageKey, UsageCounts] = {}
        """Totals of the executions in memory that have ended."""
        self._stored: dict[UsageKey, UsageCounts] = {}
        """Totals of this process and of running executions as they were stored last."""

    def begin(self, header: ExecutionHeader, is_journaled: Callable[[], bool], slot: RunSlot | None = None) -> None:
        """Count an execution from now on; one that goes on from a history counts what is recorded again."""
        self._ended.pop(header.execution_id, None)
        self._running[header.execution_id] = ExecutionUsage(header, is_journaled, slot)

    def of(self, execution_id: ExecutionId) -> ExecutionUsage | None:
        """Return the usage of an execution that runs here."""
        return self._running.get(execution_id)

    def end(self, execution_id: ExecutionId) -> None:
        """Count no more of an execution: it has ended, is suspended, or has another owner; perhaps it never ran."""
        usage = self._running.pop(execution_id, None)
        if usage is None:
            return
        if usage.is_journaled():
            self._ended[execution_id] = usage.counts(execution_id)
        else:
            usage.add_to(self._totals, self._process)

    def charge(self, principal: Principal, model: str, at: float, tokens: int, cost: float) -> None:
        """Count what a caller has taken of a model outside of executions: the tokens that it read, and their cost."""
        key = UsageKey(
            self._process, principal.tenant, _hour(at), principal.user, principal.key_id or "", agent="", model=model
        )
        self._totals[key] = self._totals.get(key, NO_COUNTS) + UsageCounts(input_tokens=tokens, cost=cost)

    async def flush(self) -> None:
        """Store all totals that have changed. Raises: StorageFailure."""
        process, executions = dict(self._totals), dict[UsageKey, UsageCounts]()
        ended = dict(self._ended)
        for counts in ended.values():
            executions |= counts
        for execution_id, usage in self._running.items():
            if usage.is_journaled():
                executions |= usage.counts(execution_id)
            else:
                usage.add_to(process, self._process)
        moved = {key for key in self._stored if key.source == self._process} - process.keys()
        process |= dict.fromkeys(moved, NO_COUNTS)
        await self._store_changes(process, executions)
        for execution_id, counts in ended.items():
            if self._ended.get(execution_id) is counts:
                del self._ended[execution_id]
        self._forget(process, executions)

    async def read(self, where: UsageFilter, by: UsageGroup) -> Sequence[tuple[str, UsageCounts]]:
        """Return the stored sums by that group. Raises: StorageFailure."""
        return await self._store.read(where, by)

    async def _store_changes(
        self, process: Mapping[UsageKey, UsageCounts], executions: Mapping[UsageKey, UsageCounts]
    ) -> None:
        changed = [
            {key: counts for key, counts in totals.items() if self._stored.get(key) != counts}
            for totals in (process, executions)
        ]
        if any(changed):
            await self._store.write(*changed)

    def _forget(self, process: Mapping[UsageKey, UsageCounts], executions: Mapping[UsageKey, UsageCounts]) -> None:
        """Remember what was stored, but nothing of ended executions and, while nothing runs, of hours that passed."""
        self._stored = {key: counts for key, counts in executions.items() if key.source in self._running}
        latest = max((key.hour for key in process), default=0)
        for key, counts in process.items():
            if key.hour < latest and not self._running and self._totals.get(key) == counts:
                del self._totals[key]
            else:
                self._stored[key] = counts


def _hour(at: float) -> int:
    return int(at // HOUR_S)
