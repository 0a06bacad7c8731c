"""Change feed: what changes in the executions of watched tenants, here and on other replicas.

Theory of operation

1. With the first watcher the feed joins the event bus, with the last one it leaves it. An execution that runs here is
   folded from its published events, which costs no query; one in memory is known in no other way.
2. Changes are passed on every `COALESCE_SECONDS`, only the latest state of each execution. An end or a suspension is
   passed on at once; those within `END_SECONDS` of each other go together.
3. A suspended execution, and one of another replica whose log has grown, is read from the store, all of a tenant in one
   query. A notification may be lost, so the unfinished executions are read again every `REREAD_SECONDS`. One of these
   that is found no more was deleted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Final

import anyio

from portico.capabilities.context.title import title_of
from portico.domain.access.principal import AccessScope
from portico.domain.contract.response import Suspension
from portico.domain.failures import StorageFailure
from portico.domain.ids import ExecutionId, TenantId
from portico.domain.journal.events import RESTING_EVENTS, StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.status import ExecutionStatus
from portico.domain.lifecycle import State
from portico.domain.value import value
from portico.ports.events import Change, EventFeed, ExecutionChange, ExecutionRemoval, OnChanges, RunningExecutions
from portico.ports.journal import Journal
from portico.ports.runtime import Clock
from portico.ports.storage import UNFINISHED, ExecutionFilter, ExecutionStore, StoredExecution

COALESCE_SECONDS: Final = 0.25
END_SECONDS: Final = 0.1
REREAD_SECONDS: Final = 10.0
MAX_UNFINISHED: Final = 1_000
"""Unfinished executions of a tenant that are read, the newest ones."""
_MAX_GROWN: Final = 1_000
"""Executions that wait to be read from the store; those beyond are found when the unfinished ones are read again."""


_TRIES: Final = 8
"""How often an execution that ended here is looked for in the store, once in `COALESCE_SECONDS`."""


@dataclass(slots=True)
class _Running:
    """An execution that runs here: its status after its event `last`, and the events that were published since."""

    header: ExecutionHeader
    status: ExecutionStatus | None = None
    last: int = 0
    events: list[StoredEvent] = field(default_factory=list)


@value
class _Known:
    """An unfinished execution as it was passed on last."""

    removal: ExecutionRemoval
    events: int
    suspensions: Sequence[Suspension]


class _Watched:
    """A watched tenant: its callback, its unfinished executions as far as they are known, and when to read them."""

    __slots__ = ("callback", "known", "read_at")

    def __init__(self, callback: OnChanges) -> None:
        self.callback = callback
        self.known: dict[ExecutionId, _Known] = {}
        self.read_at = -inf

    def change(self, row: StoredExecution) -> ExecutionChange:
        """Return the change to this state, with the suspensions that were open before and are not any more."""
        before = self.known.pop(row.execution_id, None)
        still_open = {each.suspension_id for each in row.suspensions}
        earlier = () if before is None else before.suspensions
        if not row.status.ended:
            removal = ExecutionRemoval(row.request_id, row.user, row.session_id)
            self.known[row.execution_id] = _Known(removal, row.last_sequence_number, row.suspensions)
        return ExecutionChange(row, [each for each in earlier if each.suspension_id not in still_open])


class StoredChangeFeed:
    """Implementation of the `ChangeFeed` port; `run` is its only task."""

    def __init__(
        self, store: ExecutionStore, journal: Journal, bus: EventFeed, local: RunningExecutions, *, clock: Clock
    ) -> None:
        self._store = store
        self._journal = journal
        self._bus = bus
        self._local = local
        self._clock = clock
        self._watched: dict[TenantId, _Watched] = {}
        self._running: dict[ExecutionId, _Running] = {}
        self._changed: dict[ExecutionId, _Running] = {}
        self._rested: dict[ExecutionId, _Running] = {}
        self._grown: dict[ExecutionId, int] = {}
        """Executions to read, and how often again if they are not found."""
        self._wake_up = anyio.Event()
        self._flush_at = -inf

    def watch(self, tenant: TenantId, callback: OnChanges) -> None:
        if not self._watched:
            self._bus.watch(self._on_published)
        self._watched[tenant] = _Watched(callback)
        self._wake_up.set()

    def unwatch(self, tenant: TenantId) -> None:
        del self._watched[tenant]
        for mine in (self._running, self._changed, self._rested):
            for execution_id in [each for each, running in mine.items() if running.header.tenant == tenant]:
                del mine[execution_id]
        if not self._watched:
            self._grown.clear()
            self._bus.watch(None)

    def remove(self, tenant: TenantId, removals: Sequence[ExecutionRemoval]) -> None:
        watched, names = self._watched.get(tenant), {each.request_id for each in removals}
        if watched is None:
            return
        for mine in (self._running, self._changed, self._rested):
            removed = [each for each, running in mine.items() if running.header.request_id in names]
            for execution_id in removed:
                if mine[execution_id].header.tenant == tenant:
                    del mine[execution_id]
        watched.known = {each: known for each, known in watched.known.items() if known.removal.request_id not in names}
        watched.callback(removals)

    async def running(self, scope: AccessScope) -> Sequence[StoredExecution]:
        rows = []
        for header in self._local.headers():
            if header.request.store and scope.includes(header.tenant, header.user):
                running = _Running(header)
                row = await self._row(running)
                if row is not None:
                    rows.append(row)
                    self._follow(running)
        return rows

    def notify_grown(self, execution_id: ExecutionId) -> None:
        """Read the execution soon, because its log may have grown."""
        if execution_id not in self._running:
            self._read_later(execution_id, 0)

    def _follow(self, running: _Running) -> None:
        """Fold the later events of an execution, of which the state is known now, if its tenant is watched."""
        header = running.header
        if header.tenant in self._watched and self._local.is_running(header.execution_id):
            self._running.setdefault(header.execution_id, running)

    def _read_later(self, execution_id: ExecutionId, tries: int) -> None:
        if self._watched and len(self._grown) < _MAX_GROWN:
            self._grown[execution_id] = max(tries, self._grown.get(execution_id, 0))
            self._wake_up.set()

    async def run(self) -> None:
        """Pass changes on until cancelled. After a storage failure, read again later."""
        while True:
            with anyio.move_on_after(self._seconds_to_wait()):
                await self._wake_up.wait()
            self._wake_up = anyio.Event()
            with suppress(StorageFailure):
                await self._pass_on()
            await self._clock.sleep(END_SECONDS)

    def _seconds_to_wait(self) -> float:
        due = min((each.read_at + REREAD_SECONDS for each in self._watched.values()), default=inf)
        if self._changed or self._grown:
            due = min(due, self._flush_at)
        return max(0.0, due - self._clock.monotonic())

    async def _pass_on(self) -> None:
        rested, self._rested = self._rested, {}
        await self._fold(rested.values())
        now = self._clock.monotonic()
        if now >= self._flush_at and (self._changed or self._grown):
            self._flush_at = now + COALESCE_SECONDS
            changed, self._changed = self._changed, {}
            await self._fold(changed.values())
            grown, self._grown = self._grown, {}
            await self._read(grown)
        for tenant, watched in list(self._watched.items()):
            if now >= watched.read_at + REREAD_SECONDS:
                watched.read_at = now
                await self._read_unfinished(tenant, watched)

    def _on_published(self, execution_id: ExecutionId, items: Sequence[StoredEvent]) -> None:
        running = self._running.get(execution_id)
        if running is None:
            header = self._local.header_of(execution_id)
            if header is None:
                self.notify_grown(execution_id)
                return
            if header.tenant not in self._watched or not header.request.store:
                return
            begins = items[0].sequence_number == 1
            running = _Running(header, ExecutionStatus(header.created_at) if begins else None)
            self._running[execution_id] = running
        running.events.extend(items)
        if type(items[-1].event) in RESTING_EVENTS:
            self._changed.pop(execution_id, None)
            self._rested[execution_id] = self._running.pop(execution_id)
        else:
            self._changed[execution_id] = running
        self._wake_up.set()

    async def _fold(self, runnings: Iterable[_Running]) -> None:
        """Pass on the state of executions that run or ran here; read those that are suspended from the store."""
        changes: defaultdict[TenantId, list[ExecutionChange]] = defaultdict(list)
        to_read: dict[ExecutionId, int] = {}
        for running in runnings:
            row = await self._row(running)
            if row is None or row.status.state is State.SUSPENDED:
                to_read[running.header.execution_id] = _TRIES
            elif row.tenant in self._watched:
                changes[row.tenant].append(self._watched[row.tenant].change(row))
        for tenant, ready in changes.items():
            if tenant in self._watched:
                self._watched[tenant].callback(ready)
        await self._read(to_read)

    async def _row(self, running: _Running) -> StoredExecution | None:
        """Return the state of an execution after its events so far; None if it does not run here any more."""
        header = running.header
        if running.status is None:
            history = await self._journal.load(header.execution_id)
            if history is None:
                return None
            steps = list(history.steps.values())
            running.status = ExecutionStatus(header.created_at).apply(steps, history.events)
            running.last = history.events[-1].sequence_number if history.events else 0
        events, running.events = running.events, []
        new = [event for event in events if event.sequence_number > running.last]
        if new:
            running.status = running.status.apply((), new)
            running.last = new[-1].sequence_number
        return StoredExecution.of_running(header, running.status, running.last, title_of(header))

    async def _read(self, tries: Mapping[ExecutionId, int]) -> None:
        """Read these executions from the store, as far as they are of watched tenants, and pass them on.

        Those that are not found are read again as often as `tries` says, since what ended in memory is written later.
        """
        if not tries:
            return
        missing = dict(tries)
        for tenant, watched in list(self._watched.items()):
            found = await self._store.find_all(tenant, [*tries])
            for row in found:
                missing.pop(row.execution_id, None)
            changes = [watched.change(row) for row in found if row.execution_id not in self._running]
            if changes:
                watched.callback(changes)
        for execution_id, left in missing.items():
            if left:
                self._read_later(execution_id, left - 1)

    async def _read_unfinished(self, tenant: TenantId, watched: _Watched) -> None:
        """Read the unfinished executions again, and pass on those that changed or were deleted unnoticed."""
        unfinished = ExecutionFilter(UNFINISHED)
        page = await self._store.executions(AccessScope(tenant), unfinished, limit=MAX_UNFINISHED)
        rows = {row.execution_id: row for row in page.items}
        gone = [each for each in watched.known if each not in rows and not self._local.is_running(each)]
        if page.next is None and gone:
            found = await self._store.find_all(tenant, gone)
            rows |= {row.execution_id: row for row in found}
        changes: list[Change] = []
        for execution_id, row in rows.items():
            known = watched.known.get(execution_id)
            is_new = known is None or (known.events, known.suspensions) != (row.last_sequence_number, row.suspensions)
            if is_new and not self._local.is_running(execution_id):
                changes.append(watched.change(row))
        if page.next is None:
            changes += [watched.known.pop(each).removal for each in gone if each not in rows]
        if changes:
            watched.callback(changes)
