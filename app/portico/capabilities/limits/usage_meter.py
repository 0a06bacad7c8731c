"""Usage meter: counts what executions take, and stores it every few seconds.

Theory of operation

1. Counts are totals and not increments, so storing them twice changes nothing. The totals of a running execution are
   its own. They never go down: its next owner may be stopped before it has replayed everything.
2. A journaled execution keeps its rows. The commit of its end or suspension stores them, too, so that they are not lost
   with the process; its next owner, who replays the recorded attempts, arrives at the same totals and goes on from
   them. Nothing that is recorded is lost or counted twice.
3. An execution that ended in memory becomes part of the totals of this process, since rows for each plain chat would be
   many. Its own, if there are any, are deleted in the transaction that stores these totals. Of a process that is
   killed, what such executions took since the totals were last stored is lost.
4. Only `flush` changes the totals of the process and deletes rows, so no other writer can be late with earlier ones.
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
        self.stored: dict[UsageKey, UsageCounts | None] = {}
        """Its own totals as they were stored last; None where that is not certain."""
        self.committed: Mapping[UsageKey, UsageCounts] = {}
        """Its own totals as a commit of the execution stores them."""
        self._header = header
        hour = int((header.created_at if header.delay is None else header.begins_at) // HOUR_S)
        self._counts: dict[tuple[int, str], UsageCounts] = {(hour, ""): UsageCounts(executions=1)}
        self._models: set[str] = set()

    def add(self, model: str, at: float, *, input_tokens: int, output_tokens: int, cost: float) -> None:
        """Count an attempt that ended at that time."""
        key = int(at // HOUR_S), model
        counts = UsageCounts(model not in self._models, input_tokens, output_tokens, cost)
        self._models.add(model)
        self._counts[key] = self._counts[key] + counts if key in self._counts else counts

    def counts(self) -> dict[UsageKey, UsageCounts]:
        """Return the totals under the name of the execution."""
        counts: dict[UsageKey, UsageCounts] = {}
        self.add_to(counts, self._header.execution_id)
        return counts

    def unstored(self) -> dict[UsageKey, UsageCounts]:
        """Return the totals that are not stored as they are, and count them as perhaps stored from now on."""
        unstored = {key: counts for key, counts in self.counts().items() if self.stored.get(key) != counts}
        self.stored |= dict.fromkeys(unstored)
        return unstored

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
        self._ended: dict[ExecutionId, ExecutionUsage] = {}
        """Journaled executions that have ended and are not stored yet."""
        self._totals: dict[UsageKey, UsageCounts] = {}
        """Totals of the executions in memory that have ended."""
        self._stored: dict[UsageKey, UsageCounts] = {}
        """Totals of this process as they were stored last."""
        self._surplus: set[UsageKey] = set()
        """Stored rows of executions that are part of the totals of this process by now."""

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
            self._ended[execution_id] = usage
        else:
            usage.add_to(self._totals, self._process)
            self._surplus.update(usage.stored)

    def retract(self, execution_id: ExecutionId) -> None:
        """Count nothing of an execution that was refused before it asked anybody, and give back what it has taken."""
        usage = self._running.pop(execution_id, None)
        if usage is not None:
            self._surplus.update(usage.stored)
            if usage.slot is not None:
                usage.slot.refund()

    def counts_of(self, execution_id: ExecutionId) -> Mapping[UsageKey, UsageCounts]:
        """Return the totals of an execution that runs here, for the commit of its end or suspension."""
        usage = self._running.get(execution_id)
        if usage is None:
            return {}
        usage.committed = usage.counts()
        return usage.committed

    def confirm(self, execution_id: ExecutionId) -> None:
        """Take that the totals that `counts_of` returned last, if any, are stored."""
        usage = self._running.get(execution_id)
        if usage is not None:
            usage.stored |= usage.committed

    def charge(self, principal: Principal, model: str, at: float, tokens: int, cost: float) -> None:
        """Count what a caller has taken of a model outside of executions: the tokens that it read, and their cost."""
        key = UsageKey(
            self._process,
            principal.tenant,
            int(at // HOUR_S),
            principal.user,
            principal.key_id or "",
            agent="",
            model=model,
        )
        self._totals[key] = self._totals.get(key, NO_COUNTS) + UsageCounts(input_tokens=tokens, cost=cost)

    async def flush(self) -> None:
        """Store all totals that have changed. Raises: StorageFailure."""
        process = {key: counts for key, counts in self._totals.items() if self._stored.get(key) != counts}
        ended, surplus = dict(self._ended), set(self._surplus)
        changed = [(usage, usage.unstored()) for usage in (*ended.values(), *self._running.values())]
        executions = {key: counts for _, unstored in changed for key, counts in unstored.items()}
        if process or executions or surplus:
            await self._store.write(process, executions, surplus)
        for usage, unstored in changed:
            usage.stored |= unstored
        for execution_id, usage in ended.items():
            if self._ended.get(execution_id) is usage:
                del self._ended[execution_id]
        self._surplus -= surplus
        self._stored |= process
        self._forget()

    async def read(self, where: UsageFilter, by: UsageGroup) -> Sequence[tuple[str, UsageCounts]]:
        """Return the stored sums by that group. Raises: StorageFailure."""
        return await self._store.read(where, by)

    def _forget(self) -> None:
        """Forget, while nothing runs, the totals of hours that passed."""
        latest = max((key.hour for key in self._stored), default=0)
        for key, counts in list(self._stored.items()):
            if key.hour < latest and not self._running and self._totals.get(key) == counts:
                del self._totals[key], self._stored[key]
